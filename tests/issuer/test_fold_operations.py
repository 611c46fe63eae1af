"""What every operation owes the log alike: one answer for each request id, and offsets of one topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.folding import GENESIS, NOW, issued
from tests.support.logs import timed

from sexton.issuer.state.fold import VALID, State, Void, apply
from sexton.schemas import events
from sexton.schemas.events import GenerationForm, Grant, IssueOperation, PartitionOffsets

Make = Callable[[str, PartitionOffsets], events.GenerationEvent]
ATTACH = IssueOperation.ATTACH
ROW = events.ImportedTenant("new", GenerationForm.FINAL, 7, "n3")
WITH_ENDS: dict[str, Make] = {
    "attach": lambda request, ends: events.Issued(
        request, "c", ATTACH, "n2", 0, 1, [Grant("t", 2, 1)], ends, NOW
    ),
    "first form": lambda request, ends: events.IssuedFirstForm(
        request, "c", ATTACH, "n1", 1, 0, 1, [Grant("one", 2, 1)], ends, NOW
    ),
    "register": lambda request, ends: events.NodeRegistered(request, "c", "n1", 0, 2, 1, ends, NOW),
    "fence": lambda request, ends: events.Fenced(request, "c", "t", 2, 1, ends, NOW),
    "import": lambda request, ends: events.Imported(request, "c", 0, 1, [ROW], [], ends, NOW),
}
OPERATIONS: dict[str, Make] = {
    **WITH_ENDS,
    "detach": lambda request, ends: events.Detached(request, "c", "n1", "t", 1, NOW),
    "drop": lambda request, ends: events.Dropped(request, "c", "t", NOW),
}
GRANTED = {
    "attach": {"t": 2},
    "first form": {"one": 2},
    "register": {"n1": 2},
    "fence": {"t": 2},
    "import": {"new": 7},
    "detach": {"t": 1},
    "drop": {"t": 1},
}
HOLDS = {"attach": ["one"], "fence": ["one"], "detach": ["one"], "drop": ["one"], "first form": ["t", "one"]}
AT = 4


def before() -> State:
    """A log with a node that holds a tenant of each form, and a request id that was used."""
    ends = PartitionOffsets("intents", [3, 3])
    state = State()
    log: tuple[events.GenerationEvent, ...] = (
        GENESIS,
        events.NodeRegistered("reg", "c", "n1", 0, 1, None, ends, NOW),
        issued("used", [Grant("t", 1, None)], [3, 3]),
        events.IssuedFirstForm("first", "c", ATTACH, "n1", 1, 0, 1, [Grant("one", 1, None)], ends, NOW),
    )
    assert [apply(state, offset, event) for offset, event in enumerate(log)] == [VALID] * AT
    return state


def facts(state: State) -> Any:
    """Everything that a void event must leave as it is."""
    tenants = [(t.name, t.first, list(t.issues), t.holder, t.dropped, t.form) for t in state]
    return tenants, [(n.name, n.number, list(n.issues)) for n in state.nodes()], state.held_by("n1")


@pytest.mark.parametrize("name", OPERATIONS)
def test_i_6_an_operation_is_carried_out_once_for_its_request_id(name: str) -> None:
    """I-6: one event carries the call out whole; under the same id, or another call's, nothing happens."""
    state, make, ends = before(), OPERATIONS[name], PartitionOffsets("intents", [5, 5])

    assert apply(state, AT, make("r", ends)) == VALID
    request = state.request("r")
    assert request is not None
    assert (request.complete, request.offsets, request.granted) == (True, {0: AT}, GRANTED[name])
    assert state.held_by("n1") == HOLDS.get(name, ["t", "one"])

    done = facts(state)
    again = [apply(state, AT + 1, make("r", ends)), apply(state, AT + 2, make("used", ends))]
    assert again == [Void("request-answered")] * 2
    assert facts(state) == done


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_expired_request_id_is_void_for_every_operation(name: str) -> None:
    """An id that may have been answered and forgotten carries nothing out again."""
    state = before()
    state.requests.mark = 1_000
    untouched = facts(state)

    assert apply(state, AT, OPERATIONS[name](timed(1_000), PartitionOffsets("intents", [5, 5]))) == Void(
        "request-expired"
    )
    assert facts(state) == untouched
    assert apply(state, AT + 1, OPERATIONS[name](timed(1_001), PartitionOffsets("intents", [5, 5]))) == VALID


@pytest.mark.parametrize("name", WITH_ENDS)
@pytest.mark.parametrize("ends", [PartitionOffsets("other", [99, 99]), PartitionOffsets("intents", [99, -1])])
def test_j_13_offsets_of_another_topic_carry_nothing_out(name: str, ends: PartitionOffsets) -> None:
    """J-13: whatever operation carries them, they make its event void and move no window."""
    state = before()
    untouched = facts(state)

    assert apply(state, AT, WITH_ENDS[name]("r", ends)) == Void("other-intents-topic")
    assert (facts(state), list(state.high), state.request("r")) == (untouched, [3, 3], None)


@pytest.mark.parametrize("name", WITH_ENDS)
def test_a_void_event_of_every_operation_raises_the_maximum(name: str) -> None:
    """End offsets are facts about the intents topic, also in an event that changes no tenant."""
    state = before()

    assert isinstance(apply(state, AT, WITH_ENDS[name]("used", PartitionOffsets("intents", [50, 2]))), Void)
    assert list(state.high) == [50, 3]
