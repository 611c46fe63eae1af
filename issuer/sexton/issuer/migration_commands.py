"""`sexton issuer import` and `sexton issuer scan`."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sexton.issuer.migration import Plan, chunks, read_plan
from sexton.issuer.scanning import Found, check_not_below, node_generations, of_other_form, or_none, scan
from sexton.schemas.errors import UsageError
from sexton.schemas.events import GenerationForm, ImportedNode
from sexton.schemas.settings import Settings, load
from sexton.schemas.words import counted

if TYPE_CHECKING:
    from sexton.issuer.client import IssuerClient

__all__ = ["IMPORT", "SCAN", "import_", "scan_"]


SCAN = """\b
Examples:
  sexton issuer scan s3://layers/tenants/
  sexton issuer scan s3://layers/tenants/ --form first --format json
"""
IMPORT = """\b
Examples:
  sexton issuer import tenants.jsonl
  sexton issuer import tenants.jsonl --scan s3://layers/tenants/
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
    told = f"  suffixes of the other form {others}" if others else ""
    print(f"{found.tenant}  generation {or_none(highest)}  objects {found.objects}{told}")


def import_(
    file: Annotated[Path, typer.Argument(help="JSON lines, or CSV with a header")],
    places: Annotated[
        list[str] | None, typer.Option("--scan", metavar="S3_URL", help="refuse numbers below those there")
    ] = None,
    at_least: Annotated[
        list[str] | None, typer.Option("--at-least-scan", metavar="S3_URL", help="the same as --scan")
    ] = None,
) -> None:
    """Start tenants at the generations that they have: fields tenant, generation (null: none), node, form.

    A row with node, number and node_generation and without a tenant is a node of the first form; one that the
    log has, under this number and at this generation or above, is left as it is. Nothing is imported when a
    number is below what `--scan` finds, when keys there carry a node number that the file does not name, or
    when the log knows one of the tenants already. The same file may be run again after an interruption.
    """
    from sexton.issuer.client import IssuerClient

    settings = load()
    plan = read_plan(file)
    # One caller for all runs: a file that is imported again is answered, not refused.
    with IssuerClient.of(settings, caller="sexton issuer import") as issuer:
        known = _known_nodes(issuer, plan)
        for place in [*(places or ()), *(at_least or ())]:
            _check(plan, known, place, _scan(settings, place))
        for request_id, tenants, nodes in chunks(plan, known):
            issuer.import_tenants(tenants, nodes, request_id)
    print(
        f"imported: {counted(len(plan.tenants), 'tenant')}, {counted(len(plan.nodes), 'node')}",
        file=sys.stderr,
    )


def _known_nodes(issuer: IssuerClient, plan: Plan) -> dict[str, ImportedNode]:
    """Return the nodes of the file that the log has as the file says or above, with what the log says."""
    known = {}
    for row in plan.nodes:
        state = issuer.node(row.node)
        if state is None or state.number != row.number or state.generation is None:
            continue
        if state.generation >= row.generation:
            known[row.node] = ImportedNode(row.node, row.number, state.generation)
    return known


def _check(plan: Plan, known: dict[str, ImportedNode], place: str, found: list[Found]) -> None:
    nodes = [known.get(row.node, row) for row in plan.nodes]
    check_not_below(replace(plan, nodes=nodes), found)
    if others := of_other_form(plan, found):
        print(
            f"warning: {place}: {counted(len(others), 'tenant')} with key suffixes of the other form than the"
            f" one imported, which is fixed for ever: {', '.join(others[:5])}",
            file=sys.stderr,
        )


def _scan(settings: Settings, place: str) -> list[Found]:
    from sexton.storage import ObjectStore, StoreSettings

    scheme, _, rest = place.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise UsageError(f"not s3://bucket/prefix/: {place}")
    if prefix and not prefix.endswith("/"):
        prefix += "/"
    return scan(ObjectStore(StoreSettings.of(settings)).list_keys(bucket, prefix), prefix)
