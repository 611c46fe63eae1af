"""What a call needs next: parts in turn, what their answer holds, and who is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.folding import GENESIS, NOW, issued
from tests.support.issuing import refused

from sexton.issuer.operations import detach, import_, issuing, register_node
from sexton.issuer.operations.issuing import Call, Granted, Part, next_step
from sexton.issuer.state.fold import VALID, State, apply
from sexton.schemas import events
from sexton.schemas.errors import UsageError
from sexton.schemas.events import GenerationForm, Grant, IssueOperation, PartitionOffsets

ATTACH, RE_ATTACH = IssueOperation.ATTACH, IssueOperation.RE_ATTACH
FINAL, FIRST = GenerationForm.FINAL, GenerationForm.FIRST
TENANTS = [f"t{number}" for number in range(7)]
ENDS = PartitionOffsets("intents", [0])


@pytest.fixture(autouse=True)
def _three_grants_per_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuing, "GRANTS_PER_EVENT", 3)


def append(state: State, *log: events.GenerationEvent) -> None:
    """Append events, all of them valid."""
    for event in log:
        assert apply(state, state.next_offset, event) == VALID


def held_by_n() -> State:
    """A log in which node "n" holds all tenants at generation 1."""
    state = State()
    append(state, GENESIS, issued("first", [Grant(name, 1, None) for name in TENANTS], node="n"))
    return state


def take(
    state: State, call: Call, tenants: Sequence[str] | None = None, part: int = 0, parts: int = 1
) -> None:
    """Append a part of a call, by default what is due next."""
    if tenants is None:
        due = next_step(state, call)
        assert isinstance(due, Part)
        tenants, part, parts = due.tenants, due.number, due.count
    grants = [Grant(name, (state.newest(name) or 0) + 1, state.newest(name)) for name in tenants]
    event = issued(
        call.request_id,
        grants,
        node=call.node,
        operation=call.operation,
        caller=call.caller,
        part=part,
        parts=parts,
    )
    append(state, event)


def answer(state: State, call: Call) -> Granted:
    """Carry out what is left of a call."""
    while isinstance(step := next_step(state, call), Part):
        take(state, call)
    return step


def re_attach(request_id: str, node: str = "n") -> Call:
    """A re-attach of a node."""
    return Call(request_id, "c", RE_ATTACH, node, None)


class TestParts:
    def test_each_part_is_asked_for_once_and_the_last_one_answers(self) -> None:
        """Seven tenants, three to an event: three parts in order, no tenant twice, one answer of all."""
        state, call, parts = held_by_n(), re_attach("r"), []
        while isinstance(step := next_step(state, call), Part):
            parts.append((list(step.tenants), step.number, step.count))
            take(state, call)

        assert parts == [(TENANTS[:3], 0, 3), (TENANTS[3:5], 1, 3), (TENANTS[5:], 2, 3)]
        assert (step.log_offset, step.generations) == (state.log_offset, dict.fromkeys(TENANTS, 2))
        append(state, events.Barrier("b", ENDS, None, NOW))
        assert next_step(state, call) == step

    def test_an_attach_is_told_all_that_it_was_given(self) -> None:
        """Which tenants was the caller's choice: one that moved meanwhile is in the answer all the same."""
        state, call = State(), Call("r", "c", ATTACH, "n", tuple(TENANTS))
        append(state, GENESIS)
        take(state, call)
        append(state, issued("moved", [Grant("t0", 2, 1)], node="elsewhere"))

        assert answer(state, call).generations == dict.fromkeys(TENANTS, 1)

    def test_a_re_attach_is_told_what_it_still_held_at_its_last_part(self) -> None:
        """I-16: what moved between two parts is left out; what moves afterwards stays, for every retry."""
        state, call = held_by_n(), re_attach("r")
        take(state, call)
        append(state, issued("moved", [Grant("t0", 3, 2)], node="elsewhere"))
        reported = answer(state, call)
        append(state, issued("moved later", [Grant("t1", 3, 2)], node="elsewhere"))

        assert reported.generations == dict.fromkeys(TENANTS[1:], 2)
        assert next_step(state, call) == reported

    def test_a_re_attach_of_which_everything_moved_is_ended_with_its_parts(self) -> None:
        """A call that has a valid part is never answered as if it had none: its parts are ended, empty."""
        state, call = held_by_n(), re_attach("r")
        take(state, call)
        grants = [Grant(name, (state.newest(name) or 0) + 1, state.newest(name)) for name in TENANTS]
        append(state, issued("moved", grants, node="elsewhere"))

        assert next_step(state, call) == Part([], 1, 3)
        assert answer(state, call) == Granted("r", state.log_offset, {})


