"""The pure rule of the log with both forms in it: nodes, fences, imports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.logs import GENESIS, NOW, mixed_logs

from sexton.issuer.state.fold import VALID, State, Valid, Verdict, Void, apply
from sexton.schemas import events
from sexton.schemas.events import GenerationForm, Grant, IssueOperation, PartitionOffsets
from sexton.schemas.generations import MAX_NODE, MAX_PACKED_PART
from sexton.schemas.windows import Window

FIRST, FINAL = GenerationForm.FIRST, GenerationForm.FINAL
ATTACH, RE_ATTACH = IssueOperation.ATTACH, IssueOperation.RE_ATTACH


def ends(*offsets: int) -> PartitionOffsets:
    """End offsets of the intents topic."""
    return PartitionOffsets("intents", list(offsets) or [0])


def register(
    node: str, generation: int, supersedes: int | None, *offsets: int, number: int = 7, request: str = ""
) -> events.NodeRegistered:
    """A NodeRegistered event."""
    name = request or f"reg-{node}-{generation}-{supersedes}-{number}"
    return events.NodeRegistered(name, "c", node, number, generation, supersedes, ends(*offsets), NOW)


def first(
    grants: Sequence[Grant],
    *offsets: int,
    node: str = "n1",
    node_generation: int = 1,
    operation: IssueOperation = ATTACH,
    request: str = "",
) -> events.IssuedFirstForm:
    """An IssuedFirstForm event."""
    name = request or f"first-{grants}-{node}-{node_generation}"
    return events.IssuedFirstForm(
        name, "c", operation, node, node_generation, 0, 1, grants, ends(*offsets), NOW
    )


def final(grants: Sequence[Grant], node: str = "n1") -> events.Issued:
    """An Issued event."""
    return events.Issued(f"final-{grants}", "c", ATTACH, node, 0, 1, grants, ends(), NOW)


def imports(
    *rows: events.ImportedTenant, nodes: Sequence[events.ImportedNode] = (), request: str = "i"
) -> events.Imported:
    """An Imported event."""
    return events.Imported(request, "c", 0, 1, rows, nodes, ends(), NOW)


def fold(*given_events: events.GenerationEvent) -> tuple[State, list[Verdict]]:
    """Fold Genesis and these events."""
    state = State()
    verdicts = [apply(state, i, e) for i, e in enumerate((GENESIS, *given_events))]
    return state, verdicts[1:]


BEFORE = (
    register("n1", 1, None),
    first([Grant("one", 1, None)]),
    final([Grant("other", 1, None)]),
    events.Dropped("d", "c", "gone", NOW),
)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (first([Grant("one", 2, 1)], node="n2"), "node-not-registered"),
        (first([Grant("one", 2, 1)], node_generation=2), "stale-node"),
        (first([Grant("one", 2, 1)], node_generation=0), "stale-node"),
        (final([Grant("one", 2, 1)]), "first-form"),
        (first([Grant("other", 2, 1)]), None),
        (first([Grant("one", 2, 1), Grant("other", 2, 1)], operation=RE_ATTACH), None),
        (register("n1", 2, 1), None),
        (register("n1", 2, 1, number=8), "number-fixed"),
        (register("n2", 1, None), "number-taken"),
        (register("n2", 1, None, number=8), None),
        (register("n2", 2, None, number=8), "not-next"),
        (register("n2", 1, None, number=0x10000), "no-such-number"),
        (register("n2", 1, None, number=-1), "no-such-number"),
        (register("n1", 1, None), "request-answered"),
        (register("n1", 1, None, request="again"), "not-newest"),
        (register("n1", 3, 1), "not-next"),
        (events.Fenced("f", "c", "one", 2, 1, ends(), NOW), None),
        (events.Fenced("f", "c", "other", 2, 1, ends(), NOW), None),
        (events.Fenced("f", "c", "one", 3, 2, ends(), NOW), "not-newest"),
        (events.Fenced("f", "c", "one", 3, 1, ends(), NOW), "not-next"),
        (events.Fenced("f", "c", "gone", 1, None, ends(), NOW), "dropped"),
        (events.Fenced("f", "c", "nobody", 1, None, ends(), NOW), "unknown-tenant"),
        (imports(events.ImportedTenant("new", FINAL, 7, None)), None),
        (imports(events.ImportedTenant("new", FIRST, 7, "n1")), None),
        (imports(events.ImportedTenant("new", FIRST, 7, "n2")), "node-not-registered"),
        (imports(events.ImportedTenant("new", FINAL, 7, "n2")), None),
        (imports(events.ImportedTenant("one", FIRST, 7, None)), "tenant-known"),
        (imports(events.ImportedTenant("gone", FINAL, 7, None)), "tenant-known"),
        (imports(*[events.ImportedTenant("new", FINAL, 7, None)] * 2), "tenant-twice"),
        (imports(events.ImportedTenant("new", FINAL, 2**32, None)), "out-of-range"),
        (imports(events.ImportedTenant("new", FINAL, -1, None)), "out-of-range"),
        (imports(events.ImportedTenant("new", FIRST, MAX_PACKED_PART + 1, None)), "out-of-range"),
        (imports(nodes=[events.ImportedNode("n1", 9, 1)]), "node-known"),
        (imports(nodes=[events.ImportedNode("n2", 7, 1)]), "number-taken"),
        (imports(nodes=[events.ImportedNode("n2", 9, 1), events.ImportedNode("n3", 9, 1)]), "node-twice"),
        (imports(nodes=[events.ImportedNode("n2", 9, MAX_PACKED_PART + 1)]), "out-of-range"),
        (imports(nodes=[events.ImportedNode("n2", 9, -1)]), "out-of-range"),
        (imports(nodes=[events.ImportedNode("n2", MAX_NODE + 1, 1)]), "out-of-range"),
        (imports(nodes=[events.ImportedNode("n2", -1, 1)]), "out-of-range"),
        (imports(nodes=[events.ImportedNode("n2", MAX_NODE, MAX_PACKED_PART)]), None),
        (imports(nodes=[events.ImportedNode("n2", 0, 0)]), None),
        (imports(events.ImportedTenant("new", FINAL, 2**32 - 1, None)), None),
        (imports(events.ImportedTenant("new", FIRST, MAX_PACKED_PART, None)), None),
        (imports(events.ImportedTenant("new", FIRST, 0, None)), None),
        (register("n2", 1, None, number=0), None),
        (register("n2", 1, None, number=MAX_NODE), None),
    ],
)
def test_what_is_valid(event: events.GenerationEvent, reason: str | None) -> None:
    """Compare-and-set for tenants and nodes, numbers fixed, imports of what is unknown only."""
    _, verdicts = fold(*BEFORE, event)

    assert verdicts == [VALID] * 4 + [VALID if reason is None else Void(reason)]


def test_the_form_is_fixed_by_the_first_event() -> None:
    """A tenant keeps the form of its first event, whatever its later ones are."""
    state, _ = fold(*BEFORE, first([Grant("other", 2, 1)]))

    assert [t.form for t in state] == [FIRST, FINAL, FINAL]


def test_a_number_ends_at_24_bits() -> None:
    """Attachment and node generations of the first form are never above 24 bits; the last one is given."""
    last = MAX_PACKED_PART
    below = events.ImportedTenant("t", FIRST, last - 1, "n1")
    _, verdicts = fold(
        imports(below, nodes=[events.ImportedNode("n1", 7, last - 1)]),
        register("n1", last, last - 1),
        first([Grant("t", last, last - 1)], node_generation=last),
        first([Grant("t", last + 1, last)], node_generation=last),
        register("n1", last + 1, last),
    )

    assert verdicts == [VALID] * 3 + [Void("not-next")] * 2


def test_generation_less_is_below_zero() -> None:
    """None, 0 and 1 are three states; each import continues with the number above its own."""
    rows = [events.ImportedTenant(str(g), FINAL, g, None) for g in (None, 0, 1)]
    state, verdicts = fold(
        imports(*rows), final([Grant("None", 1, None), Grant("0", 1, 0), Grant("1", 2, 1)])
    )

    assert verdicts == [VALID, VALID]
    assert [state.newest(n) for n in ("None", "0", "1")] == [1, 1, 2]
    assert [state.window(n, 0, 0) for n in ("None", "0", "1")] == [None, Window(0, 0), None]


def test_windows_of_both_numbers() -> None:
    """An attachment's window and a node generation's window close by themselves."""
    state, _ = fold(
        register("n1", 1, None, 2),
        first([Grant("t", 1, None)], 3),
        register("n1", 2, 1, 5),
        first([Grant("t", 2, 1)], 9, node_generation=2),
    )
    tenant = state.tenant("t")
    assert tenant is not None

    assert state.windows(tenant, 1, 0, "n1", 1) == (Window(3, 9), Window(2, 5))
    assert state.windows(tenant, 1, 0, "n1", 2) == (Window(3, 9), Window(5))
    assert state.windows(tenant, 2, 0, "n1", 2) == (Window(9), Window(5))
    assert state.windows(tenant, 2, 0, "n1", 3) == (Window(9), None)


@pytest.mark.parametrize(("node", "node_generation"), [("n1", 1), ("n1", None), (None, 1)])
def test_a_guard_with_the_parts_of_the_other_form_has_no_window(
    node: str | None, node_generation: int | None
) -> None:
    """A tenant's form says which numbers a guard must carry; any others fit no window, kept or forgotten."""
    state, _ = fold(
        register("n1", 1, None, 2),
        final([Grant("final", 1, None)]),
        first([Grant("one", 1, None)], 3),
        final([Grant("final", 2, 1)]),
        first([Grant("one", 2, 1)], 9),
        register("n1", 2, 1, 9),
    )
    final_one, first_one = state.tenant("final"), state.tenant("one")
    assert final_one is not None
    assert first_one is not None
    whole = (node, node_generation) == ("n1", 1)

    assert state.windows(final_one, 1, 0, None, None) == (Window(2, 3), None)
    assert state.windows(final_one, 1, 0, node, node_generation) == (None, None)
    assert state.windows(first_one, 1, 0, None, None) == (None, None)
    assert (state.windows(first_one, 1, 0, node, node_generation) != (None, None)) == whole
    assert state.windows(first_one, 1, 0, "nobody", 1) == (None, None)

    apply(state, 7, events.Barrier("b", ends(9), ends(9), NOW))
    assert state.forgotten(final_one, 1, 0, None, None) == (3, None)
    assert state.forgotten(final_one, 1, 0, node, node_generation) == (None, None)
    assert state.forgotten(first_one, 1, 0, None, None) == (None, None)
    assert (state.forgotten(first_one, 1, 0, node, node_generation) == (9, 9)) == whole
    assert state.forgotten(first_one, 1, 0, "nobody", 1) == (None, None)


