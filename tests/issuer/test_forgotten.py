"""What is reported of generations whose windows are forgotten: by the state, on the wire, to older
clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from tests.support.issuing import Case
from tests.support.logs import GENESIS, NOW, mixed_logs

from sexton.issuer.client import Registration
from sexton.issuer.state.fold import State, Valid, apply
from sexton.issuer.state.state import Numbered
from sexton.issuer.subjects.generation import Answer, Gathered, Subject
from sexton.schemas import events
from sexton.schemas.events import Grant, ImportedNode, ImportedTenant, IssueOperation, PartitionOffsets
from sexton.schemas.windows import Window

FINAL, FIRST = events.GenerationForm.FINAL, events.GenerationForm.FIRST
GUARDS = [(None, None), ("n1", None), (None, 1), *product(("n1", "n2", "n3", "n9"), (-1, 0, 1, 2, 5, 6, 7))]
TENANTS = ("a", "b", "ü ☃", "d", "e")


def fold(*log: events.GenerationEvent) -> State:
    """Fold Genesis and these events, each of which is valid."""
    state = State()
    for offset, event in enumerate((GENESIS, *log)):
        assert isinstance(apply(state, offset, event), Valid), event
    return state


def issued(generation: int, *ends: int) -> events.Issued:
    """The next generation of the tenant "t"."""
    grants = [Grant("t", generation, generation - 1 or None)]
    at = PartitionOffsets("intents", list(ends))
    return events.Issued(f"r{generation}", "c", IssueOperation.ATTACH, "n", 0, 1, grants, at, NOW)


def imported(generation: int | None, *ends: int) -> events.Imported:
    """The tenant "t" from elsewhere."""
    at = PartitionOffsets("intents", list(ends))
    return events.Imported("i", "c", 0, 1, [ImportedTenant("t", FINAL, generation, None)], [], at, NOW)


def settled(*ends: int) -> events.Barrier:
    """A barrier that calls everything settled."""
    at = PartitionOffsets("intents", list(ends))
    return events.Barrier("b", at, at, NOW)


def ended(state: State, numbers: Sequence[int], partition: int = 0) -> list[int | None]:
    """Where forgotten windows of "t" ended at the latest."""
    tenant = state.tenant("t")
    assert tenant is not None
    return [tenant.forgotten_until(number, partition) for number in numbers]


def test_every_forgotten_number_ended_where_the_oldest_window_begins() -> None:
    """Forgotten numbers have that offset, in each partition; 0, kept and future numbers have none."""
    state = fold(issued(1, 0, 0), issued(2, 3, 1), issued(3, 7, 2), settled(9, 9))

    assert ended(state, (-1, 0, 1, 2, 3, 4)) == [None, None, 7, 7, None, None]
    assert ended(state, (1, 2), partition=1) == [2, 2]
    assert ended(state, (1, 2), partition=-1) == [None, None]


def test_a_partition_that_was_added_later_holds_nothing_of_forgotten_numbers() -> None:
    """All that stands in it was written after they had ended."""
    state = fold(issued(1, 0), issued(2, 3), settled(9, 5))

    assert ended(state, (1, 2), partition=1) == [0, None]


def test_nothing_is_told_while_nothing_is_forgotten() -> None:
    """A tenant with all its windows, and one that never had a number, have nothing forgotten."""
    assert ended(fold(issued(1, 0), issued(2, 3)), range(4)) == [None] * 4
    assert ended(fold(events.Dropped("d", "c", "t", NOW)), range(4)) == [None] * 4


@pytest.mark.parametrize(
    ("generation", "due"),
    [(7, [None, 4, 4, None, None]), (0, [None] * 5), (None, [None] * 5)],
)
def test_an_import_ends_the_numbers_below_its_own(generation: int | None, due: list[int | None]) -> None:
    """What the importing installation had used before is over; 0 and no number at all are not told apart."""
    assert ended(fold(imported(generation, 4)), (0, 1, 6, 7, 8)) == due


def test_no_number_zero_after_an_import() -> None:
    """After the cut an import without a generation looks like one at 0: there may never have been a 0."""
    without = fold(imported(None, 4), issued(1, 5), issued(2, 6), settled(9))
    assert ended(without, (0, 1, 2)) == [None, 6, None]


def reported(state: State, subject: Subject, offset: int) -> str:
    """What is reported of an intent with this guard, by the rules of `Gathered`."""
    tenant = state.tenant(subject.tenant)
    if tenant is None:
        return "unknown"
    gathered = Gathered()
    parts = (subject.generation, subject.partition, subject.node, subject.node_generation)
    gathered.put(subject, *state.windows(tenant, *parts), *state.forgotten(tenant, *parts))
    window, until = gathered.windows[subject], gathered.forgotten.get(subject)
    if window is None:
        return "never-issued" if until is None or offset < until else "superseded"
    assert until is None
    return "pass" if window.covers(offset) else "early" if offset < window.start else "superseded"


def subjects() -> Iterator[Subject]:
    """Every guard that may be written, in partitions that are there, came later, and are not there."""
    for tenant, generation, guard, partition in product(
        TENANTS, (-1, 0, 1, 2, 3, 7, 8, 9), GUARDS, (0, 1, 2)
    ):
        yield Subject(tenant, generation, partition, *guard)


def never_handed_out(state: State, subject: Subject) -> bool:
    """Whether the guard names a number that there never was, or lacks what the tenant's form wants."""
    tenant = state.tenant(subject.tenant)
    assert tenant is not None
    if _was_never(tenant, subject.generation):
        return True
    if tenant.form is FINAL:
        return subject.node is not None or subject.node_generation is not None
    node = state.node(subject.node) if subject.node is not None else None
    return node is None or subject.node_generation is None or _was_never(node, subject.node_generation)


