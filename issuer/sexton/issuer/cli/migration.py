"""Bringing tenants in: what a file says that they have, and the calls that carry it out."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sexton.issuer.answers import NodeState
from sexton.schemas.checks import check_tenant
from sexton.schemas.errors import InvalidEvent, InvalidFormat, RequestRefused, UsageError
from sexton.schemas.events import (
    GenerationForm,
    ImportedNode,
    ImportedTenant,
    ImportedTransactions,
    NumberPlace,
)
from sexton.schemas.generations import MAX_GENERATION, MAX_NODE, MAX_PACKED_PART
from sexton.schemas.text import counted

__all__ = ["EXPORT_VERSION", "Chunk", "Mark", "Plan", "Settled", "chunks", "read_plan", "settle"]

EXPORT_VERSION = 2
"""The form of an export. In the first one rows do not say that they are an export's."""

_OF_TRANSACTIONS = ("newest", "last_committed", "number_place")
_COLUMNS = ("tenant", "generation", "node", "form", "number", "node_generation", "dropped", *_OF_TRANSACTIONS)
_EXPORTED = "exported"  # alone in the first line of an export, and a field of its rows
_LARGEST_CALL = 5_000
_NAMED = 5
_DIGITS = 20  # in a number; with leading zeros


class Mark(NamedTuple):
    """Where a row stands that says that it was exported, and as of which offset; of a tenant or a node."""

    where: str
    offset: object
    is_tenant: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What a file asks to be imported: `dropped` are tenants that are ended then.

    `exported` is what the first line of an export says, `marks` are its rows that say that they are.
    """

    tenants: Sequence[ImportedTenant]
    nodes: Sequence[ImportedNode]
    transactions: Sequence[ImportedTransactions] = ()
    dropped: Sequence[str] = ()
    exported: Any = None
    marks: Sequence[Mark] = ()

    @property
    def names(self) -> list[str]:
        """The tenants, of every form."""
        return [*(row.tenant for row in self.tenants), *(row.tenant for row in self.transactions)]


@dataclass(frozen=True, slots=True)
class Settled:
    """The calls of an import: `again` those whose tenants the log knows all, so that they import nothing.

    They are answered if an earlier run carried them out, and refused if not: ask them before the `new` ones.
    """

    again: Sequence[Chunk]
    new: Sequence[Chunk]


@dataclass(frozen=True, slots=True)
class Chunk:
    """One call of an import. The same rows have the same request id, whatever else stands in the file.

    So an import that was interrupted can be run again, also after the rows that were not imported yet have
    been mended.
    """

    tenants: Sequence[ImportedTenant] = ()
    nodes: Sequence[ImportedNode] = ()
    transactions: Sequence[ImportedTransactions] = ()

    @property
    def names(self) -> list[str]:
        """The tenants, of every form."""
        return [*(row.tenant for row in self.tenants), *(row.tenant for row in self.transactions)]

    @property
    def request_id(self) -> str:
        """The request id of the call."""
        parts: list[list[Any]] = [
            [astuple(row) for row in self.nodes],
            [astuple(row) for row in self.tenants],
        ]
        if self.transactions:
            parts.append([astuple(row) for row in self.transactions])
        rows = json.dumps(parts)
        return f"import-{hashlib.sha256(rows.encode()).hexdigest()}"


def read_plan(path: Path) -> Plan:
    """Read JSON lines or CSV with a header: tenant, generation (empty or null: none), node, form.

    A row with `number` and `node_generation` and no tenant is a node of the first form; one of the form
    `transactions` has `newest`, `last_committed` and `number_place` instead of a generation. A tenant may be
    `dropped`. Raises UsageError that names the line. A generation that is missing is no null: a line that
    was cut would start too low.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the file cannot be read: {error}") from error
    rows = _json_rows(text) if text.lstrip().startswith("{") else _csv_rows(text)
    tenants: dict[str, ImportedTenant] = {}
    nodes: dict[str, ImportedNode] = {}
    transactions: dict[str, ImportedTransactions] = {}
    dropped: list[str] = []
    exported = None
    marks: list[Mark] = []
    for number, found_row in rows:
        where, row = f"{path.name}:{number}", dict(found_row)
        mark = row.pop(_EXPORTED, None)
        if mark is not None and not row:
            if number != 1:
                raise UsageError(f"{where}: the first line of an export, and not the first of this file")
            exported = mark
            continue
        if mark is not None:
            marks.append(Mark(where, mark, "tenant" in row))
        if _is_dropped(where, row):
            dropped.append(row["tenant"])
        if row.get("form") == GenerationForm.TRANSACTIONS:
            _once(where, "tenant", str(row.get("tenant")), tenants)
            _add_transactions(where, row, transactions)
        else:
            _once(where, "tenant", str(row.get("tenant")), transactions)
            _add(where, row, tenants, nodes)
    if not tenants and not nodes and not transactions:
        raise UsageError(f"the file names nothing to import: {path}")
    found = list(tenants.values()), list(nodes.values()), list(transactions.values())
    return Plan(*found, dropped, exported, tuple(marks))


