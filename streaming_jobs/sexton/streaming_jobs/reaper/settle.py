"""Stage 4, settle: what is written back for each record, as rows for Spark's Kafka sink.

One outcome for each intent with a final outcome, a dead letter for what could not be read and for keys that
cannot be deleted, a deferred copy for what waits. Rows leave only after every delete of the task has its
answer: no receipt without its effect. The sink has acknowledged them before offsets are committed: no effect
without its receipt. A crash in between replays the micro-batch, which writes outcomes of the same rank again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.events import OutcomeKind
from sexton.schemas.intents import MAX_INTENT_BYTES
from sexton.schemas.outcomes import worst
from sexton.streaming_jobs.reaper.actions.delete_prefix.progress import PrefixProgress, progress_of
from sexton.streaming_jobs.reaper.broken import INTERNAL, Broken, alone
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.decode import Decoded, Record, Rejected, position_of
from sexton.streaming_jobs.reaper.deferred.delay_levels import level_of
from sexton.streaming_jobs.reaper.execute.outcomes import EARLIER_PHASE, SLOW_BUCKET
from sexton.streaming_jobs.reaper.execute.result import Result
from sexton.streaming_jobs.reaper.execute.stage import UNTRIED, Executed
from sexton.streaming_jobs.reaper.judge import Judged, NotYet
from sexton.streaming_jobs.reaper.vetoes import Stop

__all__ = ["Row", "SettleStage", "kind_of"]

_BEGUN_BEFORE = "it was begun before, and what became of its keys then is not known"
_LONGEST_DETAIL = 500
_KEPT_OF_TOO_LARGE = 256 * 1024
_MOST_DETAILS = (
    1000  # of the keys after these the outcome alone is reported: an outcome has to fit into a record
)


@dataclass(frozen=True, slots=True)
class Row:
    """One record to write; the fields are the columns of Spark's Kafka sink."""

    topic: str
    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes]]
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class SettleStage:
    """The last stage of one task: decisions become rows. `delays` are the levels' in seconds.

    `deferred_topic_id` is that of the topic that is read, empty when it is the intents topic.
    """

    codec: Codec
    prefix: str
    topic_id: str
    deferred_topic_id: str
    delays: Sequence[float]
    now: datetime
    counts: Counts

    def rows(self, rejected: Iterable[Rejected], executed: Iterable[Executed]) -> list[Row]:
        """Return what is written back for every record, and count what each came to."""
        with self.counts.stage("settle"):
            rows = [self._end(record) for record in rejected]
            for each in executed:
                rows += [self._broken(each.judged, each.broken)] if each.broken else self._settled(each)
            return rows

    def _end(self, rejected: Rejected) -> Row:
        self.counts.add(OutcomeKind.DEAD_LETTERED.value)
        self.counts.internal += rejected.reason == INTERNAL
        return self.rejected(rejected)

    def _broken(self, judged: Judged, broken: Broken) -> Row:
        """Return the dead letter of an intent for which a stage has failed: the record that it came in."""
        self.counts.add(OutcomeKind.DEAD_LETTERED.value)
        self.counts.internal += 1
        return self._dead(judged.decoded, INTERNAL, broken.detail, (), judged.passed_as_of)

    def _settled(self, executed: Executed) -> list[Row]:
        found = alone("settle", partial(self._rows_of, executed))
        if isinstance(found, Broken):
            return [self._broken(executed.judged, found)]
        state, keys, rows = found
        self.counts.settled(state, keys)
        return rows

    def _rows_of(self, executed: Executed) -> tuple[str, Mapping[str, int], list[Row]]:
        """Return the state that an intent is in now, its keys by state, and what is written of it."""
        decoded, result, verdict = executed.judged.decoded, executed.result, executed.judged.judgement
        assert not isinstance(verdict, Broken)
        deferred = {records.DEFERRED: decoded.intent.action.key_count}
        if isinstance(verdict, NotYet):
            return records.DEFERRED, deferred, [self.waits(decoded, verdict)]
        if result is None:
            kind = UNTRIED[verdict.result]
            if executed.begun_before:
                verdict = replace(verdict, detail=f"{verdict.detail}; {_BEGUN_BEFORE}")
            rows = [self.outcome(decoded, verdict, None)]
            return kind.value, {kind.value: decoded.intent.action.key_count}, rows
        if result.continues:
            return records.DEFERRED, {}, [self.continues(decoded, result)]
        if result.held is not None:
            return records.DEFERRED, deferred, [self.held(decoded, result)]
        if isinstance(result.gated, Stop):
            verdict = _stopped(verdict, result.gated)
        if result.note:
            verdict = replace(verdict, detail=f"{verdict.detail}; {result.note}")
        dead = self.dead_letter(decoded, result, executed.judged.passed_as_of)
        outcome = self.outcome(decoded, verdict, result)
        by_kind = {kind.value: number for kind, number in result.counts.items()}
        return kind_of(result).value, by_kind, [outcome] if dead is None else [dead, outcome]

    def outcome(self, decoded: Decoded, verdict: events.Verdict, result: Result | None) -> Row:
        """Return the outcome of an intent with its final outcome; `result` is None unless it was executed."""
        intent = decoded.intent
        if result is None:
            kind = UNTRIED[verdict.result]
            counts, named = Counter({kind: intent.action.key_count}), []
        else:
            counts, kind = result.counts, kind_of(result)
            named = _exceptions(result, kind) if result.named else []
        return self._row(
            records.OUTCOMES,
            events.Outcome(
                intent_id=intent.intent_id,
                tenant=intent.tenant,
                bucket=intent.action.place or "",
                outcome=kind,
                keys=counts.total(),
                counts={each.value: number for each, number in counts.items() if number},
                exceptions=named,
                verdict=verdict,
                position=position_of(decoded, self.topic_id),
                store_request_ids=result.request_ids if result else (),
                settled_at=self.now,
                effects=dict(result.effects) if result else {},
            ),
        )

    def rejected(self, rejected: Rejected) -> Row:
        """Return the dead letter of a record that can never be processed, with its raw bytes."""
        in_deferred = rejected.waited is None
        return self._dead(rejected, rejected.reason, rejected.detail, (), deferred_record=in_deferred)

    def dead_letter(self, decoded: Decoded, result: Result, passed_as_of: int | None) -> Row | None:
        """Return the dead letter that names the keys which failed, None when none did."""
        failed = [named for named in result.named if named[1].kind is OutcomeKind.DEAD_LETTERED]
        if not failed:
            return None
        # What was never sent has failed for the reason of another key: that one says what is to be mended.
        causes = [outcome.reason for _, outcome in failed if outcome.reason != EARLIER_PHASE]
        reasons = Counter(causes or [EARLIER_PHASE])
        reason = reasons.most_common(1)[0][0]
        detail = next(outcome.detail for _, outcome in failed if outcome.reason == reason)
        keys = [key for key, _ in failed]
        return self._dead(decoded, reason, detail[:_LONGEST_DETAIL], keys, passed_as_of)

    def waits(self, decoded: Decoded, why: NotYet) -> Row:
        """Return the copy of an intent whose guards cannot be judged yet."""
        waited = decoded.waited
        attempt = waited.attempt + 1 if waited else 1
        return self._deferred(
            decoded,
            why.reason,
            why.detail,
            attempt,
            retry_at=why.retry_at,
            unknown=waited.effect_unknown if waited else False,
            keys=waited.keys if waited else None,
            resumes_at=waited.resumes_at if waited else None,
        )

    def held(self, decoded: Decoded, result: Result) -> Row:
        """Return the copy of an intent that its bucket held; its age counts from the first time."""
        assert result.held is not None
        waited, waits = decoded.waited, result.waits
        slow = result.held.reason == SLOW_BUCKET  # it continues as it can: no delay grows, nothing grows old
        again = waited is not None and (waited.waiting_since is not None or waits is not None) and not slow
        attempt = waited.attempt + 1 if waited and again else 1
        # What a phase hangs on is no trouble of its bucket's either.
        ages = not slow and waits is None
        since = (waited.waiting_since if waited and waited.waiting_since else self.now) if ages else None
        return self._deferred(
            decoded,
            result.held.reason or "held",
            result.held.detail[:_LONGEST_DETAIL],
            attempt,
            retry_at=waits.retry_at if waits else None,
            since=since,
            unknown=result.unknown or (waited is not None and waited.effect_unknown),
            progress=result.progress,
            keys=result.keys,
            resumes_at=result.resumes_at,
        )

    def continues(self, decoded: Decoded, result: Result) -> Row:
        """Return the copy of a prefix delete that is done in slices, with what is gone so far."""
        progress = result.progress
        assert progress is not None
        detail = f"{progress.gone} objects are gone, the rest continues"
        return self._deferred(decoded, "slice", detail, 1, progress=progress)

    def _deferred(
        self,
        decoded: Decoded,
        reason: str,
        detail: str,
        attempt: int,
        *,
        retry_at: datetime | None = None,
        since: datetime | None = None,
        unknown: bool = False,
        progress: PrefixProgress | None = None,
        keys: events.KeyProgress | None = None,
        resumes_at: datetime | None = None,
    ) -> Row:
        record, intent, waited = decoded.record, decoded.intent, decoded.waited
        assert record.value is not None
        if progress is None:
            progress = progress_of(waited)
        level = level_of(self.delays, attempt, self.now, retry_at)
        event = events.DeferredIntent(
            first=position_of(decoded, self.topic_id),
            first_written_at=waited.first_written_at if waited else _instant(record),
            reason=reason,
            detail=detail,
            attempt=attempt,
            retry_at=retry_at,
            raw_key=record.key,
            raw_value=record.value,
            waiting_since=since,
            effect_unknown=unknown,
            gone=progress.gone,
            after=progress.after,
            keys=keys,
            resumes_at=resumes_at,
            written_before=progress.written_before,
            passed_as_of=waited.passed_as_of if waited else None,
        )
        row = self._row(records.DEFERRED, event)
        named = [("intent-id", intent.intent_id.encode()), ("tenant", intent.tenant.encode())]
        return Row(row.topic, row.key, row.value, [*row.headers, *named], level)

    def _dead(
        self,
        decoded: Decoded | Rejected,
        reason: str,
        detail: str,
        keys: Sequence[str],
        passed_as_of: int | None = None,
        *,
        deferred_record: bool = False,
    ) -> Row:
        record, intent = decoded.record, decoded.intent
        in_deferred = deferred_record and self.deferred_topic_id != ""
        position = position_of(decoded, self.topic_id)
        if in_deferred:
            position = events.Position(self.deferred_topic_id, record.partition, record.offset)
        waited = decoded.waited
        first_pass = waited.passed_as_of if waited else None
        return self._row(
            records.DEAD_LETTERS,
            events.DeadLetter(
                topic=self.prefix + (records.DEFERRED if in_deferred else records.INTENTS),
                position=position,
                written_at=waited.first_written_at if waited else _instant(record),
                reason=reason,
                detail=detail,
                intent_id=intent.intent_id if intent else None,
                tenant=intent.tenant if intent else None,
                bucket=intent.action.place if intent else None,
                keys=keys,
                raw_key=_kept(record, record.key),
                raw_value=_kept(record, record.value),
                dead_at=self.now,
                # The first pass is kept: later ones may rest on it, where the log has forgotten.
                passed_as_of=first_pass if first_pass is not None else passed_as_of,
            ),
        )

    def _row(self, topic: str, event: events.Outcome | events.DeadLetter | events.DeferredIntent) -> Row:
        name = self.prefix + topic
        return Row(name, records.key(event), self.codec.encode(event, name), records.headers(event))


