"""The local stack: Kafka, Valkey, an S3 server and the issuer, started, repaired and ended by one command."""

from __future__ import annotations

from sexton.deploy.local.installation import Installation
from sexton.deploy.local.servers import PartStatus
from sexton.deploy.local.stack import BUCKET, LocalStack
from sexton.deploy.local.wanted import PARTS

__all__ = ["BUCKET", "PARTS", "Installation", "LocalStack", "PartStatus"]
