"""`sexton issuer import` and `sexton issuer scan`."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sexton.issuer.migration import Found, check_not_below, chunks, read_plan, scan
from sexton.schemas.errors import UsageError
from sexton.schemas.events import GenerationForm
from sexton.schemas.settings import Settings, load
from sexton.schemas.words import counted

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
    """Print the highest generation in the keys of each tenant: the first part of a key after the prefix."""
    for each in _scan(load(), place, key_form):
        if form is _Format.JSON:
            print(json.dumps({"tenant": each.tenant, "generation": each.highest, "objects": each.objects}))
        else:
            highest = "none" if each.highest is None else each.highest
            print(f"{each.tenant}  generation {highest}  objects {each.objects}")


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

    A row with node, number and node_generation and without a tenant is a node of the first form. Nothing is
    imported when one number is below what `--scan` finds, or when the log knows one of the tenants already.
    The same file may be run again after an interruption.
    """
    from sexton.issuer.client import IssuerClient

    settings = load()
    plan = read_plan(file)
    for place in [*(places or ()), *(at_least or ())]:
        for form in sorted({row.form for row in plan.tenants}):
            check_not_below(plan.of(form), _scan(settings, place, form))
    # One caller for all runs: a file that is imported again is answered, not refused.
    with IssuerClient.of(settings, caller="sexton issuer import") as issuer:
        for request_id, tenants, nodes in chunks(plan):
            issuer.import_tenants(tenants, nodes, request_id)
    print(
        f"imported: {counted(len(plan.tenants), 'tenant')}, {counted(len(plan.nodes), 'node')}",
        file=sys.stderr,
    )


def _scan(settings: Settings, place: str, form: GenerationForm) -> list[Found]:
    from sexton.storage import ObjectStore, StoreSettings

    scheme, _, rest = place.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise UsageError(f"not s3://bucket/prefix/: {place}")
    if prefix and not prefix.endswith("/"):
        prefix += "/"
    return scan(ObjectStore(StoreSettings.of(settings)).list_keys(bucket, prefix), prefix, form)
