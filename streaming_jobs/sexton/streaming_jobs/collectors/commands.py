"""`sexton collect`: a verb for each collector of the registry, all with the same options."""

from __future__ import annotations

import inspect
import signal
import sys
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer

from sexton.schemas.errors import SextonError, UsageError
from sexton.schemas.reporting import report_error
from sexton.schemas.settings import load
from sexton.streaming_jobs.collectors.decision import Options
from sexton.streaming_jobs.collectors.driver import Driver
from sexton.streaming_jobs.collectors.durations import seconds
from sexton.streaming_jobs.collectors.progress import Progress
from sexton.streaming_jobs.collectors.registry import ROOMS
from sexton.streaming_jobs.collectors.report import Report, ReportState, table, to_lines
from sexton.streaming_jobs.collectors.reports import LONGEST_EXPIRY_S
from sexton.streaming_jobs.collectors.room import Room, RoomOption, Scope, Sources
from sexton.streaming_jobs.collectors.walk import Stopped

__all__ = ["app", "seconds"]

app = typer.Typer(no_args_is_help=True, help="Find garbage, report it, and ask for its deletion.")
_EXAMPLES = """\b
Examples:
  sexton collect {name} --bucket b --prefix {prefix}
  sexton collect {name} --bucket b --prefix {prefix} --emit
  sexton collect {name} --bucket b --prefix {prefix} --emit --approve R
  sexton collect {name} --bucket b --prefix {prefix} --emit --every 1h
"""


class Format(StrEnum):
    """How a report is printed."""

    TEXT = "text"
    JSON = "json"


def _command_of(room: Room) -> Callable[..., None]:
    def collect(
        bucket: Annotated[str, typer.Option(help="bucket that is listed", show_default=False)],
        prefix: str,
        emit: Annotated[bool, typer.Option("--emit", help="ask for the deletion of what is found")] = False,
        approve: Annotated[
            str | None, typer.Option(help="with --emit: emit exactly what this report lists")
        ] = None,
        every: Annotated[str | None, typer.Option(help="run again and again: 10m, 1h")] = None,
        max_share: Annotated[
            float, typer.Option(min=0.0, max=1.0, help="more garbage than this share is not asked for")
        ] = 0.2,
        expires_in: Annotated[
            str, typer.Option(help="after the listing's Date intents expire; 7d at most")
        ] = "24h",
        spark: Annotated[bool, typer.Option("--spark", help="list on Spark, in parallel")] = False,
        form: Annotated[Format, typer.Option("--format", help="text or json")] = Format.TEXT,
        **own: str,
    ) -> None:
        expires_in_s = seconds(expires_in)
        if expires_in_s > LONGEST_EXPIRY_S:
            raise UsageError(f"intents expire within 7d: {expires_in}")
        if approve is not None and (not emit or every is not None):
            raise UsageError("--approve goes with --emit, and without --every")
        options = Options(Scope(bucket, prefix), emit, max_share, expires_in_s, spark)
        asked = room.configured({each.name: own[_variable(each)] for each in room.options})
        code = run_collector(asked, options, approve, None if every is None else seconds(every), form)
        if code:
            raise typer.Exit(code)

    # Not where it stands: annotations are read outside of this function, where there is no room.
    collect.__annotations__["prefix"] = Annotated[
        str, typer.Option(help=room.prefix_help, show_default=False)
    ]
    _add_own(collect, room)
    collect.__doc__ = f"""Find {room.summary}; report it, and with --emit ask for its deletion.

    Nothing is deleted here: intents go through the judge, as everybody's do, and expire.
    """
    return collect


def _add_own(collect: Callable[..., None], room: Room) -> None:
    """Put the room's own options in the place of the keywords that stand for them."""
    own = [
        inspect.Parameter(
            _variable(each),
            inspect.Parameter.KEYWORD_ONLY,
            default=each.default,
            annotation=Annotated[str, typer.Option(f"--{each.name}", help=each.help)],
        )
        for each in room.options
    ]
    signature = inspect.signature(collect, eval_str=True)
    others = [
        each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    collect.__annotations__ |= {each.name: each.annotation for each in own}
    collect.__dict__["__signature__"] = signature.replace(parameters=[*others, *own])


def _variable(option: RoomOption) -> str:
    return option.name.replace("-", "_")


for _room in ROOMS.values():
    _epilog = _EXAMPLES.format(name=_room.name, prefix=_room.prefix_example)
    app.command(_room.name, epilog=_epilog, short_help=_room.summary)(_command_of(_room))


@app.callback()
def _verbs() -> None:
    """Find garbage, report it, and ask for its deletion."""


def run_collector(
    room: Room, options: Options, approve: str | None, every_s: float | None, form: Format
) -> int:
    """Run a collector once, or again and again until SIGTERM or SIGINT; return the exit code."""
    from sexton.issuer.client import IssuerClient
    from sexton.storage import ObjectStore, StoreSettings

    settings, stop, progress = load(), threading.Event(), Progress()
    with IssuerClient.of(settings) as issuer, ObjectStore(StoreSettings.of(settings)) as store:
        sources = Sources(settings, issuer, store)
        driver = Driver(room, sources, options, progress=progress, stopped=stop.is_set)
        if approve is not None:
            return _tell(driver.approve(approve), form)
        if every_s is None:
            return _tell(driver.run(), form)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        _repeat(driver, every_s, stop, progress, form)
    return 0


def _repeat(driver: Driver, every_s: float, stop: threading.Event, progress: Progress, form: Format) -> None:
    runs = failed = in_a_row = refused = 0
    while not stop.is_set():
        began = time.monotonic()
        try:
            report = driver.run()
        except Stopped:
            break
        except SextonError as error:
            # One run that fails does not end the others: it has left a report, and is counted.
            progress.end()
            report_error(error)
            failed, in_a_row = failed + 1, in_a_row + 1
        else:
            _tell(report, form)
            in_a_row = 0
            refused += report.state is ReportState.REFUSED
        runs += 1
        progress.note("run", runs=runs, failed=failed, failed_in_a_row=in_a_row, refused=refused)
        stop.wait(max(0.0, every_s - (time.monotonic() - began)))
    progress.note("stopped", runs=runs, failed=failed, refused=refused)


def _tell(report: Report, form: Format) -> int:
    for line in to_lines(report) if form is Format.JSON else table(report):
        print(line)
    sys.stdout.flush()
    return 1 if report.state is ReportState.REFUSED else 0
