"""The chain through containers: intents from the host, judged and executed by the images."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from tests.support import images
from tests.support.container_stack import ContainerStack

from sexton.producers import Sexton
from sexton.schemas.settings import load

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

BUCKET = "layers"


def _store(stack: ContainerStack) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=stack.s3_url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def test_d_5_what_the_newest_owner_asks_for_is_deleted_and_nothing_else(containers: ContainerStack) -> None:
    """D-5: a reaper in a container deletes what a newest owner asked for, not what a replaced one did."""
    s3 = _store(containers)
    s3.create_bucket(Bucket=BUCKET)
    where = load(kafka_bootstrap_servers=containers.bootstrap_servers, issuer_url=containers.issuer_url)
    with Sexton.connect("node-a", where) as first, Sexton.connect("node-b", where) as second:
        replaced, newest = first.attach("fern"), second.attach("fern")
        for key in ("old", "live"):
            s3.put_object(Bucket=BUCKET, Key=key, Body=b"data")
        good = newest.delete(BUCKET, ["old"])
        late = replaced.delete(BUCKET, ["live"])
        good.wait(timeout=60)
        late.wait(timeout=60)

    done = containers.run(
        images.REAPER,
        *("sexton", "reaper", "run", "--once"),
        user="12345:0",
        SEXTON_CHECKPOINT="/tmp/checkpoint",
        SEXTON_REAPER_CORES="1",
    )

    assert done.code == 0, done.err
    assert [each["Key"] for each in s3.list_objects_v2(Bucket=BUCKET)["Contents"]] == ["live"]
    told = containers.run(
        images.TOOLS,
        *("tail", "outcomes", "--until-end", "--from", "beginning", "--format", "json"),
        user="12345:0",
    )
    assert told.code == 0, told.err
    assert told.out.count("\n") == 2
    for receipt, word in ((good, "deleted"), (late, "stale")):
        (line,) = (line for line in told.out.splitlines() if receipt.intent_ids[0] in line)
        assert word in json.dumps(json.loads(line))
