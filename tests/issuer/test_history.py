"""What the fold forgets: windows below the oldest unsettled position, request ids older than those kept."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.logs import timed

from sexton.issuer.operations.issuing import Call, next_step
from sexton.issuer.state import request_ids
from sexton.issuer.state.fold import VALID, State, Void, apply
from sexton.issuer.state.history import RequestIds
from sexton.schemas import events
from sexton.schemas.errors import RequestRefused
from sexton.schemas.events import Grant, IssueOperation, PartitionOffsets
from sexton.schemas.windows import Window

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GENESIS = events.Genesis(1, "cluster", "log", "intents", NOW)
ATTACH = IssueOperation.ATTACH


def barrier(
    ends: Sequence[int], unsettled: Sequence[int] | None = None, topic: str = "intents"
) -> events.Barrier:
    """A Barrier event."""
    claim = None if unsettled is None else PartitionOffsets(topic, unsettled)
    return events.Barrier("b", PartitionOffsets("intents", ends), claim, NOW)


def issued(tenant: str, generation: int, ends: Sequence[int], request_id: str | None = None) -> events.Issued:
    """One tenant's next generation."""
    grants = [Grant(tenant, generation, generation - 1 or None)]
    name = request_id or f"{tenant}-{generation}"
    return events.Issued(name, "c", ATTACH, "n", 0, 1, grants, PartitionOffsets("intents", ends), NOW)


def fold(*log: events.GenerationEvent) -> State:
    """Fold Genesis and these events."""
    state = State()
    for offset, event in enumerate((GENESIS, *log)):
        apply(state, offset, event)
    return state


class TestWindows:
    def test_a_superseded_window_below_the_floor_is_gone(self) -> None:
        """A window that ends at or below the oldest unsettled position of every partition is forgotten."""
        state = fold(issued("t", 1, [3, 4]), issued("t", 2, [7, 9]), barrier([9, 9], [7, 9]))

        assert state.window("t", 1, 0) is None
        assert state.window("t", 2, 0) == Window(7)
        assert (state.newest("t"), state.known("t")) == (2, True)

    @pytest.mark.parametrize("unsettled", [[6, 9], [7, 8], [7], []])
    def test_one_partition_above_the_floor_keeps_the_window(self, unsettled: list[int]) -> None:
        """As long as one partition may hold an unsettled intent of the generation nothing is forgotten."""
        state = fold(issued("t", 1, [3, 4]), issued("t", 2, [7, 9]), barrier([9, 9], unsettled))

        assert state.window("t", 1, 0) == Window(3, 7)

    def test_the_newest_is_never_cut(self) -> None:
        """However far everything is settled, the newest generation keeps its window."""
        state = fold(issued("t", 1, [3]), barrier([90], [90]))

        assert state.window("t", 1, 0) == Window(3)

    def test_the_floor_never_falls(self) -> None:
        """A later barrier with lower positions brings nothing back and lets later windows go in order."""
        state = fold(
            issued("t", 1, [3]),
            issued("t", 2, [7]),
            barrier([9], [9]),
            barrier([9], [1]),
            issued("t", 3, [9]),
            barrier([9], [0]),
        )

        assert list(state.cuts.floor) == [9]
        assert [state.window("t", g, 0) for g in (1, 2, 3)] == [None, None, Window(9)]

    @pytest.mark.parametrize(
        "claim", [barrier([9], [10]), barrier([9], [9, 1]), barrier([9], [-1]), barrier([9], [9], "other")]
    )
    def test_an_impossible_claim_cuts_nothing(self, claim: events.Barrier) -> None:
        """Positions beyond the barrier's own end offsets, or of another topic, are not believed."""
        state = fold(issued("t", 1, [3]), issued("t", 2, [7]), claim)

        assert state.window("t", 1, 0) == Window(3, 7)
        assert list(state.high) == [9]

    def test_one_impossible_position_makes_the_whole_claim_void(self) -> None:
        """A claim with one position beyond the end offsets is not believed of any other partition."""
        state = fold(issued("t", 1, [3, 3]), issued("t", 2, [7, 7]), barrier([9, 9], [8, 10]))

        assert state.window("t", 1, 0) == Window(3, 7)


