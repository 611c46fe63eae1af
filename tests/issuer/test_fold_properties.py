"""What holds for every log: numbers once, void events change nothing, verdicts are stable."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.folding import GENESIS, NOW, barrier, facts, fold, issued

from sexton.issuer.state.fold import State, Valid, Void, apply
from sexton.schemas import events
from sexton.schemas.events import Grant, IssueOperation, PartitionOffsets


@st.composite
def logs(draw: st.DrawFn) -> list[events.GenerationEvent]:
    """Logs of several issuers at work: mostly fitting events, mixed with stale, doubled and foreign ones."""
    state = State()
    apply(state, 0, GENESIS)
    log: list[events.GenerationEvent] = []
    written = [0, 0]
    names = st.sampled_from("abc")
    for offset in range(1, draw(st.integers(1, 25)) + 1):
        written = [end + draw(st.integers(0, 4)) for end in written]
        ends = [max(0, end - draw(st.sampled_from((0, 0, 1, 5)))) for end in written]
        topic = draw(st.sampled_from(("intents",) * 9 + ("other",)))
        offsets = PartitionOffsets(topic, ends)
        kind = draw(st.sampled_from(("issue", "issue", "issue", "barrier", "detach", "drop")))
        request, node = f"r{draw(st.integers(0, 30))}", draw(st.sampled_from(("n1", "n2")))
        event: events.GenerationEvent
        if kind == "issue":
            grants = []
            for name in draw(st.lists(names, min_size=1, max_size=3)):
                base = (state.newest(name) or 0) + draw(st.sampled_from((0, 0, 0, 0, -1, 1)))
                grants.append(Grant(name, base + 1, base or None))
            operation = draw(st.sampled_from(list(IssueOperation)))
            event = issued(request, grants, ends, node=node, operation=operation, topic=topic)
        elif kind == "barrier":
            event = events.Barrier(request, offsets, None, NOW)
        elif kind == "detach":
            name = draw(names)
            event = events.Detached(request, "c", node, name, state.newest(name) or 0, NOW)
        else:
            event = events.Dropped(request, "c", draw(st.sampled_from("abcdefgh")), NOW)
        apply(state, offset, event)
        log.append(event)
    return log


@given(logs())
def test_i3_no_number_twice(log: list[events.GenerationEvent]) -> None:
    """I3: valid events hand out each tenant's numbers once, in order, no gap; requests at most once."""
    state = State()
    apply(state, 0, GENESIS)
    numbers: dict[str, list[int]] = {}
    requests: list[str] = []

    for offset, event in enumerate(log, 1):
        if isinstance(apply(state, offset, event), Valid) and not isinstance(event, events.Barrier):
            requests.append(event.request_id)  # type: ignore[union-attr]
            for grant in getattr(event, "grants", ()):
                numbers.setdefault(grant.tenant, []).append(grant.generation)

    assert all(issued == list(range(1, len(issued) + 1)) for issued in numbers.values())
    assert len(requests) == len(set(requests))


@given(logs())
@pytest.mark.slow
def test_void_events_change_no_tenant(log: list[events.GenerationEvent]) -> None:
    """A void event leaves every tenant, holder and request as it was."""
    state = State()
    apply(state, 0, GENESIS)

    for offset, event in enumerate(log, 1):
        before = facts(state)
        if isinstance(apply(state, offset, event), Void):
            assert facts(state) == before


@given(logs())
def test_windows_are_disjoint_and_in_order(log: list[events.GenerationEvent]) -> None:
    """Each generation's window begins where the one before it ends; only the newest is open."""
    state, _ = fold(*log)

    for tenant in state:
        for partition in range(3):
            windows = [tenant.window(g, partition) for g in range(1, (tenant.newest or 0) + 1)]
            for one, following in pairwise(windows):
                assert one is not None
                assert following is not None
                assert one.until is not None
                assert one.start <= one.until == following.start
            assert all(w is not None and (w.until is None) == (w is windows[-1]) for w in windows)


@settings(max_examples=60)
@given(logs(), st.data())
def test_verdicts_are_stable(log: list[events.GenerationEvent], data: st.DataObject) -> None:
    """J-9: what was judged below a barrier's end offsets is judged the same after any later events."""
    cut = data.draw(st.integers(0, len(log)))
    state, _ = fold(*log[:cut])
    ends = list(state.high) or [0]
    apply(state, cut + 1, barrier(ends))

    def verdicts() -> list[bool]:
        return [
            (window := state.window(tenant, generation, partition)) is not None and window.covers(offset)
            for tenant in "abc"
            for generation in range(1, 8)
            for partition, end in enumerate(ends)
            for offset in range(end)
        ]

    judged = verdicts()
    for offset, event in enumerate(log[cut:], cut + 2):
        apply(state, offset, event)

    assert verdicts() == judged


@given(logs())
@pytest.mark.slow
def test_fold_is_deterministic(log: list[events.GenerationEvent]) -> None:
    """Two readers of one log come to the same state and the same verdicts."""
    (one, verdicts), (other, same) = fold(*log), fold(*log)

    assert (facts(one), verdicts) == (facts(other), same)
