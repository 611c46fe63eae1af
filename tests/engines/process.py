"""The published engine in a process of its own: reads requests as JSON lines, answers each with one.

    {"do": "open", "path": "databases/one", "log": false}
    {"ok": true}

`log` says whether the engine keeps its log of writes; without it only a manifest makes a write durable. What
the engine raises is the answer `{"ok": false, "error": ..., "message": ...}`, and the process continues. No
answer to `write` is given before the engine has said that every write of it is durable.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from slatedb import uniffi as engine

__all__ = ["main"]

_FAST = {
    "flush_interval": '"20ms"',
    "manifest_poll_interval": '"200ms"',
    "l0_sst_size_bytes": "4096",
    "compactor_options.poll_interval": '"200ms"',
    "compactor_options.commit_compacted_interval": '"100ms"',
    "compactor_options.worker.compactions_poll_interval": '"100ms"',
    # The engine's own collector runs when it is asked to, and at no other time.
    "garbage_collector_options": "null",
}
_EVERYTHING = engine.KeyRange(start=None, start_inclusive=False, end=None, end_inclusive=False)
_PAGE = 1000


class _Engine:
    """One writer at most, and what may be asked of any database."""

    def __init__(self) -> None:
        self._store = _store()
        self._db: Any = None

    async def open(self, path: str, log: bool) -> dict[str, Any]:
        """Open a database for writing, which fences whoever had it open."""
        settings = engine.Settings.default()
        for name, value in {**_FAST, "wal_enabled": json.dumps(log)}.items():
            settings.set(name, value)
        builder = engine.DbBuilder(path, self._store)
        builder.with_settings(settings)
        self._db = await builder.build()
        return {}

    async def write(self, pairs: list[list[str]], flush: bool) -> dict[str, Any]:
        """Put keys, and delete those whose value is null; answer once all of it is durable."""
        handles = []
        for key, value in pairs:
            wanted = (
                self._db.delete(key.encode()) if value is None else self._db.put(key.encode(), value.encode())
            )
            handles.append(await wanted)
        if flush:
            await self._db.flush_with_options(engine.FlushOptions(flush_type=engine.FlushType.MEM_TABLE))
        for handle in handles:
            await handle.await_durable()
        return {}

    async def shutdown(self) -> dict[str, Any]:
        """Close the database."""
        await self._db.shutdown()
        return {}

    async def read(self, path: str, checkpoint: str | None, managed: bool) -> dict[str, Any]:
        """Return every key and value: as of now, or as of a checkpoint."""
        builder = engine.DbReaderBuilder(path, self._store)
        if checkpoint is not None:
            builder.with_reader_mode(engine.ReaderMode.CHECKPOINT(checkpoint))
        elif managed:
            builder.with_reader_mode(engine.ReaderMode.MANAGED_CHECKPOINT())
        else:
            builder.with_reader_mode(engine.ReaderMode.FOLLOW_LATEST())
        reader = await builder.build()
        try:
            rows, found = await reader.scan(_EVERYTHING), {}
            while page := await rows.next_batch(_PAGE):
                found.update({row.key.decode(): row.value.decode() for row in page})
            return {"found": found}
        finally:
            await reader.shutdown()

    async def checkpoint(self, path: str) -> dict[str, Any]:
        """Take a checkpoint that does not expire."""
        options = engine.CheckpointOptions(lifetime_ms=None, source=None, name=None)
        made = await self._admin(path).create_detached_checkpoint(options)
        return {"id": made.id, "manifest": made.manifest_id}

    async def drop(self, path: str, id: str) -> dict[str, Any]:
        """Drop a checkpoint."""
        await self._admin(path).delete_checkpoint(id)
        return {}

    async def clone(self, path: str, id: str, to: str) -> dict[str, Any]:
        """Make a database that starts as another was at a checkpoint, and refers to its files."""
        source = engine.CloneSourceSpec(path=path, checkpoint=id, projection_range=None)
        builder = self._admin(path).create_clone_builder_from_source(source)
        builder.with_clone_path(to)
        builder.with_object_store(self._store)
        await builder.build()
        return {}

    async def collect(self, path: str) -> dict[str, Any]:
        """Run the engine's own collector: metadata and log at once, data files once nobody can be writing."""
        at_once = engine.GarbageCollectorDirectoryOptions(min_age_ms=0, dry_run=False)
        later = engine.GarbageCollectorDirectoryOptions(min_age_ms=60_000, dry_run=False)
        options = engine.GarbageCollectorOptions(
            manifest_options=at_once,
            compactions_options=at_once,
            wal_options=at_once,
            compacted_options=later,
        )
        await self._admin(path).run_gc_once(options)
        return {}

    def _admin(self, path: str) -> Any:
        return engine.AdminBuilder(path, self._store).build()


def _store() -> Any:
    builder = engine.ObjectStoreBuilder(engine.ObjectStoreType.S3)
    given = {
        "access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
        "secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "region": "us-east-1",
        "endpoint": os.environ["ENGINE_ENDPOINT"],
        "bucket": os.environ["ENGINE_BUCKET"],
        "allow_http": "true",
    }
    for name, value in given.items():
        builder.with_config(name, value)
    return builder.build()


async def _answer(do: Callable[..., Awaitable[dict[str, Any]]], request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"ok": True, **await do(**request)}
    except engine.Error as error:
        reason = getattr(error, "reason", None)
        return {
            "ok": False,
            "error": type(error).__name__,
            "reason": getattr(reason, "name", ""),
            "message": str(error),
        }


async def _serve() -> None:
    served = _Engine()
    loop = asyncio.get_running_loop()
    # One request after the other; the engine's own tasks continue while the next one is waited for.
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        answer = await _answer(getattr(served, request.pop("do")), request)
        print(json.dumps(answer), flush=True)


def main() -> None:
    """Serve until stdin ends."""
    asyncio.run(_serve())


if __name__ == "__main__":
    main()
