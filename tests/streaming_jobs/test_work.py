"""How a task takes its records in: in pieces, and with few questions to the issuer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark import TaskContext
from tests.support.execute_stage import Store
from tests.support.task_work import FIRST, NOW, TOPIC_ID, Issuer, promised, work_of

from sexton.issuer.client import Subject, Validation
from sexton.schemas import events
from sexton.schemas.codec import Codec
from sexton.schemas.errors import EnvironmentFault
from sexton.schemas.records import OUTCOMES
from sexton.schemas.settings import load
from sexton.schemas.windows import Window
from sexton.storage import Versioning
from sexton.streaming_jobs.reaper import work as work_module
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.decode import Record
from sexton.streaming_jobs.reaper.guards import asking
from sexton.streaming_jobs.reaper.guards.asking import Questions
from sexton.streaming_jobs.reaper.plan import TaskPlan
from sexton.streaming_jobs.reaper.work import Work, open_work, pieces, settle, take


def records(count: int, tenants: int, names: int = 1) -> list[Record]:
    """Intents of so many tenants in turns, each with so many keys."""
    codec = Codec()
    found = []
    for number in range(count):
        tenant = f"tenant-{number % tenants:05d}"
        intent = events.DeletionIntent(
            f"intent-{number:06d}",
            tenant,
            NOW,
            "test",
            (events.GenerationGuard(tenant, 1),),
            events.DeleteObjects("bucket", (tuple(f"key-{n:035d}" for n in range(names)),)),
        )
        found.append(Record(0, number, 0, None, codec.encode(intent)))
    return found


def test_pieces_keep_every_record_in_order() -> None:
    """Nothing is lost, records without a value too; a piece ends with the record that fills it."""
    values = [b"x" * 100_000, None, b"x" * 300_000, b"", b"x" * 200_000, b"x" * 100_000, None]
    batch = [Record(0, number, 0, None, value) for number, value in enumerate(values)]

    found = list(pieces(iter(batch)))

    assert [record for piece in found for record in piece] == batch
    assert [len(piece) for piece in found] == [3, 3, 1]
    assert list(pieces(iter(()))) == []


def test_only_what_lies_below_the_barrier_is_judged() -> None:
    """J-12: a record, or a first position, at the barrier's end or in a partition that it lacks is held."""
    intent = records(1, 1)[0].value
    assert intent is not None

    def of_intents(partition: int, offset: int) -> tuple[Work, Record]:
        return work_of(Issuer(), ends=(3, 2)), Record(partition, offset, 0, None, intent)

    def of_copies(partition: int, offset: int) -> tuple[Work, Record]:
        first = events.Position(TOPIC_ID, partition, offset)
        copy = events.DeferredIntent(first, NOW, "held", "", 1, None, None, intent)
        work = work_of(Issuer(), ends=(3, 2), topic="deferred", deferred_topic_id="d" * 22)
        return work, Record(0, 10**6, 0, None, Codec().encode(copy))

    for made in (of_intents, of_copies):
        for partition, offset in ((0, 2), (1, 1)):
            work, record = made(partition, offset)
            take(work, [record])
            assert len(settle(work)) == 1
        for partition, offset in ((0, 3), (1, 2), (1, 9), (2, 0)):
            work, record = made(partition, offset)
            with pytest.raises(EnvironmentFault, match=f"partition={partition} offset={offset}"):
                take(work, [record])


class Elsewhere(Issuer):
    """Judges another intents topic, and remembers how old its answers may be."""

    def __init__(self) -> None:
        super().__init__()
        self.at_least: list[int] = []

    def validate(self, asked: list[Subject], *, at_least: int) -> Validation:
        """Answer for the other topic."""
        self.at_least.append(at_least)
        return Validation(at_least, "o" * 22, dict.fromkeys(asked))


def test_only_windows_of_this_topic_as_of_the_barrier_judge() -> None:
    """J-2, J-13: the issuer answers as of the barrier at least; of another topic its answer says nothing."""
    issuer = Elsewhere()
    work = work_of(issuer)
    take(work, records(1, 1))

    with pytest.raises(EnvironmentFault, match="another intents topic: ooo"):
        settle(work)

    assert issuer.at_least == [work.execute.plan.log_offset]


class Remembering(Issuer):
    """An issuer that has forgotten each second window."""

    def validate(self, asked: list[Subject], *, at_least: int) -> Validation:
        """Answer for at most two subjects."""
        assert len(asked) <= 2
        windows = {each: None if each.generation % 2 else Window(each.generation, None) for each in asked}
        forgotten = {each: 90 + each.generation for each in asked if each.generation % 2}
        return Validation(at_least, TOPIC_ID, windows, forgotten=forgotten)


