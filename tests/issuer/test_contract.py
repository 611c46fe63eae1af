"""One contract for the fake that ships and for the real service."""

from __future__ import annotations

import pytest
from tests.support.issuing import Case, refused

from sexton.issuer.client import Subject
from sexton.schemas.errors import IssuerUnavailable, RequestRefused
from sexton.schemas.events import PartitionOffsets
from sexton.schemas.windows import Window


def test_attach_counts_up(case: Case, unique: str) -> None:
    """Each attach gives the next generation, whoever asks."""
    got = [case.issuer.attach(node, unique).generation for node in ("n1", "n1", "n2")]

    assert got == [1, 2, 3]


def test_i_1_re_attach(case: Case, unique: str) -> None:
    """I-1: a node's re-attach raises exactly what it holds, by one each; others stay valid."""
    seven, eight = f"7-{unique}", f"8-{unique}"
    x, y, z = (f"{unique}-{name}" for name in "xyz")
    for tenant, count in ((x, 3), (y, 9)):
        for _ in range(count):
            case.issuer.attach(seven, tenant)
    z_generation = case.issuer.attach(eight, z).generation

    assert case.issuer.re_attach(seven) == {x: 4, y: 10}
    window = case.window(z, z_generation)
    assert window is not None
    assert window.until is None


def test_re_attach_of_an_unknown_node(case: Case, unique: str) -> None:
    """A node that holds nothing gets an empty answer."""
    assert case.issuer.re_attach(unique) == {}


def test_i_3_one_call_for_four_subjects(case: Case, unique: str) -> None:
    """I-3: at 5, a call for 4, 5, 6 and an unknown tenant answers no, yes, no, and nothing."""
    for _ in range(5):
        case.issuer.attach("n", unique)
    known = [Subject(unique, generation, 1) for generation in (4, 5, 6)]
    windows = case.issuer.validate([*known, Subject(f"{unique}-unknown", 1, 1)]).windows

    assert list(windows) == known
    four, five, six = (windows[subject] for subject in known)
    assert four is not None
    assert five is not None
    assert (four.until is None, five.until is None, six) == (False, True, None)


def test_j_4_the_old_generation_never_validates_again(case: Case, unique: str) -> None:
    """J-4: once a migration has its number, the old one's window is closed for whoever still caches it."""
    case.issuer.attach("old", unique)
    case.issuer.attach("new", unique)
    window = case.window(unique, 1)

    assert window is not None
    assert window.until is not None


def test_windows_follow_the_intents(case: Case, unique: str) -> None:
    """A window holds what was written between two issues, in each partition by itself."""
    case.written(2, 1)
    case.issuer.attach("n", unique)
    start = case.issuer.barrier().ends
    case.written(0, 3)
    case.written(1, 2)
    case.issuer.attach("n", unique)
    case.written(0, 4)

    assert [case.window(unique, 1, p) for p in range(3)] == [
        Window(start[p], start[p] + n) for p, n in ((0, 3), (1, 2), (2, 0))
    ]
    assert case.window(unique, 2, 0) == Window(start[0] + 3)


def test_j_11_claimed_before_it_was_issued(case: Case, unique: str) -> None:
    """J-11: an intent that stands before its generation was issued is outside the window, also afterwards."""
    case.issuer.attach("n", unique)
    case.written(0, 1)
    claimed_at = case.issuer.barrier().ends[0] - 1
    assert case.window(unique, 2) is None

    case.issuer.attach("n", unique)
    window = case.window(unique, 2)

    assert window is not None
    assert not window.covers(claimed_at)


def test_barrier_holds_all_that_was_written(case: Case) -> None:
    """A barrier's end offsets are above every record that was acknowledged before the call."""
    before = case.issuer.barrier()
    case.written(1, 5)
    after = case.issuer.barrier()

    assert after.ends[1] == before.ends[1] + 5
    assert (after.topic_id, after.log_offset > before.log_offset) == (before.topic_id, True)


def test_validate_as_of_a_barrier(case: Case, unique: str) -> None:
    """An answer is as of the demanded log offset or later."""
    case.issuer.attach("n", unique)
    barrier = case.issuer.barrier()

    validation = case.issuer.validate([Subject(unique, 1, 0)], at_least=barrier.log_offset)

    assert validation.log_offset >= barrier.log_offset
    assert validation.topic_id == barrier.topic_id


def test_validate_nothing(case: Case) -> None:
    """No subjects get an empty answer."""
    assert case.issuer.validate([]).windows == {}


def test_a_log_offset_that_is_not_there_yet(case: Case) -> None:
    """An answer as of a future log offset is waited for, and refused when the time is over."""
    barrier = case.issuer.barrier()

    with pytest.raises(IssuerUnavailable):
        case.issuer.validate([], at_least=barrier.log_offset + 1_000_000, deadline=0.5)


def test_parts_of_the_other_form_are_never(case: Case, unique: str) -> None:
    """A guard with parts that the tenant's form does not have gets no window."""
    case.issuer.attach("n", unique)
    subjects = [Subject(unique, 1, 0, "n", 1), Subject(unique, 1, 0, "n"), Subject(unique, 1, 0)]

    windows = case.issuer.validate(subjects).windows

    assert [windows[s] is None for s in subjects] == [True, True, False]


def test_detach(case: Case, unique: str) -> None:
    """Detaching ends the holding, not the generation."""
    case.issuer.attach(f"n-{unique}", unique)

    assert case.issuer.detach(f"n-{unique}", unique) == 1
    state = case.issuer.tenant(unique)
    assert state is not None
    assert (state.generation, state.holder) == (1, None)
    assert case.issuer.re_attach(f"n-{unique}") == {}
    with refused("not-held"):
        case.issuer.detach(f"n-{unique}", unique)


