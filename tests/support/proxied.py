"""A strict store behind the proxy that plays faults: what is in it, and what its clients are reported."""

from __future__ import annotations

from tests.support.s3_recorder import S3Recorder

from sexton.storage import BatchDeleter, BatchResult, KeyState

BUCKET = "bucket"


def kinds(result: BatchResult) -> list[str]:
    """The kind of each key's state, in order."""
    return [str(state.kind) for state in states(result)]


def states(result: BatchResult) -> list[KeyState]:
    """The state of each key, in order."""
    return [result.state(index) for index in range(result.count)]


def put(strict: S3Recorder, *keys: str) -> None:
    """Put objects into the strict store."""
    strict.buckets.fill(BUCKET, dict.fromkeys(keys, b"data"))


def delete(deleter: BatchDeleter, *keys: str) -> BatchResult:
    """Delete keys in one batch."""
    return deleter.delete_all(BUCKET, list(keys)).result(30)
