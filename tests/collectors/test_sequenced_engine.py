"""The collector `sequenced` beside the published engine, on a store whose conditional writes are real."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.support.collecting import Collecting
from tests.support.commands import Command
from tests.support.s3_stores import STORES, Running, binary_of
from tests.support.sequenced import client_of
from tests.support.stores import VERSITYGW
from tests.support.task_work import FIRST, NOW, TYPES, Issuer, codec, work_of
from tests.support.waits import until

from sexton.deploy.local import Installation
from sexton.schemas.events import DeletionIntent, Outcome
from sexton.schemas.sequenced import Namespace
from sexton.storage import BatchDeleter, ObjectStore, StoreSettings, pages_of
from sexton.streaming_jobs.budget import NoBudget
from sexton.streaming_jobs.collectors.room import Scope, Sources
from sexton.streaming_jobs.collectors.sequenced.checkpoints import Held, Unknown
from sexton.streaming_jobs.collectors.sequenced.engine import FromEngine
from sexton.streaming_jobs.collectors.sequenced.files import Files
from sexton.streaming_jobs.collectors.sequenced.room import ROOM
from sexton.streaming_jobs.reaper.decode import Record
from sexton.streaming_jobs.reaper.execute.executor import Executor, Limits
from sexton.streaming_jobs.reaper.work import settle, take

slatedb: Any = pytest.importorskip("slatedb.uniffi")
pytestmark = pytest.mark.stores
BUCKET = "engine"
MANIFESTS, COMPACTIONS = Namespace("data/db", "manifest"), Namespace("data/db", "compactions")
_T = TypeVar("_T")


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A store of its own with a bucket; its credentials are this process'."""
    if binary_of(VERSITYGW) is None:
        pytest.skip("versitygw is not built: make stores")
    folder = tmp_path / "store"
    folder.mkdir()
    with STORES["versitygw"][0](folder) as started:
        for name, value in started.environ.items():
            monkeypatch.setenv(name, value)
        client_of(started).create_bucket(Bucket=BUCKET)
        yield started


class Engine:
    """A database of the engine in the bucket."""

    def __init__(self, running: Running) -> None:
        builder = slatedb.ObjectStoreBuilder.from_env(slatedb.ObjectStoreType.S3)
        url = running.settings.endpoint_url
        for name, value in (("bucket", BUCKET), ("aws_endpoint_url_s3", url), ("region", "us-east-1")):
            builder.with_config(name, value)
        builder.with_config("allow_http", "true")
        self.store, self.s3 = builder.build(), client_of(running)

    def write(self, root: str, key: str) -> None:
        """Open the database, write a key under its own name, close it."""

        async def written() -> None:
            db = await slatedb.DbBuilder(root, self.store).build()
            await db.put(key.encode(), key.encode())
            await db.shutdown()

        self.do(written())

    def read(self, root: str, *keys: str, checkpoint: str | None = None) -> list[bytes | None]:
        """What a new reader finds, of the newest state or of a checkpoint's."""

        async def found() -> list[bytes | None]:
            builder = slatedb.DbReaderBuilder(root, self.store)
            if checkpoint is not None:
                builder.with_reader_mode(slatedb.ReaderMode.CHECKPOINT(checkpoint))
            reader = await builder.build()
            values = [await reader.get(key.encode()) for key in keys]
            await reader.shutdown()
            return values

        return self.do(found())

    def checkpoint(self, root: str, lifetime_ms: int | None = None) -> Any:
        """Make a checkpoint of what is there."""
        options = slatedb.CheckpointOptions(lifetime_ms=lifetime_ms, source=None, name=None)
        return self.do(slatedb.AdminBuilder(root, self.store).build().create_detached_checkpoint(options))

    def do(self, call: Awaitable[_T]) -> _T:
        """Wait for a call, a minute at most."""
        return asyncio.run(asyncio.wait_for(call, 60))

    def ids(self, namespace: Namespace) -> list[int]:
        """The ids of the files of a namespace."""
        listed = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=namespace.folder).get("Contents", [])
        return sorted(id for each in listed if (id := namespace.id_of(each["Key"])) is not None)

    def boundary(self, namespace: Namespace) -> bytes:
        """A boundary's bytes."""
        body: bytes = self.s3.get_object(Bucket=BUCKET, Key=namespace.boundary_key)["Body"].read()
        return body