@st.composite
def settled_logs(draw: st.DrawFn) -> list[events.GenerationEvent]:
    """Logs with barriers that carry unsettled positions, some of which fall back or claim too much.

    The topic gains a partition at some time, and lists of unsettled positions may be shorter than it.
    """
    log: list[events.GenerationEvent] = []
    newest = dict.fromkeys("ab", 0)
    written, unsettled = [0, 0], [0, 0, 0]
    for _ in range(draw(st.integers(1, 25))):
        if len(written) == 2 and draw(st.integers(0, 5)) == 0:
            written.append(0)
        written = [end + draw(st.integers(0, 3)) for end in written]
        ends = [max(0, end - draw(st.sampled_from((0, 0, 2)))) for end in written]
        if draw(st.booleans()):
            tenant = draw(st.sampled_from("ab"))
            newest[tenant] += 1
            log.append(issued(tenant, newest[tenant], ends))
        else:
            unsettled = [
                draw(st.integers(max(0, low - 1), max(low, end) + 1))
                for low, end in zip(unsettled, [*ends, 0][:3], strict=True)
            ]
            length = draw(st.sampled_from((len(ends), len(ends), 2, 1, 0)))
            log.append(barrier(ends, draw(st.sampled_from((None, unsettled[:length])))))
    return log


def verdicts(state: State, floor: Sequence[int]) -> Iterator[bool]:
    """Every verdict about positions at or above the floor."""
    for tenant in "ab":
        for generation in range(15):
            for partition, end in enumerate(state.high):
                window = state.window(tenant, generation, partition)
                low = floor[partition] if partition < len(floor) else 0
                for offset in range(low, end + 2):
                    yield window is not None and window.covers(offset)


def passes(state: State, tenant: str, generation: int, partition: int, offset: int) -> bool:
    """The judge's rule."""
    window = state.window(tenant, generation, partition)
    return window is not None and window.covers(offset)


@settings(max_examples=150)
@given(settled_logs())
@pytest.mark.slow
def test_the_cut_changes_no_verdict_above_the_floor(log: list[events.GenerationEvent]) -> None:
    """Positions that may still be asked about are judged the same with the history and without."""
    whole = [
        events.Barrier(e.request_id, e.ends, None, NOW) if isinstance(e, events.Barrier) else e for e in log
    ]
    for length in range(1, len(log) + 1):
        cut, uncut = fold(*log[:length]), fold(*whole[:length])
        floor = cut.cuts.floor

        assert list(verdicts(cut, floor)) == list(verdicts(uncut, floor))
        assert [cut.newest(t) for t in "ab"] == [uncut.newest(t) for t in "ab"]


@settings(max_examples=150)
@given(settled_logs())
@pytest.mark.slow
def test_a_pass_of_an_unsettled_intent_stays_a_pass(log: list[events.GenerationEvent]) -> None:
    """I1: what passed at or above the unsettled positions that barriers carry passes after each of them."""
    passed: set[tuple[str, int, int, int]] = set()
    settled = [0, 0, 0]
    state = State()
    apply(state, 0, GENESIS)
    for offset, event in enumerate(log, 1):
        apply(state, offset, event)
        if isinstance(event, events.Barrier):
            ends = event.ends.offsets
            claim = event.unsettled.offsets if event.unsettled else ()
            if all(at <= end for at, end in zip(claim, ends, strict=False)):
                settled = [max(pair) for pair in zip(settled, [*claim, 0, 0, 0], strict=False)]
            every = product("ab", range(1, 15), range(len(ends)), range(max(ends)))
            passed |= {each for each in every if each[3] < ends[each[2]] and passes(state, *each)}
        passed = {each for each in passed if each[3] >= settled[each[2]]}

        assert [each for each in passed if not passes(state, *each)] == []


@settings(max_examples=100)
@given(settled_logs())
def test_nothing_below_the_floor_is_kept(log: list[events.GenerationEvent]) -> None:
    """History is as short as the floor allows: every kept window but the newest reaches above it."""
    state = fold(*log)

    for tenant in state:
        for closing in tenant.issues[1:]:
            assert not state.cuts.below_floor(closing.high)


def reported(state: State, tenant: str, generation: int, partition: int, offset: int) -> str:
    """What is reported of an intent that claims this generation."""
    found = state.tenant(tenant)
    if found is None:
        return "unknown"
    if (window := found.window(generation, partition)) is None:
        ended = found.forgotten_until(generation, partition)
        return "never-issued" if ended is None or offset < ended else "superseded"
    return "pass" if window.covers(offset) else "early" if offset < window.start else "superseded"


