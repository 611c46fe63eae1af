"""`sexton dead-letters`: look, mend, send again."""

from __future__ import annotations

import getpass
import json
import socket
import sys
import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from sexton.consumers.dead_letters import Filters, Letter, Place, instant_of
from sexton.consumers.dead_letters_output import (
    heading,
    letter_json,
    letter_line,
    show_json,
    show_text,
    step_json,
    step_line,
)
from sexton.consumers.dead_letters_topics import gather, read_letters, write
from sexton.consumers.output import Format
from sexton.consumers.replays import Step, Way, mend, plan
from sexton.schemas.errors import InvalidEvent, SextonError, UsageError
from sexton.schemas.events import DeletionIntent
from sexton.schemas.forms import from_json, names_once
from sexton.schemas.registry import open_codec
from sexton.schemas.settings import load
from sexton.schemas.text import counted, printable

__all__ = ["app", "list_", "replay", "show"]

app = typer.Typer(help="Dead letters.", no_args_is_help=True, add_completion=False, rich_markup_mode=None)

_Reasons = Annotated[list[str] | None, typer.Option("--reason", help="stable code; may be repeated")]
_Tenants = Annotated[list[str] | None, typer.Option("--tenant", help="may be repeated")]
_Buckets = Annotated[list[str] | None, typer.Option("--bucket", help="may be repeated")]
_Since = Annotated[str | None, typer.Option(help="died then or later: ISO 8601 with a zone, or 2h")]
_Until = Annotated[str | None, typer.Option(help="died before then: ISO 8601 with a zone, or 30m")]
_Format = Annotated[Format, typer.Option(help="text, or one JSON object a line")]
_Timeout = Annotated[float, typer.Option(min=0.1, help="seconds without an answer from Kafka")]
_LIST = """\b
Examples:
  sexton dead-letters list --since 24h
  sexton dead-letters list --reason AccessDenied --bucket layers --format json
"""
_SHOW = """\b
Examples:
  sexton dead-letters show 2/17
  sexton dead-letters show INTENT-ID --format json | jq .intent
"""
_REPLAY = """\b
Examples:
  sexton dead-letters replay 2/17                              print the plan
  sexton dead-letters replay 2/17 --yes                        do it
  sexton dead-letters replay --reason AccessDenied --since 2h --yes
  sexton dead-letters replay 2/18 --mended mended.jsonl --yes
"""


class NoSuchDeadLetter(SextonError):
    """No dead letter has that place or intent id."""


class NotAllReplayed(SextonError):
    """Some dead letters that were asked for cannot be replayed."""


@app.callback()
def _noun() -> None:
    """Dead letters: records and keys that could not be processed. Look, mend, send again."""


@app.command("list", epilog=_LIST, short_help="print the dead letters, one a line")
def list_(
    reason: _Reasons = None,
    tenant: _Tenants = None,
    bucket: _Buckets = None,
    since: _Since = None,
    until: _Until = None,
    format: _Format = Format.TEXT,
    timeout: _Timeout = 30.0,
) -> None:
    """Print the dead letters, one a line below a heading, by place, oldest first in each partition.

    The columns: PARTITION/OFFSET of the dead letter, time of death, reason, tenant, bucket, intent id, how
    many keys failed, and where the intent first stood. What could not be read is `-`; then the tenant is that
    of the record's key.
    """
    filters = _filters(reason, tenant, bucket, since, until)
    found = _select((), filters, timeout)
    if found and format is Format.TEXT:
        print(heading())
    for letter in found:
        print(json.dumps(letter_json(letter)) if format is Format.JSON else letter_line(letter))
    print(counted(len(found), "dead letter"), file=sys.stderr)


@app.command(epilog=_SHOW, short_help="print all that a dead letter holds")
def show(
    name: Annotated[str, typer.Argument(metavar="PARTITION/OFFSET|ID", help="a dead letter, or an intent's")],
    format: _Format = Format.TEXT,
    timeout: _Timeout = 30.0,
) -> None:
    """Print all that a dead letter holds: what can be decoded as JSON, the rest as hex.

    An intent's id shows every dead letter of the intent. Exit 1 if there is none.
    """
    codec = open_codec(load())
    for letter in _select((name,), Filters(), timeout):
        if format is Format.JSON:
            print(json.dumps(show_json(codec, letter)))
        else:
            print(show_text(codec, letter))