def test_b_5_the_engine_is_asked_in_the_store_that_was_listed(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-5: wherever its environment leads; an expired checkpoint holds, what it cannot read is unknown."""
    engine = Engine(running)
    engine.write("data/db", "a")
    one = engine.checkpoint("data/db", lifetime_ms=1)  # who opens the database takes it off the list
    engine.write("data/plain", "c")
    engine.s3.put_object(Bucket=BUCKET, Key=Namespace("data/junk", "manifest").key(1), Body=b"junk" * 10)
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{elsewhere.getsockname()[1]}")
        with ObjectStore(StoreSettings(running.settings.endpoint_url)) as store:
            newest = {"data/db": engine.ids(MANIFESTS)[-1], "data/plain": 1, "data/junk": 1, "data/none": 1}
            newest |= {"data/db/": 10**9}
            found = FromEngine().ask(store.address(BUCKET), BUCKET, newest)

    assert found.pop("data/db") == [Held(one.manifest_id, "manifest")]
    assert found.pop("data/plain") == []
    assert {root: type(answer) for root, answer in found.items()} == {
        "data/junk": Unknown,
        "data/none": Unknown,
        "data/db/": Unknown,
    }


def settled(running: Running, intents: Sequence[DeletionIntent]) -> list[str]:
    """The outcomes of intents, as one task of the reaper settles them."""
    with BatchDeleter(running.settings) as deleter:
        task = work_of(Issuer(), executor=Executor(deleter, NoBudget(), Limits()))
        take(task, [Record(0, FIRST.offset + n, 0, b"t", codec.encode(one)) for n, one in enumerate(intents)])
        rows: list[Any] = [codec.decode(row.value, TYPES[row.topic]) for row in settle(task)]
    return [row.outcome.value if isinstance(row, Outcome) else row.reason for row in rows]


def test_b_5_a_manifest_that_a_checkpoint_holds_is_not_collected(running: Running) -> None:
    """B-5: all else but the newest goes, under both boundaries, and both states are read afterwards."""
    engine, keys, room = (
        Engine(running),
        ["key-0", "key-1", "key-2"],
        ROOM.configured({"checkpoints": "slatedb"}),
    )
    engine.write("data/db", keys[0])
    held = engine.checkpoint("data/db")
    for key in keys[1:]:
        engine.write("data/db", key)
    manifests, compactions = engine.ids(MANIFESTS), engine.ids(COMPACTIONS)
    scope, tomorrow = Scope(BUCKET, "data/"), datetime.now(UTC) + timedelta(days=1, hours=1)

    with ObjectStore(running.settings) as store:
        sources: Any = Sources(None, None, store)  # type: ignore[arg-type]
        plan, parts = room.plan(scope, sources), list[Files]()
        fold = plan.fold()
        for page in pages_of(store.calls, BUCKET, "data/"):
            parts += [part for entry in page.objects for part in fold.add(entry)]
        parts += fold.end()
        found = room.decide(room.complete(plan, scope, parts, sources, tomorrow), scope, parts)
    bodies = [each.body(tomorrow) for each in found]
    intents = [
        DeletionIntent(f"i-{n}", each.tenant, NOW, "test", tuple(each.guards), each.action)
        for n, each in enumerate(bodies)
    ]

    assert settled(running, intents) == ["deleted", "deleted"]
    assert engine.ids(MANIFESTS) == [held.manifest_id, manifests[-1]]
    assert engine.ids(COMPACTIONS) == compactions[-1:]
    assert engine.boundary(MANIFESTS) == str(manifests[-2]).encode()
    assert engine.read("data/db", *keys) == [key.encode() for key in keys]
    assert engine.read("data/db", *keys, checkpoint=held.id) == [b"key-0", None, None]
    engine.write("data/db", "after")
    assert engine.read("data/db", "after") == [b"after"]


@pytest.mark.real
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_b_5_what_a_checkpoint_holds_survives_and_the_database_stays_readable(
    installation: Installation, running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-5: report, intents, boundary, deletion; then the newest state and the checkpoint's are read."""
    engine, keys = Engine(running), [f"key-{number}" for number in range(6)]
    for key in keys[:3]:
        engine.write("data/db", key)
    held = engine.checkpoint("data/db")
    for key in keys[3:]:
        engine.write("data/db", key)
    manifests, compactions = engine.ids(MANIFESTS), engine.ids(COMPACTIONS)
    garbage = [id for id in manifests[:-1] if id != held.manifest_id]
    env = {**running.environ, "SEXTON_S3_ENDPOINT_URL": running.settings.endpoint_url or ""}
    env["SEXTON_REPORTS"] = str(tmp_path / "reports")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    collecting = Collecting(BUCKET, {**installation.env, **env})
    collecting.room = ROOM.configured({"checkpoints": "slatedb", "min-age": "0.001s"})

    # Until the store's clock, which tells whole seconds, is past the last file.
    wanted = len(garbage) + len(compactions) - 1
    until(lambda: collecting.run().garbage_objects == wanted, every_s=0.5)
    report = collecting.run(emit=True)
    reaper = Command(installation, "--once", **env)
    assert reaper.wait(600) == 0, reaper.printed
    collecting.store.close()

    assert len(report.intents) == 2
    assert engine.ids(MANIFESTS) == [held.manifest_id, manifests[-1]], reaper.printed
    assert engine.ids(COMPACTIONS) == compactions[-1:]
    assert engine.boundary(MANIFESTS) == str(garbage[-1]).encode()
    assert engine.read("data/db", *keys) == [key.encode() for key in keys]
    old = engine.read("data/db", *keys, checkpoint=held.id)
    assert old == [*(key.encode() for key in keys[:3]), None, None, None]
    engine.write("data/db", "after")
    assert engine.read("data/db", "after", keys[0]) == [b"after", keys[0].encode()]