class TestOvertaken:
    def test_by_a_later_one_of_the_node_that_is_whole(self) -> None:
        """A re-attach that ended half way takes nothing back from one that was answered since."""
        state, call = held_by_n(), re_attach("r")
        take(state, call)
        answer(state, re_attach("later"))

        with refused("overtaken"):
            next_step(state, call)

    def test_not_by_one_that_is_not_whole(self) -> None:
        """Two that are both half done both end: no two keep each other from an answer."""
        state, call = held_by_n(), re_attach("r")
        take(state, call)
        take(state, re_attach("later"), TENANTS[:3], 0, 3)

        assert isinstance(next_step(state, call), Part)

    def test_not_by_one_before_it(self) -> None:
        """Who superseded an earlier one has lost nothing to it."""
        state, call = held_by_n(), re_attach("r")
        answer(state, re_attach("earlier"))
        take(state, call)

        assert isinstance(next_step(state, call), Part)

    @pytest.mark.parametrize(("operation", "node"), [(ATTACH, "n"), (RE_ATTACH, "elsewhere")])
    def test_not_by_another_call_or_node(self, operation: IssueOperation, node: str) -> None:
        """Only a re-attach of the same node was given the same tenants to hold."""
        state, call = held_by_n(), re_attach("r")
        take(state, call)
        if node != "n":
            append(state, issued("moved", [Grant("t0", 3, 2)], node=node))
        take(state, Call("other", "c", operation, node, None), ["t0"])

        assert isinstance(next_step(state, call), Part)

    def test_not_by_one_that_lost_the_same_tenant(self) -> None:
        """What neither of the two has any more is no reason to refuse."""
        state, call = held_by_n(), re_attach("r")
        take(state, call)
        take(state, re_attach("later"), ["t0"])
        append(state, issued("moved", [Grant("t0", 4, 3)], node="elsewhere"))

        assert isinstance(next_step(state, call), Part)

    def test_an_attach_never_is(self) -> None:
        """A half-done attach continues, whatever re-attach was carried out since."""
        state, call = State(), Call("r", "c", ATTACH, "n", tuple(TENANTS))
        append(state, GENESIS)
        take(state, call)
        answer(state, re_attach("later"))

        assert isinstance(next_step(state, call), Part)


class TestForms:
    def state(self) -> State:
        """A registered node "n" with a tenant of each form."""
        state = State()
        append(
            state,
            GENESIS,
            events.NodeRegistered("reg", "c", "n", 0, 1, None, ENDS, NOW),
            events.IssuedFirstForm("one", "c", ATTACH, "n", 1, 0, 1, [Grant("one", 1, None)], ENDS, NOW),
        )
        return state

    def test_who_can_take_one_form_is_given_no_other(self) -> None:
        """A node that keeps generations of one form only is refused a re-attach with another in it."""
        state = self.state()
        with refused("other-form"):
            next_step(state, Call("r", "c", RE_ATTACH, "n", None, form=FINAL))

        for form in (FIRST, None):
            step = next_step(state, Call("r", "c", RE_ATTACH, "n", None, form=form))
            assert step == Part(["one"], 0, 1, 1)

    def test_a_new_tenant_has_the_form_that_was_asked_for(self) -> None:
        """Without one it is the final one, for a caller with a node generation the first."""
        state = self.state()
        asked = {(None, None): None, (FIRST, None): 1, (None, 1): 1, (FINAL, None): None}

        for (form, generation), reported in asked.items():
            call = Call("r", "c", ATTACH, "n", ("new",), form=form, node_generation=generation)
            assert next_step(state, call) == Part(["new"], 0, 1, reported)

    def test_a_new_tenant_beside_the_first_form(self) -> None:
        """One event has one form: the form of a new tenant is not guessed from its neighbour's."""
        state = self.state()
        with pytest.raises(UsageError, match="beside tenants of the first form"):
            next_step(state, Call("r", "c", ATTACH, "n", ("one", "new")))

        both = Call("r", "c", ATTACH, "n", ("one", "new"), form=FIRST)
        assert next_step(state, both) == Part(["one", "new"], 0, 1, 1)


def test_registration_takes_the_lowest_free_number_up_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are given from 0 to the last one, then no node without one is taken in; belief is compared."""
    monkeypatch.setattr(register_node, "MAX_NODE", 1)
    state = State()
    append(state, GENESIS)
    for name, number in (("n0", 0), ("n1", 1)):
        due = register_node.registration(state, name, None, 0)
        assert due == events.ImportedNode(name, number, 1)
        append(state, events.NodeRegistered(name, "c", name, number, 1, None, ENDS, NOW))

    with refused("generations-exhausted"):
        register_node.registration(state, "n2", None, None)
    with refused("generation-not-newest"):
        register_node.registration(state, "n1", None, 2)
    assert register_node.registration(state, "n1", None, 1) == events.ImportedNode("n1", 1, 2)


def test_only_the_newest_generation_of_a_holder_is_held() -> None:
    """Detach needs the holder, a generation, and the one that the caller believes in."""
    state = held_by_n()
    row = events.ImportedTenant("none yet", FINAL, None, "n")
    append(state, events.Imported("i", "c", 0, 1, [row], [], ENDS, NOW))

    assert detach.held(state, "n", "t0", None) == detach.held(state, "n", "t0", 1) == 1
    with refused("generation-not-newest"):
        detach.held(state, "n", "t0", 2)
    for node, tenant in (("n", "none yet"), ("n", "nobody"), ("elsewhere", "t0")):
        with refused("not-held"):
            detach.held(state, node, tenant, None)


def test_an_import_of_the_first_form_without_a_holder() -> None:
    """A tenant that nobody holds needs no registered node."""
    state = held_by_n()

    import_.check_import(state, [events.ImportedTenant("new", FIRST, 7, None)], [])
    with refused("node-not-registered"):
        import_.check_import(state, [events.ImportedTenant("new", FIRST, 7, "n")], [])
