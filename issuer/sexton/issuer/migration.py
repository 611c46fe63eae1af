"""Bringing tenants in: what a file says that they have, checked against what their objects say."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sexton.schemas.checks import check_tenant
from sexton.schemas.errors import InvalidEvent, InvalidFormat, RequestRefused, UsageError
from sexton.schemas.events import GenerationForm, ImportedNode, ImportedTenant
from sexton.schemas.generations import (
    MAX_GENERATION,
    MAX_NODE,
    MAX_PACKED_PART,
    PackedGeneration,
    parse_packed_suffix,
    parse_suffix,
)

__all__ = ["Found", "Plan", "check_not_below", "chunks", "read_plan", "scan"]

_COLUMNS = ("tenant", "generation", "node", "form", "number", "node_generation")
_LARGEST_CALL = 5_000


@dataclass(frozen=True, slots=True)
class Found:
    """What a tenant's objects say: the highest suffix, None when no object has one."""

    tenant: str
    objects: int = 0
    highest: int | None = None
    packed: PackedGeneration | None = None

    def with_key(self, key: str, form: GenerationForm) -> Found:
        """Return this with one more object."""
        if form is GenerationForm.FINAL:
            generation = parse_suffix(key)[1]
            packed = None
        else:
            packed = parse_packed_suffix(key)[1]
            generation = packed.attachment if packed else None
        found = replace(self, objects=self.objects + 1)
        if generation is not None and (self.highest is None or generation > self.highest):
            found = replace(found, highest=generation)
        if packed is not None and (self.packed is None or packed > self.packed):
            found = replace(found, packed=packed)
        return found


def scan(keys: Iterable[str], prefix: str, form: GenerationForm) -> list[Found]:
    """Return what the objects under `prefix` say of each tenant: the first part of the key after it.

    Suffixes are parsed strictly, so a name that ends in hex digits by chance can make a number too high,
    which costs numbers, never too low. Keys without a part after the prefix belong to no tenant.
    """
    found: dict[str, Found] = {}
    for key in keys:
        tenant, slash, _ = key[len(prefix) :].partition("/")
        if tenant and slash:
            found[tenant] = found.get(tenant, Found(tenant)).with_key(key, form)
    return sorted(found.values(), key=lambda each: each.tenant)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a file asks to be imported; `digest` makes request ids that stay the same for the same file."""

    tenants: Sequence[ImportedTenant]
    nodes: Sequence[ImportedNode]
    digest: str

    def of(self, form: GenerationForm) -> Plan:
        """Return this with the tenants of one form only."""
        return replace(self, tenants=[row for row in self.tenants if row.form is form])


def read_plan(path: Path) -> Plan:
    """Read JSON lines or CSV with a header: tenant, generation (empty or null: none), node, form.

    A row with `number` and `node_generation` and no tenant is a node of the first form. Raises UsageError
    that names the line.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the file cannot be read: {error}") from error
    rows = _json_rows(text) if text.lstrip().startswith("{") else _csv_rows(text)
    tenants: dict[str, ImportedTenant] = {}
    nodes: dict[str, ImportedNode] = {}
    for number, row in rows:
        _add(f"{path.name}:{number}", row, tenants, nodes)
    if not tenants and not nodes:
        raise UsageError(f"the file names nothing to import: {path}")
    return Plan(list(tenants.values()), list(nodes.values()), hashlib.sha256(raw).hexdigest())


def _json_rows(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UsageError(f"line {number}: not JSON: {error.msg}") from error
        if not isinstance(row, dict):
            raise UsageError(f"line {number}: not a JSON object")
        yield number, row


def _csv_rows(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            yield reader.line_num, {name: value for name, value in row.items() if value != ""}
    except csv.Error as error:
        raise UsageError(f"line {reader.line_num}: not CSV: {error}") from error


def _add(
    where: str, row: Mapping[str, Any], tenants: dict[str, ImportedTenant], nodes: dict[str, ImportedNode]
) -> None:
    unknown = [str(name) for name in row if name not in _COLUMNS]
    if unknown:
        raise UsageError(f"{where}: unknown field: {unknown[0]}", hint=f"fields: {', '.join(_COLUMNS)}")
    node = row.get("node")
    if node is not None:
        _name(where, "node", node)
    if "tenant" not in row:
        if node is None or "number" not in row or "node_generation" not in row:
            raise UsageError(f"{where}: neither a tenant nor a node with number and node_generation")
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
        raise UsageError(f"{where}: form must be final or first: {form!r}")
    largest = MAX_GENERATION if form == GenerationForm.FINAL else MAX_PACKED_PART
    value = row.get("generation")
    generation = None if value is None else _number(where, "generation", value, largest)
    tenants[tenant] = ImportedTenant(tenant, GenerationForm(form), generation, node)


def _name(where: str, what: str, name: Any) -> str:
    try:
        return check_tenant(name)
    except (InvalidEvent, InvalidFormat) as error:
        raise UsageError(f"{where}: {what}: {error}") from error


def _once(where: str, what: str, name: str, known: Mapping[str, object]) -> None:
    if name in known:
        raise UsageError(f"{where}: {what} named twice: {name}")


def _number(where: str, what: str, value: Any, largest: int) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if type(value) is not int or not 0 <= value <= largest:
        raise UsageError(f"{where}: {what} must be an integer in 0..{largest}: {value!r}")
    return value


def check_not_below(plan: Plan, found: Iterable[Found]) -> None:
    """Raise RequestRefused `below-scan` when a number is lower than what the tenant's objects say.

    A second holder of a number that is in use would delete what is referenced, so the whole file is refused.
    """
    highest = {each.tenant: each for each in found}
    low = []
    for row in plan.tenants:
        seen = highest.get(row.tenant)
        if seen is None or seen.highest is None:
            continue
        if row.generation is None or row.generation < seen.highest:
            starts = "none" if row.generation is None else row.generation
            low.append(f"{row.tenant} at {starts}, found {seen.highest}")
    if low:
        raise RequestRefused("below-scan", f"{len(low)} tenants would start too low: {'; '.join(low[:5])}")


def chunks(plan: Plan) -> Iterator[tuple[str, Sequence[ImportedTenant], Sequence[ImportedNode]]]:
    """Yield calls, each with its request id: nodes first, as tenants may name them.

    The ids come from the file's content, so that an import which was interrupted can be run again.
    """
    for start in range(0, len(plan.nodes), _LARGEST_CALL):
        yield f"import-{plan.digest}-nodes-{start}", (), plan.nodes[start : start + _LARGEST_CALL]
    for start in range(0, len(plan.tenants), _LARGEST_CALL):
        yield f"import-{plan.digest}-{start}", plan.tenants[start : start + _LARGEST_CALL], ()
