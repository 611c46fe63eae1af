"""docs/wire.md: a program in another language writes what the SDK would have written, and is judged so.

The page's program is built with Go and runs against real parts; a machine without Go fails here.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from tests.support import golang, pages
from tests.support.chain import messages
from tests.support.registry import SchemaRegistry

from sexton.consumers.topics import read
from sexton.deploy.local import Installation
from sexton.issuer.client import IssuerClient
from sexton.producers import Sexton
from sexton.producers.testing import FakeSexton
from sexton.schemas import records
from sexton.schemas.codec import Codec
from sexton.schemas.events import DeletionIntent, Outcome
from sexton.schemas.registry import open_codec

pytestmark = [pytest.mark.stores, pytest.mark.real]

SOURCE = pages.ROOT / "docs" / "examples" / "go"
SCHEMA = pages.ROOT / "schemas/sexton/schemas/avro/deletion_intent.v3.avsc"
TENANTS = [*(f"tenant-{n}" for n in range(12)), "t\u00e9nant \U0001f5dd", "x" * 512]

Emit = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's program, built."""
    made = tmp_path_factory.mktemp("wire") / "emit"
    settings = {"GOFLAGS": "-mod=readonly -buildvcs=false", "CGO_ENABLED": "0", "GOWORK": "off"}
    for command in (("vet", "."), ("build", "-o", str(made), ".")):
        done = subprocess.run(
            [str(golang.find()), *command], cwd=SOURCE, env={**os.environ, **settings},
            capture_output=True, text=True, timeout=250, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    return made


@pytest.fixture
def emit(program: Path, installation: Installation) -> Emit:
    """Run the program for a tenant; returns the lines that it prints, and [] when it refuses."""

    def run(
        tenant: str,
        *arguments: str,
        put_index: str = "true",
        refused: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        command = [
            str(program), "-node", "node-go", "-tenant", tenant, "-bucket", installation.bucket,
            "-operation", "drop", "-schema", str(SCHEMA), "-put-index", put_index, *arguments,
        ]  # fmt: skip
        done = subprocess.run(
            command, env={**installation.environment, **(env or {})}, capture_output=True, text=True,
            timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode == (0 if refused is None else 1), done.stderr
        assert (refused or "") in done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def _python(code: str) -> str:
    return shlex.join([sys.executable, "-c", code])


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_programs_intents_are_judged_and_executed(
    emit: Emit, installation: Installation, cli: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """What is unlinked and what is given up goes; once a successor is attached, what is unlinked stays."""
    store: Any = boto3.client("s3", endpoint_url=installation.env["SEXTON_S3_ENDPOINT_URL"])
    for key in ("a/1-00000001", "a/2-00000001", "b/1", "c/1-00000001", "c/2"):
        store.put_object(Bucket=installation.bucket, Key=key, Body=b"x")
    there = f"""
import boto3
boto3.client("s3", endpoint_url={installation.env["SEXTON_S3_ENDPOINT_URL"]!r}).put_object(
    Bucket={installation.bucket!r}, Key="index-00000001", Body=b"names nothing")"""
    taken = f"""
from sexton.issuer.client import IssuerClient
IssuerClient({installation.env["SEXTON_ISSUER_URL"]!r}).attach("node-8", "late")"""

    unlinked = ("-unlinked", "a/1-00000001", "-unlinked", "a/2-00000001")
    ours = emit("ours", *unlinked, "-given-up", "b/1", put_index=_python(there))
    late = emit("late", "-unlinked", "c/1-00000001", "-given-up", "c/2", put_index=_python(taken))
    done = cli("reaper", "run", "--once", env=installation.environment, timeout=300)
    assert done.returncode == 0, done.stderr

    assert [(line["guard"], line.get("generation")) for line in ours] == [
        ("generation", 1),
        ("promise", None),
    ]
    codec = Codec()
    outcomes = [codec.decode(r.value, Outcome) for r in read(installation.settings, records.OUTCOMES)]
    assert {outcome.intent_id: outcome.outcome.value for outcome in outcomes} == {
        ours[0]["intent_id"]: "deleted",
        ours[1]["intent_id"]: "deleted",
        late[0]["intent_id"]: "stale",
        late[1]["intent_id"]: "deleted",
    }
    left = store.list_objects_v2(Bucket=installation.bucket)["Contents"]
    store.close()
    assert [each["Key"] for each in left] == ["c/1-00000001", "index-00000001"]


def test_the_programs_records_are_the_sdks(emit: Emit, installation: Installation) -> None:
    """For the same intent: key, headers and value byte for byte, and for the same tenant the partition."""
    lines = [
        line
        for tenant in TENANTS
        for line in emit(tenant, "-unlinked", "k-00000001", "-given-up", "\u00e9/k")
    ]
    topic, codec = installation.settings.topic(records.INTENTS), Codec()
    theirs = {(m.partition(), m.offset()): m for m in messages(installation.settings, topic)}
    with Sexton.connect("node-7", installation.settings) as sexton, FakeSexton("node-7") as fake:
        partitions = {}
        for tenant in TENANTS:
            (where,) = sexton.promise_delete("bucket", ["k"], operation="op", tenant=tenant).wait(10).values()
            partitions[tenant] = where.partition
        for line in lines:
            message = theirs[line["partition"], line["offset"]]
            intent = codec.decode(message.value(), DeletionIntent)
            ours = fake._emitter.prepare([intent])[0].record
            assert (message.key(), message.value()) == (ours.key, ours.value)
            assert message.headers() == ours.headers
            assert message.partition() == partitions[intent.tenant]
            assert intent.intent_id == line["intent_id"]
    assert len(set(partitions.values())) > 1


def test_the_program_writes_a_registrys_framing(emit: Emit, installation: Installation) -> None:
    """With a registry the value begins with 00 and the id that the SDK gets for the same schema."""
    with SchemaRegistry() as registry:
        url = {"SEXTON_SCHEMA_REGISTRY_URL": registry.url}
        (line,) = emit("t", "-unlinked", "k", env=url)
        settings = installation.settings.model_copy(update={"schema_registry_url": registry.url})
        topic, codec = settings.topic(records.INTENTS), open_codec(settings)
        (message,) = messages(settings, topic)
        intent = codec.decode(message.value(), DeletionIntent)
        assert intent.intent_id == line["intent_id"]
        assert message.value() == codec.encode(intent, topic)
        assert codec.encode(intent, topic).startswith(b"\0\0\0\0\1")


MANY = [word for n in range(1_100) for word in ("-unlinked", f"{n}{'k' * 1_000}")]
REFUSED = {
    "a key of 1,025 bytes": (("-unlinked", "k" * 1_025), "a key has 1 to 1024 bytes"),
    "an empty key": (("-given-up", ""), "a key has 1 to 1024 bytes"),
    "a URI": (("-unlinked", "s3://bucket/k"), "hardly a key"),
    "a bucket": (("-bucket", "a/b", "-unlinked", "k"), "not a bucket's name"),
    "no operation": (("-operation", "", "-given-up", "k"), "a promise needs an operation"),
    "too many keys": (MANY, "name fewer keys"),
}  # fmt: skip


def test_the_program_emits_nothing_of_what_may_not_be_written(emit: Emit, installation: Installation) -> None:
    """What the SDK would refuse, a dropped tenant, and an index of unknown fate: the topic stays empty."""
    for arguments, said in REFUSED.values():
        assert emit("t", *arguments, put_index="exit 9", refused=said) == []
    assert emit("t", "-unlinked", "k", put_index="exit 9", refused="nobody knows whether") == []
    with IssuerClient(installation.settings.issuer_url) as issuer:
        issuer.drop("gone")
    assert emit("gone", "-unlinked", "k", refused="410 tenant-dropped") == []
    assert list(read(installation.settings, records.INTENTS)) == []