def test_drop(case: Case, unique: str) -> None:
    """A dropped tenant gets no number any more; its last generation stays what it was."""
    case.issuer.attach("n", unique)
    offset = case.issuer.drop(unique)

    state = case.issuer.tenant(unique)
    assert state is not None
    assert (state.dropped, state.generation, state.log_offset >= offset) == (True, 1, True)
    for call in (lambda: case.issuer.attach("n", unique), lambda: case.issuer.drop(unique)):
        with refused("tenant-dropped"):
            call()


def test_i_6_one_request_id_one_number(case: Case, unique: str) -> None:
    """I-6: a retry under the same request id gets the first answer; nothing happens twice."""
    first = case.issuer.attach("n", unique, request_id=unique)
    case.issuer.attach("n", unique)

    assert case.issuer.attach("n", unique, request_id=unique) == first
    assert case.issuer.attach("n", unique).generation == 3


def test_request_ids_of_every_call(case: Case, unique: str) -> None:
    """Re-attach, detach and drop keep their first answer too."""
    node = f"n-{unique}"
    case.issuer.attach(node, unique)

    assert [case.issuer.re_attach(node, request_id=f"{unique}-r") for _ in "12"] == [{unique: 2}] * 2
    assert [case.issuer.detach(node, unique, request_id=f"{unique}-d") for _ in "12"] == [2, 2]
    assert len({case.issuer.drop(unique, request_id=f"{unique}-x") for _ in "12"}) == 1


def test_i_11_a_new_request_gets_a_new_number(case: Case, unique: str) -> None:
    """I-11: a lost answer that is asked for under a new request id costs a number."""
    node = f"n-{unique}"
    case.issuer.attach(node, unique)

    assert [case.issuer.re_attach(node)[unique] for _ in "12"] == [2, 3]


@pytest.mark.parametrize("other", ["tenant", "node", "call"])
def test_a_request_id_is_bound(case: Case, unique: str, other: str) -> None:
    """A request id cannot be used for another call."""
    case.issuer.attach("n", unique, request_id=unique)

    with refused("request-id-conflict"):
        if other == "tenant":
            case.issuer.attach("n", f"{unique}-2", request_id=unique)
        elif other == "node":
            case.issuer.attach("m", unique, request_id=unique)
        else:
            case.issuer.re_attach("n", request_id=unique)


@pytest.mark.parametrize("expected", [0, 1, 3])
def test_i_12_a_lower_generation_is_refused(case: Case, unique: str, expected: int) -> None:
    """I-12: a call that names another generation than the newest is refused and changes nothing."""
    case.issuer.attach("n", unique)
    case.issuer.attach("n", unique)

    with refused("generation-not-newest"):
        case.issuer.attach("n", unique, generation=expected)
    assert case.issuer.attach("n", unique, generation=2).generation == 3


@pytest.mark.parametrize(
    "name",
    [
        "{",
        "}",
        "{}",
        "a{b}c",
        "a b",
        " ",
        "日本",
        "a/b",
        "/",
        "a//b/",
        "..",
        ".",
        "%2F",
        "a?b#c",
        "é\u0301",
        "*",
    ],
)
def test_i_14_tenant_names(case: Case, unique: str, name: str) -> None:
    """I-14: names of any characters are tenants of their own."""
    tenant, sibling = f"{name}{unique}", f"{name}{unique}{name}"
    case.issuer.attach("n", tenant)
    case.issuer.attach("n", sibling)
    case.issuer.attach("n", sibling)

    found = [case.issuer.tenant(t) for t in (tenant, sibling)]
    assert [(f.tenant, f.generation) for f in found if f] == [(tenant, 1), (sibling, 2)]
    assert case.window(tenant, 2) is None


@pytest.mark.parametrize("name", ["", "x" * 513, "日" * 171])
def test_names_out_of_bounds(case: Case, name: str) -> None:
    """A tenant's name has 1 to 512 bytes."""
    with refused("invalid-request"):
        case.issuer.attach("n", name)


def test_history(case: Case, unique: str) -> None:
    """A tenant's history starts with the newest generation and says where each was issued."""
    attached = [case.issuer.attach(node, unique) for node in ("n1", "n2")]

    state = case.issuer.tenant(unique)

    assert state is not None
    assert [(s.generation, s.node, s.log_offset) for s in state.history] == [
        (2, "n2", attached[1].log_offset),
        (1, "n1", attached[0].log_offset),
    ]
    assert (state.history[0].until, state.history[1].until) == (None, state.history[0].start)


def test_unknown_tenant(case: Case, unique: str) -> None:
    """A tenant that the log does not know has no state."""
    assert case.issuer.tenant(unique) is None


def test_unsettled_positions(case: Case) -> None:
    """A barrier takes the oldest unsettled positions, of the same topic only."""
    barrier = case.issuer.barrier()
    case.issuer.barrier(PartitionOffsets(barrier.topic_id, barrier.ends))

    with refused("invalid-request"):
        case.issuer.barrier(PartitionOffsets("another", barrier.ends))


def test_an_import_of_nothing_is_refused(case: Case) -> None:
    """An import names a tenant or a node; one of nothing leaves no event in the log."""
    with pytest.raises(RequestRefused, match="nothing to import") as error:
        case.issuer.import_tenants([])
    assert error.value.type == "invalid-request"
