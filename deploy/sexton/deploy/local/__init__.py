"""The local stack: Kafka, Valkey, an S3 server and the issuer, started, repaired and ended by one command."""

from __future__ import annotations

from sexton.deploy.local.installation import Installation
from sexton.deploy.local.stack import BUCKET, PARTS, LocalStack, PartStatus

__all__ = ["BUCKET", "PARTS", "Installation", "LocalStack", "PartStatus"]