def _stopped(verdict: events.Verdict, stop: Stop) -> events.Verdict:
    """Return the verdict on an intent whose guards hold and of which nothing more was sent."""
    refused = stop.kind is OutcomeKind.REFUSED
    found = events.VerdictResult.REFUSED if refused else verdict.result
    return replace(verdict, result=found, reason=stop.reason, detail=stop.detail)


def kind_of(result: Result) -> OutcomeKind:
    """Return the outcome of an intent's worst key; `absent` for a prefix under which nothing was."""
    return worst(kind for kind, number in result.counts.items() if number) or OutcomeKind.ABSENT


def _exceptions(result: Result, kind: OutcomeKind) -> list[events.KeyOutcome]:
    """Return the keys that an outcome names; `kind` is that of the worst key."""
    counts = result.counts
    # Keys that nobody names are plainly deleted; where all are named the most common outcome needs none.
    unnamed = counts.total() > len(result.named)
    common = OutcomeKind.DELETED if unnamed else max(counts, key=lambda each: counts[each], default=kind)
    return [
        events.KeyOutcome(key, outcome.kind, outcome.detail[:_LONGEST_DETAIL] if n < _MOST_DETAILS else "")
        for n, (key, outcome) in enumerate(result.named)
        if outcome.kind is not None
        # Of a refused key the reason stands nowhere else (a lock: until when).
        and (outcome.kind is not common or (outcome.kind is OutcomeKind.REFUSED and n < _MOST_DETAILS))
    ]


def _kept(record: Record, raw: bytes | None) -> bytes | None:
    """Return the bytes; of a record that is far too large their beginning, as its dead letter has to fit."""
    return raw if raw is None or record.size <= 2 * MAX_INTENT_BYTES else raw[:_KEPT_OF_TOO_LARGE]


def _instant(record: Record) -> datetime:
    return datetime.fromtimestamp(record.written_at_us / 1e6, UTC)
