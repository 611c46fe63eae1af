"""`sexton transactions`: what is open, doomed or uncollected, and what only people can say."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sexton.schemas.checks import check_instant
from sexton.schemas.errors import RequestRefused, UsageError
from sexton.schemas.settings import load
from sexton.schemas.text import counted

if TYPE_CHECKING:
    from sexton.issuer.answers import TransactionsState, TransactionState
    from sexton.issuer.client import IssuerClient

__all__ = ["app", "describe", "found_of", "json_of"]

app = typer.Typer(
    help="MVCC transactions: what is open, rejected or uncollected, and what only people can say.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
_LIST = """\b
Examples:
  sexton transactions list
  sexton transactions list --node node-7 --format json
"""
_SHOW = """\b
Examples:
  sexton transactions show tenant-42
  sexton transactions show tenant-42 --format json | jq .last_committed
"""
_ACKNOWLEDGE = """\b
Examples:
  sexton transactions acknowledge tenant-42 23 --why 'node-7 was shut down'
"""
_DECOMMISSION = """\b
Examples:
  sexton transactions decommission n7 --credentials-revoked-at 2026-01-01T00Z
"""
_YES = typer.Option("--yes", help="do not ask; without a terminal nobody is asked, and it is needed")


class _Format(StrEnum):
    TEXT = "text"
    JSON = "json"


_FORMAT = typer.Option("--format", help="text or json")


@app.command("list", epilog=_LIST, short_help="transactions that are open, or rejected and not collected")
def list_(
    node: Annotated[str | None, typer.Option(help="those of one node alone")] = None,
    form: Annotated[_Format, _FORMAT] = _Format.TEXT,
) -> None:
    """Print the transactions that are open, or rejected and not collected."""
    with _issuer() as issuer:
        found = issuer.unfinished_transactions(node)
    for each in found:
        if form is _Format.JSON:
            print(json.dumps(_row(each)))
        else:
            print(f"{each.tenant}  {_line(each)}")
    print(counted(len(found), "transaction"), file=sys.stderr)


@app.command(epilog=_SHOW, short_help="one tenant's transactions")
def show(
    tenant: Annotated[str, typer.Argument(help="name of the tenant")],
    form: Annotated[_Format, _FORMAT] = _Format.TEXT,
) -> None:
    """Print a tenant's transactions, with the log offsets behind them."""
    with _issuer() as issuer:
        found = found_of(issuer, tenant)
    print(json.dumps(json_of(found)) if form is _Format.JSON else describe(found))


@app.command(epilog=_ACKNOWLEDGE, short_help="say that every upload of a rejected one has ceased")
def acknowledge(
    tenant: Annotated[str, typer.Argument(help="name of the tenant")],
    transaction: Annotated[int, typer.Argument(help="its number")],
    why: Annotated[str, typer.Option(help="how you know it; kept in the log")],
    yes: Annotated[bool, _YES] = False,
) -> None:
    """Say in its node's place that every upload in the name of a rejected transaction has ceased.

    What it wrote may be deleted from then on: an upload that still comes is lost, or lies there for ever.
    """
    asked = f"no upload of transaction {transaction} of {tenant} can come any more, and what it wrote may go?"
    with _issuer() as issuer:
        found = found_of(issuer, tenant)
        mine = next((each for each in found.transactions if each.transaction == transaction), None)
        if mine is not None:
            print(_line(mine), file=sys.stderr)
        _confirm(yes, asked)
        offset = issuer.acknowledge_transaction(tenant, transaction, why=why)
    print(f"acknowledged at log offset {offset}", file=sys.stderr)


@app.command(epilog=_DECOMMISSION, short_help="end a node for good: what it has not committed may go")
def decommission(
    node: Annotated[str, typer.Argument(help="name of the node, which is never used again")],
    revoked_at: Annotated[
        str,
        typer.Option(
            "--credentials-revoked-at",
            metavar="INSTANT",
            help="from when on the store refuses the node: ISO 8601 with an offset",
        ),
    ],
    yes: Annotated[bool, _YES] = False,
) -> None:
    """End a node for good; its open and rejected transactions are rejected and acknowledged.

    The issuer refuses it until the node's credentials for the store have been revoked for as long as
    SEXTON_ISSUER_REVOCATION_DELAY_S says: what a store still lets through would be an upload of a dead node.
    """
    instant = _instant(revoked_at)
    with _issuer() as issuer:
        found = issuer.unfinished_transactions(node)
        for each in found:
            print(f"{each.tenant}  {_line(each)}", file=sys.stderr)
        _confirm(
            yes,
            f"the credentials of {node} are revoked since {instant.isoformat()}, it never comes back, and"
            f" {counted(len(found), 'transaction')} may go?",
        )
        offset = issuer.decommission_node(node, instant)
    print(f"decommissioned at log offset {offset}", file=sys.stderr)


def found_of(issuer: IssuerClient, tenant: str) -> TransactionsState:
    """Return a tenant's transactions; raises RequestRefused `unknown-transactions`."""
    found = issuer.transactions(tenant)
    if found is None:
        raise RequestRefused(
            "unknown-transactions",
            f"the log knows no transactions of the tenant: {tenant}",
            status=404,
            hint="is the name right? `sexton issuer show` tells a tenant's form",
        )
    return found


def describe(found: TransactionsState) -> str:
    """Return a tenant's transactions for people."""
    dropped = " (dropped)" if found.dropped else ""
    lines = [
        f"tenant          {found.tenant}{dropped}",
        f"newest          {_or_none(found.newest)}",
        f"last committed  {_or_none(found.last_committed)}",
        f"number in keys  {found.number_place}",
        f"log offset      {found.log_offset}",
    ]
    if found.imported:
        lines.insert(3, f"imported        up to {found.imported}")
    return "\n".join([*lines, *(f"  {_line(each)}" for each in found.transactions)])


def json_of(found: TransactionsState) -> dict[str, Any]:
    """Return a tenant's transactions as they are over HTTP."""
    return {
        "log_offset": found.log_offset,
        "tenant": found.tenant,
        "newest": found.newest,
        "last_committed": found.last_committed,
        "number_place": found.number_place,
        "imported": found.imported,
        "dropped": found.dropped,
        "transactions": [_row(each) for each in found.transactions],
    }


def _issuer() -> IssuerClient:
    from sexton.issuer.client import IssuerClient

    return IssuerClient.of(load())


def _row(found: TransactionState) -> dict[str, Any]:
    row: dict[str, Any] = {
        "tenant": found.tenant,
        "transaction": found.transaction,
        "node": found.node,
        "status": found.status,
        "log_offset": found.log_offset,
        "changed": found.changed,
        "base": found.base,
        "from": list(found.start),
    }
    return row if found.until is None else row | {"until": list(found.until)}


def _line(found: TransactionState) -> str:
    return (
        f"transaction {found.transaction}  node {found.node}  {found.status} since log offset {found.changed}"
        f"  started at {found.log_offset} on {_or_none(found.base)}"
    )


def _or_none(number: int | None) -> str:
    return "none" if number is None else str(number)


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"not an ISO 8601 instant: {text}") from error
    if instant.tzinfo is None:
        raise UsageError(f"an instant needs an offset: {text}", hint="such as 2026-01-01T00:00:00+00:00")
    return check_instant(instant).astimezone(UTC)


def _confirm(yes: bool, question: str, ask: Callable[..., bool] = typer.confirm) -> None:
    """Raise UsageError where nobody can be asked, and typer.Abort where somebody says no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            "this cannot be taken back, and nobody can be asked here", hint="--yes says that you know"
        )
    if not ask(question, err=True):
        raise typer.Abort