@app.command(epilog=_REPLAY, short_help="print what a replay would write, or write it")
def replay(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PARTITION/OFFSET|ID]...", help="dead letters, or intents'")
    ] = None,
    reason: _Reasons = None,
    tenant: _Tenants = None,
    bucket: _Buckets = None,
    since: _Since = None,
    until: _Until = None,
    all_: Annotated[bool, typer.Option("--all", help="every dead letter there is")] = False,
    mended: Annotated[
        Path | None, typer.Option(help="the new content of one dead letter, as one JSON line; - reads stdin")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="also what was replayed already")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="write the replays, not only the plan")] = False,
    format: _Format = Format.TEXT,
    timeout: _Timeout = 30.0,
) -> None:
    """Print what a replay would write; with --yes write it.

    A replay is a new intent for the keys that failed, and is judged anew. Unchanged content keeps the
    position at which it first stood, as long as its bytes still stand there; what was mended does not, and
    needs a generation that is the newest now. Names and filters must all agree. Exit 1 with --yes if
    something cannot be replayed.
    """
    filters = _filters(reason, tenant, bucket, since, until)
    _check_selection(names or (), filters, all_, mended)
    content = None if mended is None else _read_mended(mended)
    letters = _select(names or (), filters, timeout)
    evidence = gather(load(), letters, timeout) if letters else None
    if evidence is None:
        steps: list[Step] = []
    elif content is None:
        now = datetime.now(UTC)
        steps = plan(letters, evidence, again=again, now=now, emitter=_emitter(), new_id=_new_id)
    else:
        if len(letters) != 1:
            raise UsageError(f"--mended is the content of exactly one dead letter, not of: {len(letters)}")
        steps = [mend(letters[0], content, evidence, again=again, new_id=_new_id)]
    _carry_out(steps, yes=yes, format=format, timeout=timeout)


def _carry_out(steps: Sequence[Step], *, yes: bool, format: Format, timeout: float) -> None:
    writing = [step for step in steps if step.writes]
    written = iter(write(load(), writing, timeout) if yes and writing else ())
    for step in steps:
        where = next(written, None) if step.writes else None
        print(json.dumps(step_json(step, where)) if format is Format.JSON else step_line(step, where))
    skipped = sum(step.way is Way.SKIPPED for step in steps)
    impossible = sum(step.way is Way.IMPOSSIBLE for step in steps)
    done = "replayed" if yes else "to replay"
    message = f"{done}: {len(writing)}, replayed before: {skipped}, impossible: {impossible}"
    print(message if yes else f"{message}; nothing is written without --yes", file=sys.stderr)
    if yes and impossible:
        raise NotAllReplayed(f"dead letters that cannot be replayed: {impossible}")


def _check_selection(names: Sequence[str], filters: Filters, all_: bool, mended: Path | None) -> None:
    if not (names or filters or all_):
        hint = "name dead letters or intents, filter, or say --all; `sexton dead-letters list` shows them"
        raise UsageError("nothing is replayed that was not asked for", hint=hint)
    if all_ and (names or filters):
        raise UsageError("--all goes with neither names nor filters")
    if mended is not None and len(names) != 1:
        raise UsageError(f"--mended is the content of exactly one dead letter, names given: {len(names)}")


def _select(names: Sequence[str], filters: Filters, timeout: float) -> list[Letter]:
    """Return the letters that are named (all if none is) and pass the filters.

    Tells on stderr which reasons there are when none passes. Raises NoSuchDeadLetter for a name that no dead
    letter has.
    """
    places = {name: place for name in names if (place := Place.parse(name)) is not None}
    missing, found, reasons = set(names), list[Letter](), Counter[str]()
    for letter in read_letters(load(), timeout):
        called = {n for n in names if (letter.place if n in places else letter.intent_id) == places.get(n, n)}
        missing -= called
        if called or not names:
            reasons[letter.event.reason] += 1
            if filters.take(letter):
                found.append(letter)
    if missing:
        raise NoSuchDeadLetter(
            f"no such dead letter: {min(missing)}", hint="`sexton dead-letters list` shows them"
        )
    if reasons and not found:
        there = ", ".join(f"{reason} ({number})" for reason, number in sorted(reasons.items()))
        print(printable(f"nothing passes the filters; reasons that are there: {there}"), file=sys.stderr)
    return sorted(found, key=lambda letter: letter.place)


def _filters(
    reasons: Sequence[str] | None,
    tenants: Sequence[str] | None,
    buckets: Sequence[str] | None,
    since: str | None,
    until: str | None,
) -> Filters:
    now = datetime.now(UTC)
    return Filters(
        frozenset(reasons or ()),
        frozenset(tenants or ()),
        frozenset(buckets or ()),
        None if since is None else instant_of(since, now),
        None if until is None else instant_of(until, now),
    )


def _read_mended(file: Path) -> DeletionIntent:
    """Return the one intent in a file of JSON lines, in the form of `sexton intents emit`.

    Raises InvalidEvent for content that is none, UsageError for no line, several, or no file.
    """
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise UsageError(f"the file cannot be read: {error}") from error
    lines = [line for line in data.splitlines() if line.strip()]
    if len(lines) != 1:
        raise UsageError(f"--mended takes a file with one line, not: {len(lines)}")
    try:
        plain = json.loads(lines[0].decode("utf-8"), object_pairs_hook=names_once)
    except (ValueError, RecursionError) as error:
        raise InvalidEvent(f"not JSON in UTF-8: {error}") from error
    defaults = {"intent_id": _new_id(), "emitted_at": datetime.now(UTC), "emitter": _emitter()}
    return from_json(DeletionIntent, plain, defaults=defaults)


def _new_id() -> str:
    return str(uuid.uuid4())


def _emitter() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "console"  # a container's user without a name
    return f"{user}@{socket.gethostname()}"