def facts(state: State) -> Any:
    """Everything that a void event must leave as it is."""
    tenants = [(t.name, t.first, list(t.issues), t.holder, t.dropped, t.form) for t in state]
    return tenants, [(n.name, n.number, n.first, list(n.issues)) for n in state.nodes()]


@settings(max_examples=60)
@given(mixed_logs())
def test_void_events_change_nothing(log: list[events.GenerationEvent]) -> None:
    """A void event leaves every tenant and every node as it was."""
    state = State()
    for offset, event in enumerate(log):
        before = facts(state)
        if isinstance(apply(state, offset, event), Void):
            assert facts(state) == before


@settings(max_examples=60)
@given(mixed_logs())
def test_i3_no_number_twice_in_either_form(log: list[events.GenerationEvent]) -> None:
    """I3: valid events give each tenant and each node a number once, each one above the last."""
    state, last = State(), dict[str, int]()
    for offset, event in enumerate(log):
        if not isinstance(apply(state, offset, event), Valid):
            continue
        for name, number in _numbers(event):
            assert number == last.get(name, number - 1) + 1
            last[name] = number


def _numbers(event: events.GenerationEvent) -> Iterator[tuple[str, int]]:
    match event:
        case events.Issued() | events.IssuedFirstForm():
            yield from ((grant.tenant, grant.generation) for grant in event.grants)
        case events.Fenced():
            yield event.tenant, event.generation
        case events.NodeRegistered():
            yield f"node {event.node}", event.generation
        case events.Imported():
            yield from ((r.tenant, r.generation) for r in event.tenants if r.generation is not None)
            yield from ((f"node {n.node}", n.generation) for n in event.nodes)


