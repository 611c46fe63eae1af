"""Bearer tokens: who may call what, and that tokens are reported nowhere."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.issuing import refused

from sexton.deploy.local import Installation
from sexton.issuer.access import Access, Identity, Role, permit, permit_subjects
from sexton.issuer.client import IssuerClient, Subject
from sexton.issuer.operations.acknowledge_transaction import AcknowledgeTransaction
from sexton.issuer.operations.attach import Attach
from sexton.issuer.operations.barrier import Barrier
from sexton.issuer.operations.collect_transaction import CollectTransaction
from sexton.issuer.operations.commit_transaction import CommitTransaction
from sexton.issuer.operations.decommission_node import DecommissionNode
from sexton.issuer.operations.detach import Detach
from sexton.issuer.operations.drop import Drop
from sexton.issuer.operations.fence_tenant import FenceTenant
from sexton.issuer.operations.import_ import Import
from sexton.issuer.operations.import_transactions import ImportTransactions
from sexton.issuer.operations.list_transactions import ListTransactions
from sexton.issuer.operations.re_attach import ReAttach
from sexton.issuer.operations.register_node import RegisterNode
from sexton.issuer.operations.start_transaction import StartTransaction
from sexton.issuer.operations.upcall_re_attach import UpcallReAttach
from sexton.issuer.operations.upcall_validate import UpcallValidate
from sexton.issuer.operations.validate import Validate
from sexton.schemas.errors import InvalidSettings
from sexton.schemas.settings import explain, load

NODE, REAPER, OPERATOR = Identity(Role.NODE, "n1"), Identity(Role.REAPER), Identity(Role.OPERATOR)
TOKENS = {
    "secret-n1": {"role": "node", "node": "n1"},
    "secret-n2": {"role": "node", "node": "n2"},
    "secret-reaper": {"role": "reaper"},
    "secret-operator": {"role": "operator"},
}
CALLS: list[tuple[Any, set[str]]] = [
    (Attach("n1"), {"n1", "operator"}),
    (Attach("n2"), {"operator"}),
    (ReAttach("n1"), {"n1", "operator"}),
    (ReAttach("n2"), {"operator"}),
    (Detach("n1", "t"), {"n1", "operator"}),
    (Detach("n2", "t"), {"operator"}),
    (RegisterNode("n1"), {"n1", "operator"}),
    (RegisterNode("n2"), {"operator"}),
    (UpcallReAttach("n1"), {"n1", "operator"}),
    (UpcallReAttach(1), {"operator"}),
    (Validate([]), {"n1", "reaper", "operator"}),
    (UpcallValidate([]), {"n1", "reaper", "operator"}),
    (Barrier(), {"reaper"}),
    (Drop("t"), {"operator"}),
    (FenceTenant("t"), {"operator"}),
    (Import(), {"operator"}),
    (StartTransaction("n1", "t"), {"n1", "operator"}),
    (StartTransaction("n2", "t"), {"operator"}),
    (CommitTransaction("t", 1, "n1"), {"n1", "operator"}),
    (CommitTransaction("t", 1, "n2"), {"operator"}),
    (AcknowledgeTransaction("t", 1, "n1"), {"n1", "operator"}),
    (AcknowledgeTransaction("t", 1, "n2"), {"operator"}),
    (AcknowledgeTransaction("t", 1, why="w"), {"operator"}),
    (DecommissionNode("n1", datetime(2026, 1, 1, tzinfo=UTC)), {"operator"}),
    (CollectTransaction("t", 1), {"reaper", "operator"}),
    (ImportTransactions([]), {"operator"}),
    (ListTransactions("n1"), {"n1", "reaper", "operator"}),
    (ListTransactions("n2"), {"reaper", "operator"}),
    (ListTransactions(), {"reaper", "operator"}),
]


@pytest.mark.parametrize(("body", "allowed"), CALLS)
def test_who_may_call_what(body: Any, allowed: set[str]) -> None:
    """Nodes act as themselves and list what is their own; people, and jobs, say what is not a node's."""
    for name, identity in (("n1", NODE), ("reaper", REAPER), ("operator", OPERATOR)):
        if name in allowed:
            permit(identity, body)
        else:
            with refused("forbidden"):
                permit(identity, body)
    permit(None, body)


