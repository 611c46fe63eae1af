"""Transactions as columns of a snapshot's chunks, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sexton.issuer.state.state import Issue, Tenant
from sexton.issuer.state.transactions import Status, Transaction, Transactions
from sexton.schemas.events import NumberPlace, SnapshotChunk

__all__ = ["read", "row_of", "transaction_cells"]

# Part of the snapshot's format: never reordered.
_STATUSES = (
    Status.OPEN,
    Status.COMMITTED,
    Status.REJECT_PENDING,
    Status.REJECT_ACKNOWLEDGED,
    Status.COLLECTED,
)
_PLACES = (NumberPlace.FIRST, NumberPlace.LAST)


def row_of(number: int, owner: Transactions, count: int) -> Mapping[str, int]:
    """Return what the columns `transactional_*` hold for a tenant; `count` of its transactions follow."""
    return {
        "transactional_tenants": number,
        "transactional_newest": _or_none(owner.newest),
        "transactional_committed": _or_none(owner.committed),
        "transactional_imported": owner.imported,
        "transactional_places": _PLACES.index(owner.place),
        "transactional_changed": owner.changed,
        "transactional_counts": count,
    }


def transaction_cells(
    found: Transaction, issue: Callable[[Issue], int], high: Callable[[Sequence[int]], int]
) -> Mapping[str, int]:
    """Return what the columns `transaction_*` hold for one; `issue` and `high` number what is shared."""
    closed = -1 if found.closed is None else issue(Issue(found.closed[0], None, found.closed[1]))
    return {
        "transaction_numbers": found.number,
        "transaction_statuses": _STATUSES.index(found.status),
        "transaction_bases": _or_none(found.base),
        "transaction_starts": issue(Issue(found.log_offset, found.node, found.start)),
        "transaction_changed": found.changed,
        "transaction_untils": -1 if found.until is None else high(found.until),
        "transaction_closed": closed,
    }


def read(
    chunk: SnapshotChunk, tenants: Sequence[Tenant], issues: Sequence[Issue], highs: Sequence[Sequence[int]]
) -> None:
    """Give tenants the transactions of a chunk; raises IndexError, ValueError for what no writer writes."""
    rows = zip(
        chunk.transactional_tenants,
        chunk.transactional_newest,
        chunk.transactional_committed,
        chunk.transactional_imported,
        chunk.transactional_places,
        chunk.transactional_changed,
        chunk.transactional_counts,
        strict=True,
    )
    left = _transactions(chunk, issues, highs)
    for number, newest, committed, imported, place, changed, count in rows:
        tenant = tenants[_index(number)]
        if tenant.transactions is None:
            tenant.transactions = Transactions(
                _PLACES[_index(place)], _given(newest), _given(committed), imported, changed
            )
        for _ in range(count):
            found = next(left, None)
            if found is None:
                raise ValueError(f"transactions of {tenant.name} are missing")
            tenant.transactions.kept[found.number] = found
    if next(left, None) is not None:
        raise ValueError("transactions of no tenant")


def _transactions(
    chunk: SnapshotChunk, issues: Sequence[Issue], highs: Sequence[Sequence[int]]
) -> Iterator[Transaction]:
    cells = zip(
        chunk.transaction_numbers,
        chunk.transaction_statuses,
        chunk.transaction_bases,
        chunk.transaction_starts,
        chunk.transaction_changed,
        chunk.transaction_untils,
        chunk.transaction_closed,
        strict=True,
    )
    for number, status, base, start, changed, until, closed in cells:
        started = issues[_index(start)]
        if started.node is None:
            raise ValueError(f"transaction {number} without a node")
        found = Transaction(number, started.node, started.log_offset, started.high, _given(base))
        found.move(_STATUSES[_index(status)], changed)
        found.until = None if until < 0 else highs[until]
        if closed >= 0:
            found.closed = (issues[closed].log_offset, issues[closed].high)
        yield found


def _or_none(number: int | None) -> int:
    return -1 if number is None else number


def _given(number: int) -> int | None:
    return None if number < 0 else number


def _index(number: int) -> int:
    if number < 0:
        raise IndexError(f"not a row: {number}")
    return number
