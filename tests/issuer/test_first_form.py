"""Tenants of the first form beside those of the final form: one contract for the fake and the service."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.issuing import Case, refused

from sexton.issuer.client import Registration, Subject
from sexton.schemas.events import GenerationForm, ImportedNode, ImportedTenant
from sexton.schemas.generations import MAX_PACKED_PART, PackedGeneration
from sexton.schemas.windows import Window

Ask = Callable[[str, int, Registration], Window | None]


@pytest.fixture
def node(case: Case, unique: str) -> Registration:
    """A node that has registered once."""
    return case.issuer.register_node(f"n-{unique}")


@pytest.fixture
def ask(case: Case) -> Ask:
    """Ask for the window of an attachment as a node's guard names it."""

    def window(tenant: str, generation: int, registration: Registration, partition: int = 0) -> Window | None:
        subject = Subject(tenant, generation, partition, registration.node, registration.generation)
        return case.issuer.validate([subject]).windows[subject]

    return window


def test_registering_counts_up(case: Case, unique: str) -> None:
    """Each registration gives the next node generation under one number, which belongs to that node alone."""
    one = [case.issuer.register_node(f"a-{unique}") for _ in range(3)]
    other = case.issuer.register_node(f"b-{unique}")

    assert [r.generation for r in one] == [1, 2, 3]
    assert len({r.number for r in one}) == 1
    assert (other.generation, other.number == one[0].number) == (1, False)
    with refused("node-number-fixed"):
        case.issuer.register_node(f"a-{unique}", (one[0].number + 1) % 0x10000)
    with refused("node-number-taken"):
        case.issuer.register_node(f"c-{unique}", one[0].number)
    for number in (-1, 0x10000):
        with refused("invalid-request"):
            case.issuer.register_node(f"c-{unique}", number)


def test_a_retried_registration_gets_the_first_answer(case: Case, unique: str) -> None:
    """One request id registers once, also after the node has registered again."""
    first = case.issuer.register_node(unique, request_id=f"{unique}-r")
    case.issuer.register_node(unique)

    assert case.issuer.register_node(unique, request_id=f"{unique}-r") == first


def test_attached_by_a_registered_node(case: Case, node: Registration, unique: str, ask: Ask) -> None:
    """A tenant that a registered node attaches new is of the first form; its keys carry three parts."""
    attached = case.issuer.attach(node.node, unique, registration=node)
    state = case.issuer.tenant(unique)

    assert attached.packed == PackedGeneration(1, node.number, 1)
    assert state is not None
    assert (state.form, state.holder, state.generation) == (GenerationForm.FIRST, node.node, 1)
    window = ask(unique, 1, node)
    assert window is not None
    assert window.until is None


def test_the_form_says_which_parts_a_guard_carries(case: Case, node: Registration, unique: str) -> None:
    """A missing or extra part, or a node that is not the recorded holder, is never."""
    other = case.issuer.register_node(f"other-{unique}")
    case.issuer.attach(node.node, unique, registration=node)
    case.issuer.attach("plain", f"{unique}-final")
    subjects = [
        Subject(unique, 1, 0, node.node, 1),
        Subject(unique, 1, 0),
        Subject(unique, 1, 0, node.node),
        Subject(unique, 1, 0, None, 1),
        Subject(unique, 1, 0, other.node, 1),
        Subject(unique, 1, 0, node.node, 2),
        Subject(f"{unique}-final", 1, 0),
        Subject(f"{unique}-final", 1, 0, "plain", 1),
    ]

    windows = case.issuer.validate(subjects).windows

    assert [windows[s] is not None for s in subjects] == [
        True, False, False, False, False, False, True, False,
    ]  # fmt: skip


def test_both_windows_hold(case: Case, node: Registration, unique: str, ask: Ask) -> None:
    """What a node asked for before it registered again is covered; its older generation is not afterwards."""
    case.issuer.attach(node.node, unique, registration=node)
    start = case.issuer.barrier().ends[0]
    case.written(0, 3)
    again = case.issuer.register_node(node.node)
    case.written(0, 2)
    other = case.issuer.register_node(f"other-{unique}")
    case.issuer.attach(other.node, unique, registration=other)

    assert ask(unique, 1, node) == Window(start, start + 3)
    assert ask(unique, 1, again) == Window(start + 3, start + 5)
    assert ask(unique, 2, other) == Window(start + 5)
    assert ask(unique, 2, again) is None


