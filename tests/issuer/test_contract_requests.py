"""What a request id is bound to, and what a call may name: one contract for the fake and the service."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.issuing import Case, refused
from tests.support.logs import timed

from sexton.issuer.client import Issuer, Subject
from sexton.issuer.operations.import_ import check_same_import
from sexton.issuer.state.state import Request
from sexton.schemas.errors import RequestRefused
from sexton.schemas.events import GenerationForm, ImportedNode, ImportedTenant

FINAL, FIRST = GenerationForm.FINAL, GenerationForm.FIRST


@pytest.mark.parametrize("call", ["attach", "re-attach", "register", "detach", "fence", "import", "drop"])
def test_a_request_id_ahead_of_the_clock(case: Case, unique: str, call: str) -> None:
    """A caller whose clock runs far ahead is told so, and its id moves nothing for the others."""
    case.issuer.attach("n", unique)
    now = int(time.time() * 1000)
    row = ImportedTenant(f"{unique}-i", FINAL, 1, None)
    calls: dict[str, Callable[[str], object]] = {
        "attach": lambda request_id: case.issuer.attach("n", unique, request_id),
        "re-attach": lambda request_id: case.issuer.re_attach(f"{unique}-n", request_id),
        "register": lambda request_id: case.issuer.register_node(f"{unique}-n", None, request_id),
        "detach": lambda request_id: case.issuer.detach("n", unique, request_id),
        "fence": lambda request_id: case.issuer.fence_tenant(unique, request_id),
        "import": lambda request_id: case.issuer.import_tenants([row], (), request_id),
        "drop": lambda request_id: case.issuer.drop(unique, request_id),
    }

    with pytest.raises(RequestRefused, match="ahead of the issuer's") as error:
        calls[call](timed(now + 90_000, hash(unique) % 2**32))
    assert (error.value.type, error.value.status) == ("request-id-ahead", 400)
    calls[call](timed(now + 30_000, hash(unique) % 2**32))


@pytest.mark.parametrize("off_s", [-400_000_000, -300, 300, 400_000_000])
def test_a_client_whose_clock_is_wrong_is_served(
    case: Case, unique: str, off_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes its ids itself: one without a time will do where the time in the first is refused."""
    real = time.time_ns
    monkeypatch.setattr(
        "sexton.issuer.state.request_ids.time.time_ns", lambda: real() + off_s * 1_000_000_000
    )

    assert case.issuer.attach("n", unique).generation == 1
    assert case.issuer.re_attach(f"{unique}-n") is not None


def an_import(unique: str) -> tuple[list[ImportedTenant], list[ImportedNode]]:
    """A tenant with a generation, one without, and a node."""
    tenants = [
        ImportedTenant(f"{unique}-a", FINAL, 7, None),
        ImportedTenant(f"{unique}-b", FINAL, None, None),
    ]
    return tenants, [ImportedNode(f"{unique}-n", zlib.crc32(unique.encode()) % 60_000, 3)]


def test_an_import_under_one_id(case: Case, unique: str) -> None:
    """The same import under the same id is answered, in any order, also after its tenants continued."""
    tenants, nodes = an_import(unique)
    first = case.issuer.import_tenants(tenants, nodes, unique)
    for tenant in tenants:
        case.issuer.attach("m", tenant.tenant)
    case.issuer.register_node(nodes[0].node)

    assert case.issuer.import_tenants(tenants[::-1], nodes, unique) == first
    assert case.issuer.attach("m", tenants[0].tenant).generation == 9


@pytest.mark.parametrize(
    "other", ["tenants", "fewer", "generation", "none", "some", "form", "holder", "node", "nodes", "no nodes"]
)
def test_another_import_under_a_known_id(case: Case, unique: str, other: str) -> None:
    """A request id is bound to all that an import names: tenants, generations, forms, holders and nodes."""
    tenants, nodes = an_import(unique)
    case.issuer.import_tenants(tenants, nodes, unique)
    with_, without = tenants
    asked: dict[str, tuple[list[ImportedTenant], list[ImportedNode]]] = {
        "tenants": ([replace(with_, tenant=f"{unique}-c"), replace(without, tenant=f"{unique}-d")], nodes),
        "fewer": ([with_], nodes),
        "generation": ([replace(with_, generation=8), without], nodes),
        "none": ([replace(with_, generation=None), without], nodes),
        "some": ([with_, replace(without, generation=1)], nodes),
        "form": ([with_, replace(without, form=FIRST)], nodes),
        "holder": ([with_, replace(without, node="m")], nodes),
        "node": (tenants, [replace(nodes[0], generation=4)]),
        "nodes": (tenants, [replace(nodes[0], node=f"{unique}-m")]),
        "no nodes": (tenants, []),
    }

    with refused("request-id-conflict"):
        case.issuer.import_tenants(*asked[other], unique)
    assert case.issuer.tenant(f"{unique}-c") is None


