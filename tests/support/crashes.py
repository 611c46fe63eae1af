"""Stores that answer in part, and reapers that end between two steps, for tests of replays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from xml.sax.saxutils import escape

import pytest
from tests.support.chain import Chain
from tests.support.s3_recorder import Recorded, Reply, S3Recorder

from sexton.consumers.fold import fold
from sexton.schemas import events
from sexton.schemas.errors import SextonError
from sexton.streaming_jobs.reaper import micro_batch

GONE = "gone"
PROMISE = (events.PromiseGuard("drop"),)


def promised(chain: Chain, *names: str, bucket: str = "bucket") -> events.DeletionIntent:
    """An intent that needs no generation."""
    return chain.intent("t", None, (), guards=PROMISE, action=events.DeleteObjects(bucket, (names,)))


def unchanged(chain: Chain, key: str, etag: str, *, bucket: str = "bucket") -> events.DeletionIntent:
    """An intent that only the store's condition guards."""
    guard = events.UnchangedGuard((events.KeyCondition(key, etag=etag),))
    return chain.intent("t", None, (), guards=(guard,), action=events.DeleteObjects(bucket, ((key,),)))


def partly(s3: S3Recorder, request: Recorded, errors: Mapping[str, str]) -> Reply:
    """Carry a DeleteObjects request out but for some keys, which are answered with these codes."""
    parts = []
    with s3.buckets.lock:
        bucket = s3.buckets.of(request.bucket)
        for key in request.keys:
            name = f"<Key>{escape(key)}</Key>"
            if key in errors:
                parts.append(f"<Error>{name}<Code>{errors[key]}</Code><Message>no</Message></Error>")
            else:
                bucket.delete(key, None)
                parts.append(f"<Deleted>{name}</Deleted>")
    return Reply(200, f"<DeleteResult>{''.join(parts)}</DeleteResult>".encode())


def end_before_receipts(chain: Chain, **given: Any) -> None:
    """Run a reaper that deletes, and ends before a single receipt is written."""
    # Not by a limit of the topic: Kafka's Java client splits a refused batch of several records for ever.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(micro_batch, "_LARGEST_ROW", 100)
        with pytest.raises(SextonError, match="RecordTooLarge"):
            chain.reap(**given)
    assert chain.outcomes() == []


def folded(chain: Chain, *intents: events.DeletionIntent) -> list[str]:
    """The folded word of each intent, `gone` for `deleted` and `absent`, which are equal for comparison."""
    said: list[events.Outcome | events.DeadLetter] = [*chain.outcomes(), *chain.dead_letters()]
    states = [
        fold(each.intent_id, each, [r for r in said if r.intent_id == each.intent_id]).state
        for each in intents
    ]
    return [GONE if state in ("deleted", "absent") else state for state in states]


def markers(s3: S3Recorder, bucket: str, names: Iterable[str]) -> dict[str, int]:
    """How many delete markers stand on each key."""
    return {name: sum(v.is_marker for v in s3.versions(bucket, name)) for name in names}
