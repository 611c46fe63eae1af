"""`sexton issuer import`, `sexton issuer export` and `sexton issuer scan`."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sexton.issuer.answers import NodeState
from sexton.issuer.cli.migration import Plan, read_plan, settle
from sexton.issuer.cli.restoring import Exported, check_whole, exported, raised, told_why_known, unnamed
from sexton.issuer.cli.scanning import Found, check_not_below, node_generations, of_other_form, or_none, scan
from sexton.issuer.subjects.generation import Subject
from sexton.schemas.errors import RequestRefused, UsageError
from sexton.schemas.events import GenerationForm
from sexton.schemas.settings import Settings, load
from sexton.schemas.text import counted

if TYPE_CHECKING:
    from sexton.issuer.client import IssuerClient

__all__ = ["EXPORT", "IMPORT", "SCAN", "export", "import_", "scan_"]

_TIMEOUT_S = 3600.0


SCAN = """\b
Examples:
  sexton issuer scan s3://layers/tenants/
  sexton issuer scan s3://layers/tenants/ --form first --format json
"""
IMPORT = """\b
Examples:
  sexton issuer import tenants.jsonl
  sexton issuer import tenants.jsonl --scan s3://layers/tenants/
  sexton issuer import old.jsonl --ahead 1000000 --scan s3://layers/tenants/
"""
EXPORT = """\b
Examples:
  sexton issuer export > backup.jsonl
"""


class _Format(StrEnum):
    TEXT = "text"
    JSON = "json"


def scan_(
    place: Annotated[str, typer.Argument(metavar="S3_URL", help="s3://bucket/prefix/")],
    key_form: Annotated[
        GenerationForm, typer.Option("--form", help="form of the suffixes: final or first")
    ] = GenerationForm.FINAL,
    form: Annotated[_Format, typer.Option("--format", help="text or json")] = _Format.TEXT,
) -> None:
    """Print the highest generation in the keys of each tenant: the first part of a key after the prefix.

    With `--form first` also the highest node generation of each node number. Keys that end in a suffix of the
    other form are counted: a tenant has one form for ever.
    """
    found = _scan(load(), place)
    for each in found:
        _show(each, key_form, form)
    if key_form is GenerationForm.FIRST:
        for number, generation in node_generations(found).items():
            if form is _Format.JSON:
                print(json.dumps({"number": number, "node_generation": generation}))
            else:
                print(f"node number {number}  node generation {generation}")


def _show(found: Found, key_form: GenerationForm, form: _Format) -> None:
    highest = found.highest(key_form)
    others = sum(count for suffix, count in found.suffixes.items() if suffix is not key_form)
    if form is _Format.JSON:
        row = {"tenant": found.tenant, "generation": highest, "objects": found.objects, "other_form": others}
        print(json.dumps(row))
        return
    message = f"  suffixes of the other form {others}" if others else ""
    print(f"{found.tenant}  generation {or_none(highest)}  objects {found.objects}{message}")


def import_(
    file: Annotated[Path, typer.Argument(help="JSON lines, or CSV with a header")],
    places: Annotated[
        list[str] | None, typer.Option("--scan", metavar="S3_URL", help="refuse numbers below those there")
    ] = None,
    at_least: Annotated[
        list[str] | None, typer.Option("--at-least-scan", metavar="S3_URL", help="the same as --scan")
    ] = None,
    ahead: Annotated[
        int | None, typer.Option(min=0, help="raise the numbers of an export by so much; 0: its log is whole")
    ] = None,
) -> None:
    """Start tenants at the generations that they have: fields tenant, generation (null: none), node, form.

    A tenant of the form transactions has newest (at least every number in its keys), last_committed and
    number_place (first or last) instead of a generation and a node.
    A row with node, number and node_generation and without a tenant is a node of the first form; one that the
    log has, under this number and at this generation or above, is left as it is. Nothing is imported when a
    number is below what `--scan` finds or no key of any tenant is found, when keys there carry a node number
    that the file does not name, or when the log knows one of the tenants already. A key counts for each
    tenant of the file in whose folder it is; what has no key there is reported. After an interruption the
    same file may be run again, or one in which rows that were not imported yet are mended.

    What `sexton issuer export` wrote needs `--ahead`: more than the numbers that any tenant may have got
    since, and then `--scan` of every place where tenants have keys; 0 only where nothing was issued since.
    It is imported whole; a row whose numbers you correct is your own: take its field `exported` out.
    Tenants that were dropped are dropped again.
    """
    from sexton.issuer.client import IssuerClient

    settings = load()
    plan = read_plan(file)
    places = [*(places or ()), *(at_least or ())]
    told = exported(plan)
    if told is not None:
        plan = _restored(plan, told, ahead, places)
    elif ahead is not None:
        raise UsageError("--ahead is for what `sexton issuer export` wrote: this file is no export")
    # One caller for all runs: a chunk that is imported again is answered, not refused.
    with IssuerClient.of(settings, caller="sexton issuer import") as issuer, told_why_known(told):
        nodes = _known_nodes(issuer, plan)
        _check_places(plan, nodes, settings, places)
        due = settle(plan, nodes, _known_tenants(issuer, plan))
        for chunk in [*due.again, *due.new]:
            if chunk.transactions:
                issuer.import_transactions(chunk.transactions, chunk.request_id)
            else:
                issuer.import_tenants(chunk.tenants, chunk.nodes, chunk.request_id)
        for tenant in plan.dropped:
            # An id of its own, the same in each run: what was dropped by an earlier one is answered again.
            issuer.drop(tenant, f"import-drop-{hashlib.sha256(tenant.encode()).hexdigest()}")
    if told is not None and told.decommissioned:
        names = ", ".join(told.decommissioned)
        _warn(f"decommissioned in the exported log, and to be decommissioned again: {names}")
    print(
        f"imported: {counted(len(plan.names), 'tenant')}, {counted(len(plan.nodes), 'node')}",
        file=sys.stderr,
    )


def _restored(plan: Plan, told: Exported, ahead: int | None, places: Sequence[str]) -> Plan:
    """Return an export's plan as it may be imported; raises UsageError where that is not known to be safe."""
    check_whole(plan, told)
    if ahead is None:
        raise UsageError(
            f"an export, as of log offset {told.log_offset}: how far may numbers have gone since?",
            hint="--ahead 1000000; 0 if nothing was issued since: docs/operating.md, 'Backup and restore'",
        )
    if ahead and not places:
        raise UsageError(
            "an older export needs --scan: tenants that came after it are known from their keys only"
        )
    return raised(plan, ahead)