def test_a_node_asks_about_its_own_generations() -> None:
    """A node that asks about another node's generation is refused; the reaper asks about all."""
    permit_subjects(NODE, ["n1", None])
    permit_subjects(REAPER, ["n1", "n2"])
    with refused("forbidden"):
        permit_subjects(NODE, ["n1", "n2"])


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic secret-n1", "secret-n1", "bearer  x"]
)
def test_without_a_known_token(header: str | None) -> None:
    """A missing or wrong token is refused with 401; without any tokens set none is needed."""
    with refused("unauthenticated"):
        Access.parse(json.dumps(TOKENS)).identify(header)
    assert Access.parse(None).identify(header) is None


def test_tokens_from_a_file(tmp_path: Path) -> None:
    """The setting may name a file."""
    (tmp_path / "tokens.json").write_text(json.dumps(TOKENS))
    access = Access.parse(str(tmp_path / "tokens.json"))

    assert access.identify("Bearer secret-n1") == NODE
    assert access.identify("bearer secret-reaper") == REAPER


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        '{"secret-x"}',
        '{"secret-x": 5}',
        '{"secret-x": {"role": "king"}}',
        '{"secret-x": {"role": "node"}}',
        '{"secret-x": {"role": "reaper", "node": "n"}}',
        '{"secret-x": {"role": "reaper", "colour": "red"}}',
        '{"secret x": {"role": "reaper"}}',
        '{"": {"role": "reaper"}}',
        "/nowhere/secret-x",
    ],
)
def test_wrong_tokens_are_told_without_the_token(text: str) -> None:
    """A setting that cannot be read is an error that names no token: never an issuer without access rules."""
    with pytest.raises(InvalidSettings) as wrong:
        Access.parse(text)

    assert "SEXTON_ISSUER_TOKENS" in str(wrong.value)
    assert "secret" not in str(wrong.value)


def test_settings_mask_tokens() -> None:
    """`config show` says that tokens are set, and nothing of them."""
    rows = explain({"SEXTON_ISSUER_TOKENS": json.dumps(TOKENS), "SEXTON_ISSUER_TOKEN": "secret-n1"})

    assert "secret" not in " ".join(row.value for row in rows)
    assert {r.value for r in rows if r.variable.startswith("SEXTON_ISSUER_TOKEN")} == {"********"}


@pytest.mark.real
def test_a_service_with_tokens(fresh: Installation) -> None:
    """With tokens on, each client does what its role may, and the log of the process names none of them."""
    fresh.env["SEXTON_ISSUER_TOKENS"] = json.dumps(TOKENS)
    fresh.start_issuer()
    url = fresh.settings.issuer_url
    clients = {name: IssuerClient(url, token=f"secret-{name}") for name in ("n1", "n2", "reaper", "operator")}
    n1, n2, reaper, operator = clients.values()

    assert n1.attach("n1", "t").generation == 1
    assert operator.attach("n2", "u").generation == 1
    assert reaper.barrier().log_offset > 0
    assert [len(c.validate([Subject("t", 1, 0)]).windows) for c in (n1, reaper, operator)] == [1, 1, 1]
    for call in (
        lambda: n2.attach("n1", "t"),
        lambda: n2.validate([Subject("t", 1, 0)]),
        lambda: n1.barrier(),
        lambda: n1.drop("t"),
    ):
        with refused("forbidden"):
            call()
    with IssuerClient(url) as stranger, refused("unauthenticated"):
        stranger.tenant("t")
    with IssuerClient.of(load({"SEXTON_ISSUER_URL": url, "SEXTON_ISSUER_TOKEN": "secret-n1"})) as configured:
        assert configured.re_attach("n1") == {"t": 2}
    for client in clients.values():
        client.close()
    assert "secret-" not in fresh.issuer_log.read_text()