def test_a_stale_node_and_a_stale_attachment_are_told_apart(
    case: Case, node: Registration, unique: str
) -> None:
    """A stale node must stop, a stale attachment only loses the right to delete: validate says which."""
    other = case.issuer.register_node(f"other-{unique}")
    for tenant in (unique, f"{unique}-moved"):
        case.issuer.attach(node.node, tenant, registration=node)
    case.issuer.attach(other.node, f"{unique}-moved", registration=other)
    kept = Subject(unique, 1, 0, node.node, 1)
    moved = Subject(f"{unique}-moved", 1, 0, node.node, 1)

    def open_parts(subject: Subject) -> tuple[bool, bool]:
        answer = case.issuer.validate([subject])
        windows = answer.attachments[subject], answer.nodes[subject]
        return tuple(w is not None and w.until is None for w in windows)  # type: ignore[return-value]

    assert (open_parts(kept), open_parts(moved)) == ((True, True), (False, True))
    case.issuer.register_node(node.node)
    assert (open_parts(kept), open_parts(moved)) == ((True, False), (False, False))


def test_a_stale_node_takes_nothing_from_its_successor(case: Case, node: Registration, unique: str) -> None:
    """Detach by a node that has registered again elsewhere is refused, and changes nothing."""
    case.issuer.attach(node.node, unique, registration=node)
    again = case.issuer.register_node(node.node)

    with refused("stale-node"):
        case.issuer.detach(node.node, unique, registration=node)
    assert case.issuer.re_attach(node.node, registration=again) == {unique: 2}
    assert case.issuer.detach(node.node, unique, registration=again) == 2


def test_a_stale_node_gets_nothing(case: Case, node: Registration, unique: str) -> None:
    """A node that has registered again elsewhere is told to stop by every call that hands out
    generations.
    """
    case.issuer.attach(node.node, unique, registration=node)
    again = case.issuer.register_node(node.node)

    for call in (
        lambda: case.issuer.attach(node.node, unique, registration=node),
        lambda: case.issuer.re_attach(node.node, registration=node),
    ):
        with refused("stale-node"):
            call()
    assert case.issuer.re_attach(node.node, registration=again) == {unique: 2}


def test_a_node_without_registration_has_no_first_form(case: Case, node: Registration, unique: str) -> None:
    """A tenant of the first form goes to registered nodes only."""
    case.issuer.attach(node.node, unique, registration=node)

    with refused("node-not-registered"):
        case.issuer.attach(f"never-{unique}", unique)


def test_a_node_holds_tenants_of_both_forms(case: Case, node: Registration, unique: str) -> None:
    """The form is the tenant's: a re-attach raises all that the node holds, each in its own form."""
    first, final = f"{unique}-first", f"{unique}-final"
    case.issuer.attach(node.node, first, registration=node)
    case.issuer.attach(node.node, final)

    assert case.issuer.re_attach(node.node, registration=node) == {first: 2, final: 2}
    forms = [s.form for t in (first, final) if (s := case.issuer.tenant(t)) is not None]
    assert forms == [GenerationForm.FIRST, GenerationForm.FINAL]


def test_fencing(case: Case, node: Registration, unique: str, ask: Ask) -> None:
    """A fence closes the holder's window at once, gives the tenant to nobody, and takes a number."""
    case.issuer.attach(node.node, unique, registration=node)
    case.written(0, 1)
    end = case.issuer.barrier().ends[0]

    assert case.issuer.fence_tenant(unique, request_id=f"{unique}-f") == 2
    assert case.issuer.fence_tenant(unique, request_id=f"{unique}-f") == 2
    window, state = ask(unique, 1, node), case.issuer.tenant(unique)
    assert window is not None
    assert window.until == end
    assert ask(unique, 2, node) is None
    assert state is not None
    assert (state.generation, state.holder, state.history[0].node) == (2, None, None)
    assert unique not in case.issuer.re_attach(node.node, registration=node)
    assert case.issuer.attach(node.node, unique, registration=node).generation == 3


def test_fencing_what_cannot_be_fenced(case: Case, unique: str) -> None:
    """An unknown tenant and a dropped one are not fenced."""
    with refused("unknown-tenant"):
        case.issuer.fence_tenant(unique)
    case.issuer.attach("n", unique)
    case.issuer.drop(unique)
    with refused("tenant-dropped"):
        case.issuer.fence_tenant(unique)