def export() -> None:
    """Print the numbers of the log as JSON lines that `sexton issuer import` takes: a backup of it.

    Reads the log to its end, or a copy of it on another cluster; issuers may be running, none is needed.
    """
    from sexton.issuer.cli.exporting import fold_log, lines
    from sexton.issuer.deadline import Deadline
    from sexton.schemas.kafka.admin import reach

    if sys.stdout is None:
        raise UsageError("there is no stdout to write the export to", hint="sexton issuer export > FILE")
    state = fold_log(reach(load()), Deadline.after(_TIMEOUT_S))
    for line in lines(state, datetime.now(UTC)):
        print(line)
    sys.stdout.flush()
    print(f"exported: {counted(len(state), 'tenant')}, log offset {state.log_offset}", file=sys.stderr)


def _known_nodes(issuer: IssuerClient, plan: Plan) -> dict[str, NodeState]:
    """Return the nodes that the file names, in rows of their own or as holders, as the log has them."""
    holders = [row.node for row in plan.tenants if row.node and row.form is GenerationForm.FIRST]
    names = dict.fromkeys([*(row.node for row in plan.nodes), *holders])
    return {name: state for name in names if (state := issuer.node(name)) is not None}


def _known_tenants(issuer: IssuerClient, plan: Plan) -> set[str]:
    """Return the tenants of the file that the log knows: what is asked of them does not matter."""
    from sexton.issuer.client import MAX_SUBJECTS

    known: set[str] = set()
    names = plan.names
    for start in range(0, len(names), MAX_SUBJECTS):
        asked = [Subject(name, 0, 0) for name in names[start : start + MAX_SUBJECTS]]
        known.update(subject.tenant for subject in issuer.validate(asked).windows)
    return known


def _check_places(
    plan: Plan, nodes: Mapping[str, NodeState], settings: Settings, places: Sequence[str]
) -> None:
    """Refuse numbers that are too low for what stands in the places; what was not found there is reported."""
    names = plan.names
    unseen = set(names)
    for place in places:
        found = _scan(settings, place, names)
        check_not_below(plan, found, {node: state.generation or 0 for node, state in nodes.items()})
        if plan.exported is not None:
            unnamed(plan, found)
        seen = {each.tenant for each in found} & set(names)
        unseen -= seen
        if names and not seen:
            _warn(f"{place}: no key of a tenant in the file; is the prefix right?")
        elif others := of_other_form(plan, found):
            _warn(
                f"{place}: {counted(len(others), 'tenant')} with key suffixes of the other form than the"
                f" one imported, which is fixed for ever: {', '.join(others[:5])}"
            )
    if places and names and len(unseen) == len(names):
        # Most likely a mistyped prefix: numbers that were compared with nothing are not known to be safe.
        raise RequestRefused(
            "nothing-found",
            f"no key of a tenant in the file was found: {', '.join(places)}",
            hint="is the prefix the folder of the tenants' folders? Without --scan nothing is compared",
        )
    if places and unseen:
        first = [name for name in names if name in unseen][:5]
        _warn(f"{counted(len(unseen), 'tenant')} without a key in any place: {', '.join(first)}")


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _scan(settings: Settings, place: str, tenants: Collection[str] = ()) -> list[Found]:
    from sexton.storage import ObjectStore, StoreSettings

    scheme, _, rest = place.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise UsageError(f"not s3://bucket/prefix/: {place}")
    if prefix and not prefix.endswith("/"):
        prefix += "/"
    return scan(ObjectStore(StoreSettings.of(settings)).list_keys(bucket, prefix), prefix, tenants)
