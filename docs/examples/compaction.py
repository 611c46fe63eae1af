"""A service compacts two layers of a tenant into one, and asks Sexton to delete the old ones.

It runs on the local stack: `eval "$(sexton local up)"`, then `python docs/examples/compaction.py`.
"""

from __future__ import annotations

import json
import os

import boto3

from sexton.producers import Sexton

BUCKET = "sexton-local"
s3 = boto3.client("s3", endpoint_url=os.environ.get("SEXTON_S3_ENDPOINT_URL"))

with Sexton.connect(node="node-7") as sexton:  # settings from SEXTON_...
    tenant = sexton.attach("tenant-42")  # a generation that nobody else has, ever
    index = tenant.key("tenants/tenant-42/index.json")  # ".../index.json-00000001"
    old = [tenant.key(f"tenants/tenant-42/layer-{n}") for n in (1, 2)]
    new = tenant.key("tenants/tenant-42/layer-3")
    for key in [*old, new]:
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"data")

    def put_index() -> None:
        """Write the index without the old layers; returns once the store has acknowledged it."""
        s3.put_object(Bucket=BUCKET, Key=index, Body=json.dumps([new]).encode())

    receipt = tenant.replace_index(put_index, unlinked=old, bucket=BUCKET)
    print(f"generation {tenant.generation} asks for {len(old)} deletions:", *receipt.wait(timeout=30))
