"""`sexton transactions` as a process, and transactions in `sexton issuer show`, `scan` and `import`."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from tests.support.issuing import refused, sexton

from sexton.deploy.local import Installation
from sexton.issuer.cli.migration import Plan, chunks, read_plan
from sexton.issuer.cli.scanning import check_not_below, scan
from sexton.issuer.cli.transaction_commands import _confirm
from sexton.issuer.client import IssuerClient
from sexton.issuer.state.transactions import Status
from sexton.schemas.errors import UsageError
from sexton.schemas.events import ImportedTransactions, NumberPlace

FIRST, LAST = NumberPlace.FIRST, NumberPlace.LAST


@pytest.mark.real
def test_what_is_open_and_what_is_forced(shared: Installation, issuer: IssuerClient, unique: str) -> None:
    """A rejected transaction is listed, shown, acknowledged with a reason; an open one is not forced."""
    node = f"n-{unique}"
    issuer.start_transaction(node, unique)
    issuer.start_transaction("other", unique)

    listed = sexton(shared, "transactions", "list", "--node", node, "--format", "json")
    (row,) = [json.loads(line) for line in listed.stdout.splitlines()]
    assert (row["tenant"], row["transaction"], row["status"]) == (unique, 1, "reject-pending")
    assert "transaction 1  node" in sexton(shared, "transactions", "list").stdout
    why = ("--why", "its machine is gone")
    asked = sexton(shared, "transactions", "acknowledge", unique, "1", *why)
    assert (asked.returncode, "--yes says that you know" in asked.stderr) == (2, True)
    refusal = sexton(shared, "transactions", "acknowledge", unique, "2", *why, "--yes")
    assert (refusal.returncode, "is open" in refusal.stderr) == (1, True)
    assert "a later start rejects it" in refusal.stderr
    done = sexton(shared, "transactions", "acknowledge", unique, "1", *why, "--yes")
    assert (done.returncode, "acknowledged at log offset" in done.stderr) == (0, True)

    shown = sexton(shared, "transactions", "show", unique).stdout
    assert "transaction 1  node" in shown
    assert "reject-acknowledged since log offset" in shown
    over_issuer = json.loads(sexton(shared, "issuer", "show", unique, "--format", "json").stdout)
    assert (over_issuer["form"], over_issuer["newest"]) == ("transactions", 2)
    assert (
        sexton(shared, "issuer", "show", unique).stdout
        == sexton(shared, "transactions", "show", unique).stdout
    )
    missing = sexton(shared, "transactions", "show", f"{unique}-x")
    assert (missing.returncode, "knows no transactions" in missing.stderr) == (1, True)


@pytest.mark.real
def test_m_5_decommission(shared: Installation, issuer: IssuerClient, unique: str) -> None:
    """M-5: what the node has not committed is told first; refused while the revocation is too recent."""
    node = f"n-{unique}"
    issuer.start_transaction(node, unique)
    recent = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
    old = (datetime.now(UTC) - timedelta(hours=2)).isoformat()
    command = ("transactions", "decommission", node, "--credentials-revoked-at")

    early = sexton(shared, *command, recent, "--yes")
    assert (early.returncode, "3600 s are needed" in early.stderr) == (1, True)
    assert sexton(shared, *command, old).returncode == 2
    assert sexton(shared, *command, old.removesuffix("+00:00"), "--yes").returncode == 2
    assert sexton(shared, *command, "yesterday", "--yes").returncode == 2
    ancient = sexton(shared, *command, "0001-01-01T00:00:00+14:00", "--yes")
    assert (ancient.returncode, "before the year 1" in ancient.stderr) == (2, True)
    found = issuer.transactions(unique)
    assert found is not None
    assert found.transactions[0].status is Status.OPEN

    done = sexton(shared, *command, old, "--yes")
    assert (done.returncode, unique in done.stderr) == (0, True)
    found = issuer.transactions(unique)
    assert found is not None
    assert found.transactions[0].status is Status.REJECT_ACKNOWLEDGED


def test_somebody_who_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a terminal it asks, and a no ends it."""
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    _confirm(False, "?", lambda *_, **__: True)
    with pytest.raises(typer.Abort):
        _confirm(False, "?", lambda *_, **__: False)