def _is_dropped(where: str, row: Mapping[str, Any]) -> bool:
    value = row.get("dropped")
    if value is None:
        return False
    if type(value) is not bool and value not in ("true", "false"):
        raise UsageError(f"{where}: dropped must be true or false: {value!r}")
    if "tenant" not in row:
        raise UsageError(f"{where}: dropped goes in the row of a tenant")
    return value in (True, "true")


def _json_rows(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=partial(_fields, number))
        except json.JSONDecodeError as error:
            raise UsageError(f"line {number}: not JSON: {error.msg}") from error
        except ValueError as error:
            raise UsageError(f"line {number}: a number of too many digits") from error
        except RecursionError as error:
            raise UsageError(f"line {number}: JSON that is nested too deep") from error
        if not isinstance(row, dict):
            raise UsageError(f"line {number}: not a JSON object")
        yield number, row


def _fields(line: int, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _unlike(line, "field", [name for name, _ in pairs])
    return dict(pairs)


def _csv_rows(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, [])
        _check_header(header)
        for cells in reader:
            if cells:
                yield reader.line_num, _csv_row(reader.line_num, header, cells)
    except csv.Error as error:
        raise UsageError(f"line {reader.line_num}: not CSV: {error}") from error


def _check_header(header: Sequence[str]) -> None:
    for name in header:
        if name not in _COLUMNS:
            raise UsageError(
                f"line 1: neither a JSON object nor a CSV header: {name[:60]!r} is no column",
                hint=f"columns: {', '.join(_COLUMNS)}",
            )
    _unlike(1, "column", header)


def _csv_row(line: int, header: Sequence[str], cells: Sequence[str]) -> Mapping[str, Any]:
    """Return a row without its empty columns, but for the generation: there an empty column says none."""
    if len(cells) != len(header):
        amount = "few" if len(cells) < len(header) else "many"
        raise UsageError(f"line {line}: too {amount} columns: {len(cells)}, the header has {len(header)}")
    row = dict(zip(header, cells, strict=True))
    filled: dict[str, Any] = {name: value for name, value in row.items() if value != ""}
    if filled and "tenant" in filled and "generation" in row:
        filled.setdefault("generation", None)
    return filled


def _unlike(line: int, what: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"line {line}: {what} named twice: {name}")


def _add(
    where: str, row: Mapping[str, Any], tenants: dict[str, ImportedTenant], nodes: dict[str, ImportedNode]
) -> None:
    _check_known(where, row)
    if others := [name for name in _OF_TRANSACTIONS if row.get(name) is not None]:
        raise UsageError(f"{where}: {others[0]} goes in the row of a tenant of the form transactions")
    node = row.get("node")
    if node is not None:
        _name(where, "node", node)
    if "tenant" not in row:
        if node is None or "number" not in row or "node_generation" not in row:
            raise UsageError(f"{where}: neither a tenant nor a node with number and node_generation")
        if row.get("generation") is not None:
            raise UsageError(f"{where}: generation goes in the row of a tenant")
        _once(where, "node", node, nodes)
        newest = _number(where, "node_generation", row["node_generation"], MAX_PACKED_PART)
        nodes[node] = ImportedNode(node, _number(where, "number", row["number"], MAX_NODE), newest)
        return
    tenant = _name(where, "tenant", row["tenant"])
    if "number" in row or "node_generation" in row:
        raise UsageError(f"{where}: number and node_generation go in a row of the node's own")
    _once(where, "tenant", tenant, tenants)
    form = row.get("form", "final")
    if form not in list(GenerationForm):
        raise UsageError(f"{where}: form must be {', '.join(GenerationForm)}: {form!r}")
    largest = MAX_GENERATION if form == GenerationForm.FINAL else MAX_PACKED_PART
    if "generation" not in row:
        raise UsageError(
            f"{where}: the tenant's generation is missing: {tenant}",
            hint="null, or an empty column that is there, says that the tenant has none",
        )
    value = row["generation"]
    generation = None if value is None else _number(where, "generation", value, largest)
    tenants[tenant] = ImportedTenant(tenant, GenerationForm(form), generation, node)


def _add_transactions(
    where: str, row: Mapping[str, Any], transactions: dict[str, ImportedTransactions]
) -> None:
    _check_known(where, row)
    if others := [name for name in ("generation", "node", "number", "node_generation") if name in row]:
        raise UsageError(f"{where}: {others[0]} is of the other forms")
    tenant = _name(where, "tenant", row.get("tenant"))
    _once(where, "tenant", tenant, transactions)
    if row.get("newest") is None:
        raise UsageError(f"{where}: the newest number in the tenant's keys is missing: {tenant}")
    newest = _number(where, "newest", row["newest"], MAX_GENERATION)
    committed = row.get("last_committed")
    if committed is not None:
        committed = _number(where, "last_committed", committed, newest)
    place = row.get("number_place", NumberPlace.LAST)
    if place not in list(NumberPlace):
        raise UsageError(f"{where}: number_place must be {' or '.join(NumberPlace)}: {place!r}")
    transactions[tenant] = ImportedTransactions(tenant, newest, committed, NumberPlace(place))


def _check_known(where: str, row: Mapping[str, Any]) -> None:
    unknown = [str(name) for name in row if name not in _COLUMNS]
    if unknown:
        raise UsageError(f"{where}: unknown field: {unknown[0]}", hint=f"fields: {', '.join(_COLUMNS)}")


def _name(where: str, what: str, name: Any) -> str:
    try:
        return check_tenant(name)
    except (InvalidEvent, InvalidFormat) as error:
        raise UsageError(f"{where}: {what}: {error}") from error


def _once(where: str, what: str, name: str, known: Mapping[str, object]) -> None:
    if name in known:
        raise UsageError(f"{where}: {what} named twice: {name}")


def _number(where: str, what: str, value: Any, largest: int) -> int:
    if isinstance(value, str) and len(value) <= _DIGITS and value.isascii() and value.isdigit():
        value = int(value)
    if type(value) is not int or not 0 <= value <= largest:
        raise UsageError(f"{where}: {what} must be an integer in 0..{largest}: {repr(value)[:60]}")
    return value


def chunks(plan: Plan, nodes: Container[str] = ()) -> list[Chunk]:
    """Return the calls that carry a plan out, without the `nodes` that the log has: tenants may name them."""
    new = [row for row in plan.nodes if row.node not in nodes]
    return [
        *(Chunk(nodes=new[start : start + _LARGEST_CALL]) for start in range(0, len(new), _LARGEST_CALL)),
        *(
            Chunk(plan.tenants[start : start + _LARGEST_CALL])
            for start in range(0, len(plan.tenants), _LARGEST_CALL)
        ),
        *(
            Chunk(transactions=plan.transactions[start : start + _LARGEST_CALL])
            for start in range(0, len(plan.transactions), _LARGEST_CALL)
        ),
    ]


def settle(plan: Plan, nodes: Mapping[str, NodeState], tenants: Container[str]) -> Settled:
    """Return what of a plan is left to do, given the nodes and tenants that the log knows.

    Raises RequestRefused `tenant-known`, `node-known` or `node-not-registered` for what could not be
    imported, so that nothing of the file is.
    """
    done = {row.node for row in plan.nodes if _is_as_wanted(row, nodes.get(row.node))}
    if others := [row.node for row in plan.nodes if row.node in nodes and row.node not in done]:
        raise RequestRefused("node-known", f"the log has {_told(others, 'node')} otherwise than the file")
    named = {row.node for row in plan.nodes}
    holders = {row.node: None for row in plan.tenants if row.form is GenerationForm.FIRST and row.node}
    if lost := [node for node in holders if node not in named and node not in nodes]:
        raise RequestRefused(
            "node-not-registered",
            f"{_told(lost, 'node')} neither registered nor in the file",
            hint="a node of the first form has a row of its own: node, number, node_generation",
        )
    again, new, known = [], [], []
    for chunk in chunks(plan, done):
        there = [name for name in chunk.names if name in tenants]
        if there and len(there) == len(chunk.names):
            again.append(chunk)
        else:
            new.append(chunk)
            known += there
    if known:
        raise RequestRefused(
            "tenant-known",
            f"the log knows {_told(known, 'tenant')}; nothing is imported",
            hint="leave out the tenants that the log knows: their numbers are its own",
        )
    return Settled(again, new)


def _is_as_wanted(row: ImportedNode, found: NodeState | None) -> bool:
    """A node that is registered under its number, at this generation or above, is left as it is."""
    if found is None or found.number != row.number or found.generation is None:
        return False
    return found.generation >= row.generation


def _told(names: Sequence[str], noun: str) -> str:
    more = ", …" if len(names) > _NAMED else ""
    return f"{counted(len(names), noun)} ({', '.join(names[:_NAMED])}{more})"
