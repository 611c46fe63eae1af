"""P-1: whatever a stage raises for one record ends that record, and harms no neighbour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.execute_stage import Store, Versioned
from tests.support.task_work import COPY_OFFSET, FIRST, NOW, Issuer, copied, promised, work_of

from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.errors import EnvironmentFault
from sexton.streaming_jobs.reaper import decode, judge
from sexton.streaming_jobs.reaper.actions.delete_objects.execution import ObjectsExecution
from sexton.streaming_jobs.reaper.decode import Record
from sexton.streaming_jobs.reaper.execute.stage import ExecuteStage
from sexton.streaming_jobs.reaper.settle import Row, SettleStage
from sexton.streaming_jobs.reaper.work import Work, settle, take

ODD = "odd"
Fail = Callable[[pytest.MonkeyPatch, BaseException], None]


def wrapped(owner: Any, name: str, is_odd: Callable[..., bool]) -> Fail:
    """Let a function fail for the odd one."""

    def fail(patch: pytest.MonkeyPatch, error: BaseException) -> None:
        given = getattr(owner, name)

        def either(*args: Any, **named: Any) -> Any:
            if is_odd(*args):
                raise error
            return given(*args, **named)

        patch.setattr(owner, name, either)

    return fail


def of_execution(execution: ObjectsExecution, *rest: Any) -> bool:
    """Whether an execution is the odd one's."""
    return ODD in execution.action.keys


STEPS: dict[str, Fail] = {
    "decode": wrapped(decode, "check_form", lambda intent: ODD in intent.action.keys),
    "subjects": wrapped(judge, "subjects", lambda intent, partition: ODD in intent.action.keys),
    "judge": wrapped(judge, "judge", lambda intent, *rest: ODD in intent.action.keys),
    "begin": wrapped(ExecuteStage, "_begin", lambda stage, judged: ODD in judged.decoded.intent.action.keys),
    "start": wrapped(ObjectsExecution, "start", of_execution),
    "proceed": wrapped(ObjectsExecution, "proceed", of_execution),
    "result": wrapped(ObjectsExecution, "result", of_execution),
    "settle": wrapped(
        SettleStage, "outcome", lambda stage, decoded, *rest: ODD in decoded.intent.action.keys
    ),
}


def processed(work: Work, *values: bytes) -> list[Row]:
    """The rows of some records."""
    take(work, [Record(0, FIRST.offset + n, 0, b"tenant", value) for n, value in enumerate(values)])
    return settle(work)


def intent(*phases: tuple[str, ...]) -> bytes:
    """An intent that its owner's promise lets pass."""
    return promised(events.DeleteObjects("bucket", phases))


@pytest.mark.parametrize("step", STEPS)
def test_p_1_what_a_stage_raises_for_one_record_is_its_dead_letter(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-1: `internal`, with the raw bytes, counted; intents before and behind it get their receipts."""
    STEPS[step](monkeypatch, TypeError("an int is no instant"))
    store = Store(objects={"bucket": {"a", ODD, "later", "z"}})
    values = [intent(("a",)), intent((ODD,), ("later",)), intent(("z",))]
    work = work_of(Issuer(), store)

    rows = processed(work, *values)

    (letter,) = [
        Codec().decode(row.value, events.DeadLetter) for row in rows if row.topic == records.DEAD_LETTERS
    ]
    outcomes = [Codec().decode(row.value, events.Outcome) for row in rows if row.topic == records.OUTCOMES]
    assert (letter.reason, letter.raw_value, letter.raw_key) == ("internal", values[1], b"tenant")
    assert letter.position == replace(FIRST, offset=FIRST.offset + 1)
    assert "TypeError: an int is no instant" in letter.detail
    assert {(each.outcome, each.position.offset - FIRST.offset) for each in outcomes} == {
        (events.OutcomeKind.DELETED, 0),
        (events.OutcomeKind.DELETED, 2),
    }
    assert store.objects["bucket"].isdisjoint({"a", "z"})
    assert work.counts.internal == 1
    assert work.counts.intents == {"deleted": 2, "dead-lettered": 1}
    assert "later" in store.objects["bucket"] or step in ("result", "settle")


@pytest.mark.parametrize("error", [EnvironmentFault("away"), MemoryError(), OSError("no space left")])
@pytest.mark.parametrize("step", STEPS)
def test_p_1_what_is_about_everything_holds_everything(
    step: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-1: a fault of the environment, or of the machine, is nobody's dead letter."""
    STEPS[step](monkeypatch, error)
    work = work_of(Issuer(), Store(objects={"bucket": {ODD, "later"}}))

    with pytest.raises(type(error)):
        processed(work, intent((ODD,), ("later",)))


def test_p_1_a_copy_that_breaks_keeps_where_it_first_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-1: of an intent that waited the dead letter has its own bytes and first position."""
    STEPS["judge"](monkeypatch, TypeError("no instant"))
    value = intent((ODD,))
    work = work_of(Issuer(), Store(), topic=records.DEFERRED, deferred_topic_id="d" * 22)

    take(work, [Record(0, COPY_OFFSET, 0, None, Codec().encode(copied(value)))])
    (row,) = settle(work)

    letter = Codec().decode(row.value, events.DeadLetter)
    assert (letter.reason, letter.raw_value, letter.position) == ("internal", value, FIRST)
    assert letter.dead_at == NOW


def test_p_1_a_bucket_that_answers_late_finds_the_broken_one_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-1: an intent that breaks when its bucket's answer is in holds up none that waited with it."""
    STEPS["start"](monkeypatch, KeyError("no such mode"))
    store = Versioned(objects={"bucket": {"a", ODD}})
    work = work_of(Issuer(), store)

    rows = processed(work, intent(("a",)), intent((ODD,)))

    assert sorted(row.topic for row in rows) == [records.DEAD_LETTERS, records.OUTCOMES]
    assert store.objects["bucket"] == {ODD}