def _was_never(owner: Numbered, number: int) -> bool:
    """Above the newest; or below 1, unless it was imported and its window is there."""
    return number > (owner.newest or 0) or number < min(1, owner.first)


@settings(max_examples=60)
@given(mixed_logs())
@pytest.mark.slow
def test_cut_and_whole_history_tell_the_same(log: list[events.GenerationEvent]) -> None:
    """Both forms, imports, detach, drop, fences: the cut state says what the whole one does, or less.

    Only who held a forgotten generation is not known: of a pair that never was, the cut state says that the
    generation was superseded, which is so.
    """
    whole = [
        events.Barrier(e.request_id, e.ends, None, NOW) if isinstance(e, events.Barrier) else e for e in log
    ]
    cut, uncut = State(), State()
    for offset, (one, other) in enumerate(zip(log, whole, strict=True)):
        assert apply(cut, offset, one) == apply(uncut, offset, other)
    low = [*cut.cuts.floor, 0, 0, 0]
    ends = [*cut.high, 0, 0, 0]
    for subject in (each for each in subjects() if cut.known(each.tenant)):
        partition = subject.partition
        for offset in {0, low[partition], low[partition] // 2, ends[partition] - 1, ends[partition]}:
            due, found = reported(uncut, subject, offset), reported(cut, subject, offset)
            if found == "superseded":
                assert not never_handed_out(cut, subject)
                assert due == "superseded" or (due == "never-issued" and subject.node is not None)
            elif offset >= low[partition] and subject.generation >= 1 and subject.node_generation != 0:
                assert found == due or (due, found) == ("early", "never-issued")
            else:
                assert found in (due, "never-issued")


# --- the wire -----------------------------------------------------------------------------------------------

KEPT = b'{"tenant":"t","generation":2,"partition":0,"newest":false,"from":3,"until":7}'
NEVER = b'{"tenant":"t","generation":9,"partition":0,"newest":false}'
FORGOTTEN = b'{"tenant":"t","generation":1,"partition":0,"newest":false,"until":3}'
NODE_FORGOTTEN = (
    b'{"tenant":"f","generation":4,"partition":0,"newest":true,"from":9,'
    b'"node":"n","node_generation":1,"node_until":5}'
)
ASKED = [
    Subject("t", 2, 0),
    Subject("t", 9, 0),
    Subject("t", 1, 0),
    Subject("f", 4, 0, "n", 1),
]
GOLDEN = (KEPT, NEVER, FORGOTTEN, NODE_FORGOTTEN)


def test_answers_as_they_go_over_the_wire() -> None:
    """The text of each kind of answer."""
    node = Answer("f", 4, 0, True, 9, node="n", node_generation=1, node_until=5)
    answers = [
        Answer("t", 2, 0, False, 3, 7),
        Answer("t", 9, 0, False),
        Answer("t", 1, 0, False, until=3),
        node,
    ]

    assert tuple(msgspec.json.encode(answer) for answer in answers) == GOLDEN


def test_a_client_reads_what_is_forgotten() -> None:
    """`until` without `from` is no window, and is carried apart; with a node's, from where both are known."""
    found = Gathered()
    found.gather([msgspec.json.decode(each, type=Answer) for each in GOLDEN], ASKED)

    kept, never, forgotten, node = ASKED
    assert found.windows == {kept: Window(3, 7), never: None, forgotten: None, node: None}
    assert found.forgotten == {forgotten: 3, node: 9}
    assert (found.attachments, found.nodes) == ({node: Window(9)}, {node: None})


def test_a_client_reads_an_older_issuers_answers() -> None:
    """An issuer that tells nothing of forgotten windows leaves them None, as it did."""
    older: list[dict[str, Any]] = []
    for each in GOLDEN:
        answer = msgspec.json.decode(each)
        for start, until in (("from", "until"), ("node_from", "node_until")):
            if start not in answer:
                answer.pop(until, None)
        older.append(answer)
    found = Gathered()
    found.gather(msgspec.convert(older, list[Answer]), ASKED)

    assert list(found.windows.values()) == [Window(3, 7), None, None, None]
    assert found.forgotten == {}


def test_an_older_client_reads_no_window() -> None:
    """A client that takes a missing `from` for no window sees the windows that it always saw."""
    answers = [msgspec.json.decode(each) for each in GOLDEN]

    windows = [Window(a["from"], a.get("until")) if "from" in a else None for a in answers]
    nodes = [Window(a["node_from"], a.get("node_until")) if "node_from" in a else None for a in answers]

    assert (windows, nodes) == ([Window(3, 7), None, None, Window(9)], [None] * 4)


# --- one contract for the fake and the service --------------------------------------------------------------


def forget(case: Case) -> None:
    """Say that everything is settled."""
    barrier = case.issuer.barrier()
    case.issuer.barrier(PartitionOffsets(barrier.topic_id, barrier.ends))


def test_forgotten_generations_are_told_from_those_never_issued(case: Case, unique: str) -> None:
    """Neither has a window; the forgotten ones have an offset at or below which theirs ended."""
    for _ in range(3):
        case.written(1, 2)
        case.issuer.attach("n", unique)
    forget(case)
    newest = case.window(unique, 3, 1)
    assert newest is not None

    asked = [Subject(unique, generation, 1) for generation in range(5)]
    answer = case.issuer.validate([*asked, Subject(unique, 1, 1, "n", 1)])

    assert [subject for subject, window in answer.windows.items() if window is not None] == [asked[3]]
    assert answer.forgotten == {asked[1]: newest.start, asked[2]: newest.start}


def test_a_dropped_tenants_forgotten_generations(case: Case, unique: str) -> None:
    """Detach and drop change nothing: the last generation keeps its window, those below are superseded."""
    for _ in range(2):
        case.issuer.attach(f"n-{unique}", unique)
    case.issuer.detach(f"n-{unique}", unique)
    case.issuer.drop(unique)
    forget(case)

    one, two = Subject(unique, 1, 0), Subject(unique, 2, 0)
    answer = case.issuer.validate([one, two])

    assert (answer.windows[one], answer.windows[two] is not None) == (None, True)
    assert set(answer.forgotten) == {one}


def test_forgotten_numbers_of_the_first_form(case: Case, unique: str) -> None:
    """A guard that names a forgotten number is superseded, unless its other parts never were."""
    node = f"n-{unique}"
    first = case.issuer.register_node(node)
    case.issuer.attach(node, unique, registration=first)
    case.written(0, 2)
    second = case.issuer.register_node(node)
    case.written(0, 2)
    case.issuer.attach(node, unique, registration=second)
    case.written(0, 2)
    forget(case)
    start = case.issuer.tenant(unique).history[0].start[0]  # type: ignore[union-attr]

    def asked(generation: int, name: str | None, number: int | None) -> Subject:
        return Subject(unique, generation, 0, name, number)

    superseded = [asked(1, node, 1), asked(1, node, 2), asked(2, node, 1)]
    never = [
        asked(1, node, 3),
        asked(3, node, 1),
        asked(1, "nobody", 1),
        asked(1, None, None),
        asked(0, node, 1),
    ]
    answer = case.issuer.validate([*superseded, *never, asked(2, node, 2)])

    assert [s for s, window in answer.windows.items() if window is not None] == [asked(2, node, 2)]
    assert answer.forgotten == dict.fromkeys(superseded, start)
    assert answer.nodes[superseded[0]] is None


def test_numbers_below_an_import(case: Case, unique: str) -> None:
    """They are over since the import, of tenants and of nodes."""
    node = f"n-{unique}"
    taken = {n.number for n in [case.issuer.register_node(f"x-{unique}")]}
    case.issuer.import_tenants(
        [ImportedTenant(unique, FIRST, 7, node)], [ImportedNode(node, max(taken) + 1, 5)]
    )
    registration = Registration(node, max(taken) + 1, 5)
    state = case.issuer.tenant(unique)
    assert state is not None

    asked = [Subject(unique, g, 0, node, n) for g, n in ((6, 5), (7, 4), (8, 4), (7, 5))]
    answer = case.issuer.validate(asked)

    assert answer.forgotten == dict.fromkeys(asked[:2], state.history[0].start[0])
    assert case.issuer.attach(node, unique, registration=registration).generation == 8