@pytest.mark.real
def test_m_16_an_import_from_a_file(
    shared: Installation, issuer: IssuerClient, unique: str, tmp_path: Path
) -> None:
    """M-16: a tenant starts above every number in its keys; the same file may be run again."""
    file = tmp_path / "tenants.jsonl"
    rows = [
        {"tenant": unique, "form": "transactions", "newest": 5, "last_committed": 4, "number_place": "last"},
        {"tenant": f"{unique}-g", "generation": 7},
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    for _ in "12":
        done = sexton(shared, "issuer", "import", str(file))
        assert (done.returncode, "imported: 2 tenants" in done.stderr) == (0, True), done.stderr

    started = issuer.start_transaction("n", unique)
    assert (started.transaction, started.last_committed, started.number_place) == (6, 4, LAST)
    assert issuer.attach("n", f"{unique}-g").generation == 8
    assert "imported        up to 5" in sexton(shared, "issuer", "show", unique).stdout


@pytest.mark.parametrize(
    "row",
    [
        '{"tenant": "t", "form": "transactions"}',
        '{"tenant": "t", "form": "transactions", "newest": -1}',
        '{"tenant": "t", "form": "transactions", "newest": null}',
        '{"tenant": "t", "form": "transactions", "newest": 5, "last_committed": 6}',
        '{"tenant": "t", "form": "transactions", "newest": 5, "number_place": "middle"}',
        '{"tenant": "t", "form": "transactions", "newest": 5, "generation": 5}',
        '{"tenant": "t", "form": "transactions", "newest": 5, "node": "n"}',
        '{"tenant": "t", "form": "transactions", "newest": 5, "other": 1}',
        '{"form": "transactions", "newest": 5}',
        '{"tenant": "t", "generation": 5, "newest": 5}',
        '{"tenant": "t", "generation": 5}\n{"tenant": "t", "form": "transactions", "newest": 5}',
        '{"tenant": "t", "form": "transactions", "newest": 5}\n{"tenant": "t", "generation": 5}',
        "\n".join(['{"tenant": "t", "form": "transactions", "newest": 5}'] * 2),
    ],
)
def test_rows_that_are_refused(tmp_path: Path, row: str) -> None:
    """Whatever is not understood is an error, and nothing of the file is imported."""
    file = tmp_path / "tenants"
    file.write_text(row)
    with pytest.raises(UsageError):
        read_plan(file)


def test_csv_rows(tmp_path: Path) -> None:
    """Columns of other forms stay empty."""
    file = tmp_path / "tenants.csv"
    file.write_text(
        "tenant,form,newest,last_committed,number_place\nt,transactions,5,,\nu,transactions,6,6,last\n"
    )
    rows = [ImportedTransactions("t", 5, None, LAST), ImportedTransactions("u", 6, 6, LAST)]

    assert read_plan(file).transactions == rows
    assert [chunk.transactions for chunk in chunks(Plan([], [], rows))] == [rows]


@pytest.mark.parametrize(
    ("place", "newest", "is_low"),
    [(FIRST, 22, True), (FIRST, 23, False), (LAST, 40, True), (LAST, 41, False)],
)
def test_a_transaction_number_below_what_is_there_is_refused(
    place: NumberPlace, newest: int, is_low: bool
) -> None:
    """Started below what stands in its keys, a new transaction would have an old one's names."""
    found = scan(["p/t/23/x", "p/t/9/y.41", "p/t/z", "p/u/99/x"], "p/", ["t"])
    plan = Plan([], [], [ImportedTransactions("t", newest, None, place)])
    if is_low:
        with refused("below-scan"):
            check_not_below(plan, found)
    else:
        check_not_below(plan, found)