@settings(max_examples=30)
@given(mixed_logs(), st.data())
def test_verdicts_of_both_forms_are_stable(log: list[events.GenerationEvent], data: st.DataObject) -> None:
    """J-9: what was judged below a barrier's end offsets stays so, for each guard that can be written.

    Only what a later barrier calls settled may be forgotten, and is not asked about any more.
    """
    kept = [
        events.Barrier(e.request_id, e.ends, None, NOW) if isinstance(e, events.Barrier) else e for e in log
    ]
    cut = data.draw(st.integers(1, len(kept)))
    state, _ = fold(*kept[1:cut])
    high = list(state.high)
    apply(state, cut, events.Barrier("b", PartitionOffsets("intents", high), None, NOW))
    judged = list(_verdicts(state, high))
    for offset, event in enumerate(kept[cut:], cut + 1):
        apply(state, offset, event)

    assert list(_verdicts(state, high)) == judged


def _verdicts(state: State, high: Sequence[int]) -> Iterator[bool]:
    guards = [(None, None), *((n, g) for n in ("n1", "n2", "n3") for g in (1, 2, 5, 6))]
    for name in ("a", "b", "ü ☃", "d", "e"):
        tenant = state.tenant(name)
        if tenant is None:
            yield from [False] * (6 * len(guards) * sum(high))
            continue
        for generation in (0, 1, 2, 3, 7, 8):
            for node, node_generation in guards:
                for partition, end in enumerate(high):
                    pair = state.windows(tenant, generation, partition, node, node_generation)
                    for offset in range(end):
                        yield _passes(pair, node, offset)


def _passes(pair: tuple[Window | None, Window | None], node: str | None, offset: int) -> bool:
    needed = pair[: 1 if node is None else 2]
    return all(window is not None and window.covers(offset) for window in needed)