def test_an_import_whose_event_is_cut_off(unique: str) -> None:
    """Where the log no longer has the event the generations that are kept with the id are compared."""
    tenants, nodes = an_import(unique)
    known = Request("c", "import", None, 1, {0: 5}, {tenants[0].tenant: 7})

    check_same_import(known, None, tenants, nodes)
    for other in (
        [tenants[1]],
        [replace(tenants[0], generation=8)],
        [*tenants, replace(tenants[0], tenant="c")],
    ):
        with refused("request-id-conflict"):
            check_same_import(known, None, other, nodes)


def test_another_number_under_a_known_id(case: Case, unique: str) -> None:
    """The first answer is for who asks for the number that it names, or for any."""
    first = case.issuer.register_node(f"{unique}-n", None, unique)

    assert case.issuer.register_node(f"{unique}-n", first.number, unique) == first
    assert case.issuer.register_node(f"{unique}-n", None, unique) == first
    with refused("request-id-conflict"):
        case.issuer.register_node(f"{unique}-n", (first.number + 1) % 65536, unique)


def test_another_belief_under_a_known_id(case: Case, unique: str) -> None:
    """Who believed in another generation than the one that was superseded asks another question."""
    case.issuer.attach("n", unique)
    case.issuer.attach("n", unique, unique, generation=1)

    assert case.issuer.attach("n", unique, unique, generation=1).generation == 2
    for expected in (0, 2):
        with refused("request-id-conflict"):
            case.issuer.attach("n", unique, unique, generation=expected)


def test_i_6_a_used_request_id_is_no_answer_for_another_call(case: Case, unique: str) -> None:
    """I-6: under the id of a fence nothing else is carried out, and nothing is answered as if it had been."""
    node, other, used = f"n-{unique}", f"{unique}-2", f"{unique}-fence"
    for tenant in (unique, other):
        case.issuer.attach(node, tenant)
    assert case.issuer.fence_tenant(unique, request_id=used) == 2
    before = case.issuer.barrier().log_offset

    calls: tuple[Callable[[], object], ...] = (
        lambda: case.issuer.fence_tenant(other, request_id=used),
        lambda: case.issuer.drop(unique, request_id=used),
        lambda: case.issuer.detach(node, other, request_id=used),
        lambda: case.issuer.register_node(node, None, used),
        lambda: case.issuer.import_tenants([ImportedTenant(f"{unique}-3", FINAL, 1, None)], [], used),
    )
    for call in calls:
        with refused("request-id-conflict"):
            call()
    assert case.issuer.barrier().log_offset == before + 1


MANY = range(10_001)
WRONG: dict[str, Callable[[Issuer, str], object]] = {
    "tenant twice": lambda i, u: i.import_tenants([ImportedTenant(u, FINAL, 1, None)] * 2),
    "node twice": lambda i, u: i.import_tenants([], [ImportedNode(u, 1, 1), ImportedNode(u, 2, 1)]),
    "number twice": lambda i, u: i.import_tenants([], [ImportedNode(u, 1, 1), ImportedNode(f"{u}x", 1, 1)]),
    "generation below 0": lambda i, u: i.import_tenants([ImportedTenant(u, FINAL, -1, None)]),
    "generation too large": lambda i, u: i.import_tenants([ImportedTenant(u, FINAL, 2**32, None)]),
    "too large for its form": lambda i, u: i.import_tenants([ImportedTenant(u, FIRST, 2**24, None)]),
    "no name": lambda i, u: i.import_tenants([ImportedTenant("", FINAL, 1, None)]),
    "holder without a name": lambda i, u: i.import_tenants([ImportedTenant(u, FINAL, 1, "")]),
    "node without a name": lambda i, u: i.import_tenants([], [ImportedNode("", 1, 1)]),
    "number too large": lambda i, u: i.import_tenants([], [ImportedNode(u, 65536, 1)]),
    "node generation too large": lambda i, u: i.import_tenants([], [ImportedNode(u, 1, 2**24)]),
    "too many": lambda i, u: i.import_tenants(
        [ImportedTenant(f"{u}{n}", FINAL, 1, None) for n in range(10_001)]
    ),
    "number to register": lambda i, u: i.register_node(u, -1),
    "node to attach": lambda i, u: i.attach("", u),
    "long node": lambda i, u: i.re_attach("n" * 513),
    "long request id": lambda i, u: i.attach("n", u, "r" * 513),
    "tenant to detach": lambda i, u: i.detach("n", ""),
    "tenant to fence": lambda i, u: i.fence_tenant("t" * 513),
    "partition": lambda i, u: i.validate([Subject(u, 1, -1)]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_no_call_may_name(case: Case, unique: str, wrong: str) -> None:
    """Numbers without room, names that are empty, too long or given twice: refused, and nothing happens."""
    before = case.issuer.barrier().log_offset
    with refused("invalid-request"):
        WRONG[wrong](case.issuer, unique)

    assert case.issuer.barrier().log_offset == before + 1
    assert case.issuer.attach("n", unique).generation == 1
