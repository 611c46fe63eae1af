"""`sexton issuer snapshot` and `sexton issuer truncate`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from sexton.schemas.settings import load
from sexton.schemas.text import counted

__all__ = ["SNAPSHOT", "TRUNCATE", "snapshot", "truncate"]

_TIMEOUT_S = 3600.0


SNAPSHOT = """\b
Examples:
  sexton issuer snapshot
  sexton issuer snapshot --format json
"""
TRUNCATE = """\b
Examples:
  sexton issuer truncate              print the plan
  sexton issuer truncate --execute    do it
"""


class _Format(StrEnum):
    TEXT = "text"
    JSON = "json"


def snapshot(
    form: Annotated[_Format, typer.Option("--format", help="text or json")] = _Format.TEXT,
) -> None:
    """Take a snapshot of the state as of the log's end; issuers may be running."""
    from sexton.issuer.snapshots.keeper import take_snapshot
    from sexton.schemas.kafka.admin import reach

    taken = take_snapshot(reach(load()), _TIMEOUT_S)
    manifest = taken.manifest
    if form is _Format.JSON:
        message = {
            "snapshot_id": manifest.snapshot_id,
            "log_offset": manifest.log_offset,
            "tenants": manifest.tenants,
            "requests": manifest.requests,
            "chunks": len(manifest.sizes),
            "bytes": sum(manifest.sizes),
        }
        print(json.dumps(message))
        return
    print(f"snapshot    {manifest.snapshot_id}")
    print(f"log offset  {manifest.log_offset}")
    print(f"tenants     {manifest.tenants}")
    print(f"size        {counted(sum(manifest.sizes), 'byte')} in {counted(len(manifest.sizes), 'chunk')}")


def truncate(
    execute: Annotated[bool, typer.Option("--execute", help="delete; without it only the plan")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask; without a terminal nobody is")] = False,
    form: Annotated[_Format, typer.Option("--format", help="text or json")] = _Format.TEXT,
) -> None:
    """Delete the part of the log that lies below verified snapshots. It is gone for ever.

    The two newest snapshots are loaded and compared with the log, event by event, first. Refused without a
    good one. Nothing does this by itself.
    """
    from sexton.issuer.deadline import Deadline
    from sexton.issuer.log import truncation
    from sexton.schemas.kafka.admin import reach

    settings, deadline = reach(load()), Deadline.after(_TIMEOUT_S)
    made = truncation.plan(settings, deadline)
    message = {**asdict(made), "records": made.records, "executed": False}
    if len(made.snapshots) == 1:
        print("only one snapshot is good: if it breaks, a truncated log cannot be read", file=sys.stderr)
    if execute and made.records and (yes or _agreed(made.records)):
        message |= {"start": truncation.execute(settings, made, deadline), "executed": True}
    if form is _Format.JSON:
        print(json.dumps(message))
        return
    print(f"log         [{made.start}, {made.end})")
    print(f"snapshots   {', '.join(made.snapshots)}")
    done = "deleted" if message["executed"] else "to delete"
    print(f"{done}   {counted(made.records, 'record')} below {made.until}")
    if not execute:
        print("\nhint: this was the plan; --execute deletes", file=sys.stderr)


def _agreed(records: int) -> bool:
    return not sys.stdin.isatty() or typer.confirm(
        f"delete {counted(records, 'record')} of the log for ever?", err=True
    )
