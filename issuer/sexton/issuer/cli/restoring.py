"""What an export may be imported as: whole, and above every number that its log may have handed out since.

A log goes on after its export. Whoever got a number meanwhile may still write, and whoever lost his may still
ask for deletions: in the new log both have to be below every window. So numbers are raised, and tenants that
the export does not know have to be named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sexton.issuer.cli.migration import EXPORT_VERSION, Plan
from sexton.issuer.cli.scanning import Found
from sexton.schemas.errors import RequestRefused, UsageError
from sexton.schemas.events import GenerationForm
from sexton.schemas.generations import MAX_GENERATION, MAX_PACKED_PART
from sexton.schemas.text import counted

__all__ = ["Exported", "check_whole", "exported", "raised", "told_why_known", "unnamed"]

_NAMED = 5


@dataclass(frozen=True, slots=True)
class Exported:
    """The first line of an export: its form, how much follows, and as of which offset of the log."""

    version: int
    log_offset: int
    tenants: int
    nodes: int
    decommissioned: tuple[str, ...]


def exported(plan: Plan) -> Exported | None:
    """Return what a plan's file says of its export, None where it is none.

    Raises UsageError where the line cannot be read, and for a row that was exported and stands in the file
    without its first line, or under that of another export: its number would not be raised, or by too little.
    """
    if plan.exported is None:
        for mark in plan.marks[:1]:
            raise UsageError(
                f"{mark.where}: a row of an export, as of log offset {mark.offset}, without its first line",
                hint="import the whole export, with --ahead; a row whose numbers you have looked up and"
                " corrected is one of your own: take the field `exported` out of it",
            )
        return None
    found = _first_line(plan.exported)
    for mark in plan.marks:
        if mark.offset != found.log_offset:
            raise UsageError(
                f"{mark.where}: a row of another export, as of log offset {mark.offset};"
                f" the first line says {found.log_offset}"
            )
    return found


def _first_line(told: Any) -> Exported:
    try:
        counts = told["log_offset"], told["tenants"], told["nodes"]
        version = told.get("version", 1)
        decommissioned = tuple(map(str, told["decommissioned"]))
    except (AttributeError, KeyError, TypeError) as error:
        raise UsageError(f"the line of the export cannot be read: {error}") from error
    if any(type(each) is not int or each < 0 for each in (version, *counts)):
        raise UsageError(f"the line of the export cannot be read: {told}")
    if not 1 <= version <= EXPORT_VERSION:
        raise UsageError(
            f"an export of an unknown form: version {version}", hint="a newer `sexton` has written it"
        )
    return Exported(version, *counts, decommissioned)


@contextmanager
def told_why_known(told: Exported | None) -> Iterator[None]:
    """Say, where the log knows tenants of an export that is imported, what that most likely comes from.

    With another `--ahead` its numbers are another call, which is refused and not answered.
    """
    try:
        yield
    except RequestRefused as refused:
        if told is None or refused.type != "tenant-known":
            raise
        hint = "after an interruption: the same --ahead and rows as before; else an export wants a new log"
        raise RequestRefused(refused.type, str(refused), status=refused.status, hint=hint) from refused


def check_whole(plan: Plan, told: Exported) -> None:
    """Raise UsageError when rows are missing: a tenant that is not imported begins at 1 again."""
    tenants = sum(mark.is_tenant for mark in plan.marks)
    found = (tenants, len(plan.marks) - tenants)
    if told.version == 1:  # its rows do not say that they are its own
        found = (len(plan.names), len(plan.nodes))
    if found[0] < told.tenants or found[1] < told.nodes:
        raise UsageError(
            f"the export is not whole: {found[0]} of {counted(told.tenants, 'tenant')},"
            f" {found[1]} of {counted(told.nodes, 'node')}",
            hint="the file was cut, or edited: rows may be added, or numbers raised, none may be left out",
        )


def raised(plan: Plan, ahead: int) -> Plan:
    """Return the plan with every number raised by `ahead`; one without numbers starts there.

    Raises UsageError where a form has no room for it, and for transactions: what was committed after the
    export nobody knows, and whoever builds on an older one names objects that are gone.
    """
    if ahead == 0:
        return plan
    if plan.transactions:
        raise UsageError(
            "numbers of transactions cannot be raised: what was committed last is not known from an older"
            f" export: {plan.transactions[0].tenant}",
            hint="docs/operating.md, 'Backup and restore': rows of their own, with what each service has"
            " committed last",
        )
    tenants = [
        replace(row, generation=_above(row.tenant, row.generation or 0, ahead, row.form))
        for row in plan.tenants
    ]
    first = GenerationForm.FIRST
    nodes = [replace(row, generation=_above(row.node, row.generation, ahead, first)) for row in plan.nodes]
    return replace(plan, tenants=tenants, nodes=nodes)


def _above(name: str, number: int, ahead: int, form: GenerationForm) -> int:
    largest = MAX_PACKED_PART if form is GenerationForm.FIRST else MAX_GENERATION
    if number + ahead > largest:
        raise UsageError(f"--ahead has no room: {name} at {number}, the form ends at {largest}")
    return number + ahead


def unnamed(plan: Plan, found: Iterable[Found]) -> None:
    """Raise RequestRefused `not-named` for tenants with numbers in their keys that a plan does not name.

    They came after the export. Not imported, they would begin at 1 again.
    """
    names = set(plan.names)
    others = [each.tenant for each in found if each.suffixes and each.tenant not in names]
    if others:
        more = ", …" if len(others) > _NAMED else ""
        row = json.dumps({"tenant": others[0], "generation": 7, "node": "any"}, ensure_ascii=False)
        raise RequestRefused(
            "not-named",
            f"keys carry numbers of {counted(len(others), 'tenant')} that the export does not name:"
            f" {', '.join(others[:_NAMED])}{more}",
            hint=f"add a row for each, with the number that `sexton issuer scan` prints, such as {row};"
            " folders named otherwise than tenants need one, too: docs/operating.md, 'Backup and restore'",
        )
