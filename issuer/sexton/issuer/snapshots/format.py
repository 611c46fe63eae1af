"""The folded state as chunks of columns, and back.

One state has one encoding: two readers that agree write the same bytes, so the checksum of a snapshot can be
compared with that of a state which was folded from the log.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from sexton.issuer.snapshots import transaction_rows
from sexton.issuer.snapshots.transaction_rows import row_of, transaction_cells
from sexton.issuer.state.history import HasHistory
from sexton.issuer.state.state import Issue, Numbered, Request, State, Tenant
from sexton.schemas.errors import SextonError
from sexton.schemas.events import GenerationForm, SnapshotChunk, SnapshotManifest

__all__ = ["READABLE", "SNAPSHOT_FORMAT", "BadSnapshot", "Restorer", "encode"]

SNAPSHOT_FORMAT = 2
READABLE = (1, SNAPSHOT_FORMAT)
"""Formats that can be restored; 1 knows no transactions."""
_DROPPED, _FIRST_FORM, _TRANSACTIONS = 1, 2, 4
_FLAGS = {GenerationForm.FIRST: _FIRST_FORM, GenerationForm.TRANSACTIONS: _TRANSACTIONS}
_CELLS = 200_000  # of one chunk: about a megabyte
_CELL_BYTES = 5
_SLICE = 50_000  # cells of one row in one chunk; a longer row continues in the next
_T = TypeVar("_T")
_COLUMNS = tuple(name for name in SnapshotChunk.__dataclass_fields__ if name != "number")


class BadSnapshot(SextonError):
    """A snapshot that cannot be used: an older one, or the whole log, is read instead."""


def encode(state: State) -> Iterator[SnapshotChunk]:
    """Yield the chunks of a state, which must not change meanwhile."""
    return _Encoder(state).chunks()


class _Encoder:
    def __init__(self, state: State) -> None:
        self._state = state
        self._number = 0
        self._highs: dict[bytes, int] = {}
        self._issues: dict[tuple[int, str | None], int] = {}
        self._tenants: dict[str, int] = {}
        self._clear()

    def _clear(self) -> None:
        self._columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        self._texts: dict[str, int] = {}
        self._cells = 0

    def chunks(self) -> Iterator[SnapshotChunk]:
        for rows in (
            self._tenant_rows,
            self._node_rows,
            self._holder_rows,
            self._transaction_rows,
            self._request_rows,
        ):
            for cells in rows():
                self._cells += cells
                if self._cells >= _CELLS:
                    yield self._flush()
        yield self._flush()

    def _flush(self) -> SnapshotChunk:
        columns = self._columns | {"texts": list(self._texts)}
        chunk = SnapshotChunk(number=self._number, **columns)
        self._number += 1
        self._clear()
        return chunk

    def _text(self, text: str) -> int:
        found = self._texts.get(text)
        if found is None:
            found = self._texts[text] = len(self._texts)
            self._cells += 1 + len(text) // _CELL_BYTES
        return found

    def _issue(self, issue: Issue) -> int:
        key = (issue.log_offset, issue.node)
        found = self._issues.get(key)
        if found is None:
            found = self._issues[key] = len(self._issues)
            self._columns["issue_log_offsets"].append(issue.log_offset)
            self._columns["issue_nodes"].append(-1 if issue.node is None else self._text(issue.node))
            self._columns["issue_highs"].append(self._high(issue.high))
            self._cells += 3
        return found

    def _high(self, high: Sequence[int]) -> int:
        key = array("q", high).tobytes()
        found = self._highs.get(key)
        if found is None:
            found = self._highs[key] = len(self._highs)
            self._columns["high_counts"].append(len(high))
            self._columns["high_offsets"].extend(high)
            self._cells += 1 + len(high)
        return found

    def _tenant_rows(self) -> Iterator[int]:
        for number, tenant in enumerate(self._state):
            self._tenants[tenant.name] = number
            flags = _DROPPED * tenant.dropped + _FLAGS.get(tenant.form, 0)
            for issues in _slices(tenant.issues):
                columns = self._columns
                columns["tenant_names"].append(tenant.name)
                columns["tenant_flags"].append(flags)
                columns["tenant_firsts"].append(tenant.first)
                columns["tenant_imported"].append(-1 if tenant.imported is None else tenant.imported)
                columns["tenant_counts"].append(len(issues))
                columns["tenant_issues"].extend(map(self._issue, issues))
                yield 4 + len(tenant.name) // _CELL_BYTES + len(issues)

    def _node_rows(self) -> Iterator[int]:
        for node in self._state.nodes():
            for issues in _slices(node.issues):
                columns = self._columns
                columns["node_names"].append(node.name)
                columns["node_numbers"].append(node.number)
                columns["node_firsts"].append(node.first)
                columns["node_counts"].append(len(issues))
                columns["node_issues"].extend(map(self._issue, issues))
                yield 4 + len(node.name) // _CELL_BYTES + len(issues)

    def _holder_rows(self) -> Iterator[int]:
        for holder, held in self._state._held.items():
            for names in _slices(list(held)):
                self._columns["holder_names"].append(holder)
                self._columns["holder_counts"].append(len(names))
                self._columns["holder_tenants"].extend(map(self._tenants.__getitem__, names))
                yield 2 + len(holder) // _CELL_BYTES + len(names)

    def _transaction_rows(self) -> Iterator[int]:
        for tenant in self._state:
            if tenant.transactions is None:
                continue
            for part in _slices(list(tenant.transactions)):
                self._append(row_of(self._tenants[tenant.name], tenant.transactions, len(part)))
                for each in part:
                    self._append(transaction_cells(each, self._issue, self._high))
                yield 7 * (1 + len(part))
        self._columns["decommissioned"].extend(self._state.decommissioned)
        yield sum(1 + len(name) // _CELL_BYTES for name in self._state.decommissioned)

    def _append(self, cells: Mapping[str, int]) -> None:
        for column, cell in cells.items():
            self._columns[column].append(cell)

    def _request_rows(self) -> Iterator[int]:
        for request_id, request in self._state.requests:
            weight = self._state.requests.weight(request_id)
            places = _slices(list(request.offsets.items()))
            grants = _slices(list(request.granted.items()))
            for part in grants:
                yield self._request_row(request_id, request, weight, next(places, []), part)
                weight = 0
            for rest in places:
                yield self._request_row(request_id, request, 0, rest, [])

    def _request_row(
        self,
        request_id: str,
        request: Request,
        weight: int,
        places: Sequence[tuple[int, int]],
        grants: Sequence[tuple[str, int]],
    ) -> int:
        columns = self._columns
        columns["request_ids"].append(request_id)
        columns["request_callers"].append(self._text(request.caller))
        columns["request_operations"].append(self._text(request.operation))
        columns["request_nodes"].append(-1 if request.node is None else self._text(request.node))
        columns["request_parts"].append(request.parts)
        columns["request_weights"].append(weight)
        columns["request_event_counts"].append(len(places))
        columns["request_event_parts"].extend(part for part, _ in places)
        columns["request_event_offsets"].extend(offset for _, offset in places)
        columns["request_grant_counts"].append(len(grants))
        columns["request_grant_owners"].extend(self._owner(name) for name, _ in grants)
        columns["request_grant_numbers"].extend(number for _, number in grants)
        return 8 + len(request_id) // _CELL_BYTES + 2 * (len(places) + len(grants))

    def _owner(self, name: str) -> int:
        tenant = self._tenants.get(name)
        return -1 - self._text(name) if tenant is None else tenant


class Restorer:
    """Builds a state from chunks; each method raises BadSnapshot for what no writer writes."""

    def __init__(self) -> None:
        self._state = State()
        self._highs: list[Sequence[int]] = []
        self._issues: list[Issue] = []
        self._tenants: list[Tenant] = []
        self._nodes: dict[str, str] = {}

    def add(self, chunk: SnapshotChunk) -> None:
        """Take the next chunk."""
        try:
            self._add_issues(chunk)
            self._add_tenants(chunk)
            self._add_nodes(chunk)
            self._add_holders(chunk)
            transaction_rows.read(chunk, self._tenants, self._issues, self._highs)
            self._state.decommissioned.update(dict.fromkeys(chunk.decommissioned))
            self._add_requests(chunk)
        except (IndexError, ValueError, KeyError) as error:
            raise BadSnapshot(f"chunk {chunk.number} does not fit together: {error!r}") from error

    def finish(self, manifest: SnapshotManifest) -> State:
        """Return the state; raises BadSnapshot when it is not what the manifest says."""
        state = self._state
        found = len(state), sum(1 for _ in state.nodes()), len(state.requests)
        if found != (manifest.tenants, manifest.nodes, manifest.requests):
            raise BadSnapshot(f"its chunks hold other numbers of tenants, nodes, requests: {found}")
        state.genesis = manifest.genesis
        state.next_offset = manifest.log_offset + 1
        state.high = array("q", manifest.high)
        state.requests.mark = manifest.request_mark
        state.cuts.restore(manifest.floor, _closed([*self._tenants, *state.nodes()]))
        return state

    def _node(self, name: str) -> str:
        return self._nodes.setdefault(name, name)  # one text for each node, not one for each number

    def _add_issues(self, chunk: SnapshotChunk) -> None:
        offsets = iter(chunk.high_offsets)
        self._highs += [array("q", islice(offsets, count)) for count in chunk.high_counts]
        texts = [*map(self._node, chunk.texts), None]
        rows = zip(chunk.issue_log_offsets, chunk.issue_nodes, chunk.issue_highs, strict=True)
        self._issues += [Issue(offset, texts[node], self._highs[high]) for offset, node, high in rows]

    def _add_tenants(self, chunk: SnapshotChunk) -> None:
        issues = _taker(chunk.tenant_issues, self._issues.__getitem__)
        known, tenants = self._state._tenants, self._tenants
        rows = zip(
            chunk.tenant_names,
            chunk.tenant_flags,
            chunk.tenant_firsts,
            chunk.tenant_imported,
            chunk.tenant_counts,
            strict=True,
        )
        for name, flags, first, imported, count in rows:
            if tenants and tenants[-1].name == name:
                tenants[-1].issues += issues(count)
                continue
            form = next((f for f, flag in _FLAGS.items() if flags & flag), GenerationForm.FINAL)
            tenant = Tenant(name, first, issues(count), None, bool(flags & _DROPPED), form)
            tenant.imported = None if imported < 0 else imported
            known[name] = tenant
            tenants.append(tenant)

    def _add_nodes(self, chunk: SnapshotChunk) -> None:
        issues = _taker(chunk.node_issues, self._issues.__getitem__)
        rows = zip(chunk.node_names, chunk.node_numbers, chunk.node_firsts, chunk.node_counts, strict=True)
        for name, number, first, count in rows:
            self._state._enrol(self._node(name), number, first).issues += issues(count)

    def _add_holders(self, chunk: SnapshotChunk) -> None:
        tenants = _taker(chunk.holder_tenants, self._tenants.__getitem__)
        for name, count in zip(chunk.holder_names, chunk.holder_counts, strict=True):
            holder = self._node(name)
            held = self._state._held.setdefault(holder, {})
            for tenant in tenants(count):
                tenant.holder = holder
                held[tenant.name] = None

    def _add_requests(self, chunk: SnapshotChunk) -> None:
        texts = [*map(self._node, chunk.texts), None]
        parts = _taker(chunk.request_event_parts, int)
        offsets = _taker(chunk.request_event_offsets, int)
        owners = _taker(chunk.request_grant_owners, lambda n: self._owner(chunk.texts, n))
        numbers = _taker(chunk.request_grant_numbers, int)
        rows = zip(
            chunk.request_ids,
            chunk.request_callers,
            chunk.request_operations,
            chunk.request_nodes,
            chunk.request_parts,
            chunk.request_weights,
            chunk.request_event_counts,
            chunk.request_grant_counts,
            strict=True,
        )
        for name, caller, operation, node, of, weight, events_, grants in rows:
            request = Request(str(texts[caller]), str(texts[operation]), texts[node], of)
            bound = self._state.requests.restore(name, request, weight)
            bound.offsets.update(zip(parts(events_), offsets(events_), strict=True))
            bound.granted.update(zip(owners(grants), numbers(grants), strict=True))

    def _owner(self, texts: Sequence[str], number: int) -> str:
        return self._tenants[number].name if number >= 0 else texts[-1 - number]


def _slices(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Cut a row; an empty one is one slice."""
    for start in range(0, max(1, len(items)), _SLICE):
        yield items[start : start + _SLICE]


def _taker(column: Sequence[int], convert: Callable[[int], _T]) -> Callable[[int], list[_T]]:
    """Return what takes the next so many cells of a column; it raises ValueError when there are too few."""
    cells = iter(column)

    def take(count: int) -> list[_T]:
        taken = [convert(cell) for cell in islice(cells, count)]
        if len(taken) != count:
            raise ValueError(f"a column is too short: {count} cells wanted, {len(taken)} left")
        return taken

    return take


def _closed(owners: Sequence[Numbered]) -> Iterator[tuple[Sequence[int], HasHistory]]:
    """Yield each superseded window with its end, in the order of the log."""
    found: list[tuple[int, Sequence[int], HasHistory]] = []
    for owner in owners:
        found += [(issue.log_offset, issue.high, owner) for issue in owner.issues[1:]]
        if isinstance(owner, Tenant) and owner.transactions is not None:
            found += owner.transactions.closings()
    for _, high, closing in sorted(found, key=lambda closed: closed[0]):
        yield high, closing
