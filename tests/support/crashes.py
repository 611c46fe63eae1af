"""Reapers that end between two steps, and what a replay may leave behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.support.chain import Chain
from tests.support.s3_recorder import S3Recorder

from sexton.schemas.errors import SextonError
from sexton.streaming_jobs.reaper import batch as micro_batch
from sexton.streaming_jobs.reaper.recovery.offsets import Offsets
from sexton.streaming_jobs.reaper.recovery.said import Said


def end_before_receipts(chain: Chain, **given: Any) -> None:
    """Run a reaper that deletes, and ends before a single receipt is written."""
    # Not by a limit of the topic: Kafka's Java client splits a refused batch of several records for ever.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(micro_batch, "_LARGEST_ROW", 100)
        with pytest.raises(SextonError, match="RecordTooLarge"):
            chain.reap(**given)
    assert chain.outcomes() == []


@contextmanager
def without_a_look_back() -> Iterator[None]:
    """Let reapers do again what was written back already, as a task does that Spark runs once more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Said, "settled", lambda self: (Offsets(), Offsets(), {}))
        yield


def markers(s3: S3Recorder, bucket: str, names: Iterable[str]) -> dict[str, int]:
    """How many delete markers stand on each key."""
    return {name: sum(v.is_marker for v in s3.versions(bucket, name)) for name in names}