def imported(
    tenant: str, generation: int | None, node: str | None = None, *, first: bool = False
) -> ImportedTenant:
    """A row of an import."""
    form = GenerationForm.FIRST if first else GenerationForm.FINAL
    return ImportedTenant(tenant, form, generation, node)


@pytest.mark.parametrize(
    ("generation", "next_one"), [(None, 1), (0, 1), (1, 2), (41, 42), (0xFFFF_FFFE, 0xFFFF_FFFF)]
)
def test_imported_tenants_go_on(case: Case, unique: str, generation: int | None, next_one: int) -> None:
    """The next number after an import is one above it; generation-less is below 0, and a state of its own."""
    offset = case.issuer.import_tenants([imported(unique, generation, "n")])
    state = case.issuer.tenant(unique)

    assert state is not None
    assert (state.generation, state.holder, state.imported) == (generation, "n", offset)
    assert case.issuer.attach("m", unique, generation=generation).generation == next_one


def test_a_node_re_attaches_what_was_imported(case: Case, unique: str) -> None:
    """The holder that an import names re-attaches, generation-less tenants included."""
    case.issuer.import_tenants([imported(f"{unique}-{g}", g, f"n-{unique}") for g in (None, 0, 7)])

    assert case.issuer.re_attach(f"n-{unique}") == {
        f"{unique}-None": 1,
        f"{unique}-0": 1,
        f"{unique}-7": 8,
    }


def test_an_import_is_valid_once(case: Case, unique: str) -> None:
    """A tenant that the log knows is not imported, and none of its import's others; a retry is answered."""
    first = case.issuer.import_tenants([imported(unique, 7)], request_id=unique)

    assert case.issuer.import_tenants([imported(unique, 7)], request_id=unique) == first
    with refused("tenant-known"):
        case.issuer.import_tenants([imported(f"{unique}-2", 1), imported(unique, 9)])
    assert case.issuer.tenant(f"{unique}-2") is None


def test_imported_generations_cover_what_comes_after(case: Case, unique: str) -> None:
    """An imported generation may delete from its import on; what was claimed before is never."""
    case.written(0, 1)
    start = case.issuer.barrier().ends[0]
    case.issuer.import_tenants([imported(unique, 7, "n")])

    assert case.window(unique, 7) == Window(start)
    assert case.window(unique, 6) is None


def test_importing_the_first_form(case: Case, unique: str, ask: Ask) -> None:
    """Nodes come with their numbers and node generations, their tenants may use them at once."""
    number = case.issuer.register_node(f"probe-{unique}").number + 1000
    node = f"n-{unique}"
    with refused("node-not-registered"):
        case.issuer.import_tenants([imported(unique, 5, node, first=True)])
    case.issuer.import_tenants([imported(unique, 5, node, first=True)], [ImportedNode(node, number, 12)])

    assert ask(unique, 5, Registration(node, number, 12)) is not None
    assert case.issuer.register_node(node).generation == 13
    assert case.issuer.attach(node, unique).generation == 6
    with refused("node-known"):
        case.issuer.import_tenants([], [ImportedNode(node, number + 1, 1)])


def test_generations_end_where_the_form_ends(case: Case, unique: str) -> None:
    """24 bits of attachment and of node generation, and 32 bits, are not outgrown: typed errors."""
    number = case.issuer.register_node(f"probe-{unique}").number + 2000
    node = f"n-{unique}"
    case.issuer.import_tenants(
        [
            imported(f"{unique}-first", MAX_PACKED_PART, node, first=True),
            imported(f"{unique}-final", 2**32 - 1),
        ],
        [ImportedNode(node, number, MAX_PACKED_PART)],
    )

    for call in (
        lambda: case.issuer.attach(node, f"{unique}-first"),
        lambda: case.issuer.attach(node, f"{unique}-final"),
        lambda: case.issuer.register_node(node),
    ):
        with refused("generations-exhausted"):
            call()


def test_a_registered_node_is_shown(case: Case, unique: str) -> None:
    """A node's state has its number and its node generations, the newest first; others have none."""
    one, two = case.issuer.register_node(unique), case.issuer.register_node(unique)
    state = case.issuer.node(unique)

    assert state is not None
    assert (state.number, state.generation) == (one.number, 2)
    assert [span.log_offset for span in state.history] == [two.log_offset, one.log_offset]
    assert case.issuer.node(f"{unique}-never") is None