@settings(max_examples=150)
@given(settled_logs())
@pytest.mark.slow
def test_a_forgotten_generation_is_still_told_as_superseded(log: list[events.GenerationEvent]) -> None:
    """Above the floor the cut state tells the same reason as the whole one; below it the same, or less."""
    whole = [
        events.Barrier(e.request_id, e.ends, None, NOW) if isinstance(e, events.Barrier) else e for e in log
    ]
    cut, uncut = fold(*log), fold(*whole)
    floor = [*cut.cuts.floor, 0, 0, 0, 0]
    for tenant, generation, partition in product("ab", range(-1, 15), range(4)):
        for offset in range(max([*cut.high, 0]) + 2):
            due = reported(uncut, tenant, generation, partition, offset)
            found = reported(cut, tenant, generation, partition, offset)
            assert found in ((due,) if offset >= floor[partition] else (due, "never-issued"))


class TestRequestIds:
    def test_a_new_id_carries_its_time(self) -> None:
        """Ids made here are UUIDs of version 7 that differ."""
        one, other = request_ids.new_id(), request_ids.new_id()

        assert one != other
        assert uuid.UUID(one).version == 7 or uuid.UUID(one).variant == uuid.RFC_4122
        assert abs((request_ids.instant_of(one) or 0) / 1000 - datetime.now(UTC).timestamp()) < 60

    @pytest.mark.parametrize(
        "text",
        ["", "r-1", "37b3a3f4cb8c4131a3c33639380ae001", "x" * 36, "01a22141-1dda-798d-97c5-2b6610dd07700"],
    )
    def test_other_ids_carry_none(self, text: str) -> None:
        """What is no UUID of version 7 has no time."""
        assert request_ids.instant_of(text) is None

    def test_the_oldest_are_forgotten_and_refused(self) -> None:
        """Of more ids than are kept the oldest go, and what is not newer than the last of them is refused."""
        ids: RequestIds[int] = RequestIds(kept=3)
        for number in (5, 1, 3, 4):
            ids.bind(timed(number), number, 1)

        assert [ids.get(timed(n)) for n in (1, 3, 4, 5)] == [None, 3, 4, 5]
        assert [ids.expired(timed(n)) for n in (0, 1, 2, 3, 6)] == [True, True, False, False, False]
        assert ids.expired(timed(1, 7))

    def test_large_answers_are_forgotten_sooner(self) -> None:
        """Numbers in answers are limited too, and a single answer above the limit is kept."""
        ids: RequestIds[int] = RequestIds(grants=10)
        for number, grants in ((1, 5), (2, 5), (3, 4), (4, 50)):
            ids.bind(timed(number), number, grants)

        assert [name for name, _ in ids] == [timed(4)]

    def test_what_was_bound_just_now_is_kept(self) -> None:
        """The call that an event answers can read its answer, however old its id is."""
        ids: RequestIds[int] = RequestIds(kept=2)
        for number in (5, 6, 1):
            ids.bind(timed(number), number, 1)

        assert ids.get(timed(1)) == 1

    def test_an_id_without_a_time_is_kept(self) -> None:
        """A text that carries no time cannot be determined from a new call later, so it stays."""
        ids: RequestIds[int] = RequestIds(kept=1)
        for name in ("a", timed(1), "b", timed(2)):
            ids.bind(name, 0, 1)

        assert {name for name, _ in ids} == {"a", "b", timed(2)}
        assert not ids.expired("c")

    def test_a_clock_that_runs_ahead_shuts_nobody_out(self) -> None:
        """An id from the future takes one place; ids of the present are taken as before."""
        ids: RequestIds[int] = RequestIds(kept=3)
        for number in (2**47, 1, 2, 3, 4):
            ids.bind(timed(number), number, 1)

        assert not ids.expired(timed(5))

    def test_a_late_retry_is_refused_not_issued_again(self) -> None:
        """I-6: a retry whose answer was forgotten is void in the log and refused at the door."""
        state = State()
        state.requests = RequestIds(kept=2)
        events_: list[events.GenerationEvent] = [GENESIS]
        events_ += [issued("t", g, [0], timed(g)) for g in (1, 2, 3)]
        assert [apply(state, offset, event) for offset, event in enumerate(events_)] == [VALID] * 4

        assert apply(state, 4, issued("t", 4, [0], timed(1))) == Void("request-expired")
        with pytest.raises(RequestRefused) as refused:
            next_step(state, Call(timed(1), "c", ATTACH, "n", ("t",)))
        assert refused.value.type == "request-expired"
        assert state.newest("t") == 3