def test_every_call_of_a_question_adds_to_the_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each subject is asked for in one of several calls, and what is said of it is a fact, then and later."""
    monkeypatch.setattr(asking, "SUBJECTS_PER_CALL", 2)
    questions, counts = Questions(Remembering(), TOPIC_ID, 7), Counts()  # type: ignore[arg-type]
    subjects = [Subject("t", number, 0) for number in range(5)]

    assert questions.note(subjects[:4])
    questions.ask(counts)
    assert not questions.note(subjects[:4])
    assert questions.note(subjects)
    questions.ask(counts)
    facts = questions.facts(NOW)

    assert (facts.topic_id, facts.log_offset, facts.now) == (TOPIC_ID, 7, NOW)
    assert facts.windows == {each: None if n % 2 else Window(n, None) for n, each in enumerate(subjects)}
    assert facts.forgotten == {subjects[1]: 91, subjects[3]: 93}
    assert (counts.issuer_calls, counts.subjects) == (3, 5)


def test_the_first_question_goes_once_it_keeps_the_store_busy() -> None:
    """Where each intent is another tenant's the first ones do not wait for thousands that follow."""
    issuer = Issuer()
    work = work_of(issuer)

    take(work, iter(records(3_000, 3_000, names=100)))

    assert len(issuer.asked) == 1
    assert issuer.asked[0] < 300
    assert len(settle(work)) == 3_000
    assert sum(issuer.asked) == 3_000
    assert len(issuer.asked) == 2


@pytest.mark.parametrize("tenants", [1, 500, 20_000])
@pytest.mark.slow
def test_questions_are_few(tenants: int) -> None:
    """Each subject is asked for once; where tenants repeat the first question goes early, and few follow."""
    issuer = Issuer()
    work = work_of(issuer)
    given = records(20_000, tenants)
    take(work, iter(given[:2_000]))
    early = list(issuer.asked)
    for start in range(2_000, 20_000, 2_000):
        take(work, iter(given[start : start + 2_000]))

    rows = settle(work)

    assert sum(issuer.asked) == tenants
    assert len(issuer.asked) <= max(3, tenants // 10_000)
    assert bool(early) == (tenants <= 500)
    assert len(rows) == len(given)
    assert work.counts.intents == {"stale": len(given)}


@pytest.mark.parametrize("topic", ["intents", "deferred"])
@pytest.mark.parametrize(
    ("partition", "offset", "below"),
    [(0, 4, True), (0, 5, False), (1, 0, True), (1, 1, False), (2, 0, False)],
)
def test_what_the_barrier_does_not_cover_is_never_judged(
    topic: str, partition: int, offset: int, below: bool
) -> None:
    """I4: at or above its end, or in a partition that it does not know: held, of a waiting intent too."""
    work = work_of(Issuer(), topic=topic, ends=(5, 1))
    (given,) = records(1, 1)
    record = replace(given, partition=partition, offset=offset)
    if topic == "deferred":
        first = events.Position(TOPIC_ID, partition, offset)
        copy = events.DeferredIntent(first, NOW, "r", "", 1, None, None, given.value or b"")
        record = replace(given, value=Codec().encode(copy))

    if below:
        take(work, [record])
        assert len(settle(work)) == 1
    else:
        with pytest.raises(
            EnvironmentFault, match=f"below its barrier: partition={partition} offset={offset}"
        ):
            take(work, [record])


@pytest.mark.parametrize("attempt", [0, 1, 2])
def test_a_task_that_spark_runs_again_looks_before_it_sends(
    attempt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's number of the attempt tells that everything may have been sent; no second marker is made."""
    keys, settings = ("gone", "left"), load({})
    store = Store({"bucket": {"left"}}, versioning=Versioning.ON)
    monkeypatch.setattr(work_module, "open_executor", lambda plan: work_of(Issuer(), store).execute.executor)
    monkeypatch.setattr(TaskContext, "_taskContext", None)  # also put back at the end
    TaskContext(attemptNumber=attempt)  # type: ignore[arg-type]  # as Spark's worker gives it
    work = open_work(TaskPlan(settings, TOPIC_ID, 7, (99,)))

    take(work, [Record(0, FIRST.offset, 0, b"tenant", promised(events.DeleteObjects("bucket", (keys,))))])
    (row,) = settle(work)

    sent = [key for _, items in store.sent for key in items]
    assert row.topic == settings.topic(OUTCOMES)
    assert (store.verified, sent) == (([], [*keys]) if attempt == 0 else ([*keys], ["left"]))
