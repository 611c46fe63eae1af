"""Stage 4, settle: what is written back for each record, as rows for Spark's Kafka sink.

One outcome for each intent with a final verdict, a dead letter for what could not be read, a deferred copy
for what is not yet. Rows leave only after every delete of the task is acknowledged: no receipt without its
effect. The sink has acknowledged them before offsets are committed: no effect without its receipt. A crash
in between replays the micro-batch, which writes the same words again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.events import OutcomeWord, VerdictResult
from sexton.streaming_jobs.reaper.decode import Record, Rejected
from sexton.streaming_jobs.reaper.judge import NotYet

__all__ = ["WORDS", "Row", "Settler", "key_count"]

WORDS = {
    VerdictResult.PASS: OutcomeWord.DELETED,
    VerdictResult.NEVER: OutcomeWord.STALE,
    VerdictResult.REFUSED: OutcomeWord.REFUSED,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One record to write; the fields are the columns of Spark's Kafka sink."""

    topic: str
    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes]]


class Settler:
    """Turns decisions into rows; one for each task."""

    def __init__(self, codec: Codec, prefix: str, topic_id: str, now: datetime) -> None:
        self._codec = codec
        self._prefix = prefix
        self._topic_id = topic_id
        self._now = now

    def position(self, record: Record) -> events.Position:
        """Return where a record of the intents topic stands."""
        return events.Position(self._topic_id, record.partition, record.offset)

    def outcome(
        self,
        record: Record,
        intent: events.DeletionIntent,
        verdict: events.Verdict,
        request_ids: Sequence[str] = (),
    ) -> Row:
        """Return the outcome of a final verdict; for `pass`, every key is acknowledged gone."""
        word = WORDS[verdict.result]
        keys = key_count(intent.action)
        return self._row(
            records.OUTCOMES,
            events.Outcome(
                intent_id=intent.intent_id,
                tenant=intent.tenant,
                bucket=_bucket(intent.action) or "",
                outcome=word,
                keys=keys,
                counts={word.value: keys},
                exceptions=(),
                verdict=verdict,
                position=self.position(record),
                store_request_ids=request_ids,
                settled_at=self._now,
            ),
        )

    def dead_letter(self, rejected: Rejected) -> Row:
        """Return the dead letter of a record, with its raw bytes."""
        intent = rejected.intent
        return self._row(
            records.DEAD_LETTERS,
            events.DeadLetter(
                topic=self._prefix + records.INTENTS,
                position=self.position(rejected.record),
                written_at=_instant(rejected.record),
                reason=rejected.reason,
                detail=rejected.detail,
                intent_id=intent.intent_id if intent else None,
                tenant=intent.tenant if intent else None,
                bucket=_bucket(intent.action) if intent else None,
                keys=(),
                raw_key=rejected.record.key,
                raw_value=rejected.record.value,
                dead_at=self._now,
            ),
        )

    def deferred(self, record: Record, intent: events.DeletionIntent, waiting: NotYet) -> Row:
        """Return the copy of an intent that waits: its bytes unchanged, with its first position."""
        assert record.value is not None
        event = events.DeferredIntent(
            first=self.position(record),
            first_written_at=_instant(record),
            reason=waiting.reason,
            detail=waiting.detail,
            attempt=1,
            retry_at=waiting.retry_at,
            raw_key=record.key,
            raw_value=record.value,
        )
        row = self._row(records.DEFERRED, event)
        named = [("intent-id", intent.intent_id.encode()), ("tenant", intent.tenant.encode())]
        return Row(row.topic, row.key, row.value, [*row.headers, *named])

    def _row(self, topic: str, event: events.Outcome | events.DeadLetter | events.DeferredIntent) -> Row:
        name = self._prefix + topic
        return Row(name, records.key(event), self._codec.encode(event, name), records.headers(event))


def _instant(record: Record) -> datetime:
    return datetime.fromtimestamp(record.written_at_us / 1e6, UTC)


def _bucket(action: events.Action) -> str | None:
    return None if isinstance(action, events.AdvanceHorizon) else action.bucket


def key_count(action: events.Action) -> int:
    """Return how many keys an action names."""
    return sum(map(len, action.phases)) if isinstance(action, events.DeleteObjects) else 0
