"""`sexton intents status` and `sexton tail`: what the topics say."""

from __future__ import annotations

import json
from collections import Counter
from typing import Annotated, Any

import typer

from sexton.consumers.fold import PENDING, Counts, Folded
from sexton.consumers.output import Format, coloured, decode, record_json, record_text, summary
from sexton.consumers.status import Status, count_all, look_up
from sexton.consumers.topics import Start, read
from sexton.schemas.errors import SextonError
from sexton.schemas.events import OutcomeKind
from sexton.schemas.forms import to_json
from sexton.schemas.registry import open_codec
from sexton.schemas.settings import load
from sexton.schemas.text import printable

__all__ = ["EXAMPLES", "intents_app", "status", "tail"]

intents_app = typer.Typer(
    help="Deletion intents.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)
EXAMPLES = """\b
Examples:
  sexton tail outcomes --until-end
  sexton tail intents --from end
  sexton tail dead-letters --until-end --format json | jq .value.reason
"""
"""Of `sexton tail`."""
_STATUS = """\b
Examples:
  sexton intents status 6f1c9a52-7f0e-4c39-9d0b-0f4a1be3a1aa
  sexton intents status ID --format json | jq .state
  sexton intents status                     counts of all
"""


_GONE = frozenset({OutcomeKind.DELETED.value, OutcomeKind.ABSENT.value})
_NAMED = 20  # keys that the text names; JSON has all
_UNKNOWN_HINT = "is the id right? `sexton tail intents --until-end` shows the intents that are there"


class UnknownIntent(SextonError):
    """No record names the intent."""


@intents_app.callback()
def _noun() -> None:
    """Deletion intents: ask for deletions, and see what became of them."""


@intents_app.command(epilog=_STATUS, short_help="pending, or the outcome; or counts of all")
def status(
    intent_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="the intent's id; without it all are counted")
    ] = None,
    format: Annotated[Format, typer.Option(help="how to print")] = Format.TEXT,
    timeout: Annotated[float, typer.Option(min=0.1, help="seconds without an answer from Kafka")] = 30.0,
) -> None:
    """Return whether an intent is pending, or its outcome folded from all records about it.

    The text counts the keys by their outcome and names those that are not gone, 20 at most; JSON has every
    key. Records are folded per key by precedence, never by arrival: deleted = absent > changed > refused >
    stale > cancelled > dead-lettered. A replay of a dead letter is an intent of its own, told with the first
    one. Without ID every intent is counted: submitted = final + pending. Exit 1 if no record names the
    intent.
    """
    if intent_id is None:
        counts = count_all(load(), timeout)
        print(json.dumps(_counts_json(counts)) if format is Format.JSON else _counts_text(counts))
        return
    found = look_up(load(), intent_id, timeout)
    if not found.known:
        raise UnknownIntent(f"no record names the intent: {intent_id}", hint=_UNKNOWN_HINT)
    print(json.dumps(_status_json(found)) if format is Format.JSON else _status_text(found))


def tail(
    topic: Annotated[str, typer.Argument(help="topic, with or without the prefix", show_default=False)],
    until_end: Annotated[bool, typer.Option("--until-end", help="stop at the end as of now")] = False,
    from_: Annotated[Start, typer.Option("--from", help="where to start")] = Start.BEGINNING,
    format: Annotated[Format, typer.Option(help="text, or one JSON object a line")] = Format.TEXT,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="show records of open and aborted transactions too")
    ] = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="seconds without an answer from Kafka")] = 30.0,
) -> None:
    """Print the decoded records of a topic, one a line: position, time, key, and what each says.

    A record that cannot be decoded is shown raw, in hex. Without --until-end it continues until Ctrl-C.
    """
    settings = load()
    codec = open_codec(settings)
    line = record_json if format is Format.JSON else record_text
    found = read(
        settings, topic, start=from_, until_end=until_end, committed=not uncommitted, timeout=timeout
    )
    for record in found:
        print(line(record, decode(codec, record)), flush=not until_end)


def _status_json(found: Status) -> dict[str, Any]:
    folded = found.folded()
    return {
        "intent_id": found.intent_id,
        "state": folded.state,
        "final": folded.final,
        "keys": {key: kind.value for key, kind in folded.keys.items()},
        "rest": folded.rest,
        "pending_keys": list(folded.pending),
        "positions": found.positions,
        "deferred": [to_json(each) for each in found.deferred],
        "intent": None if found.intent is None else to_json(found.intent),
        "records": [{"type": type(each).__name__, **to_json(each)} for each in found.said],
        "replays": [_status_json(each) for each in found.replays.values()],
    }


def _counts_json(counts: Counts) -> dict[str, Any]:
    return {
        "submitted": counts.submitted,
        "final": {kind.value: number for kind, number in counts.final.items()},
        "settled": counts.settled,
        "pending": counts.pending,
        "unmatched": counts.unmatched,
        "undecodable": counts.undecodable,
    }


def _counts_text(counts: Counts) -> str:
    lines = [f"submitted        {counts.submitted}"]
    lines += [f"  {coloured(kind.value, 15)}{number}" for kind, number in counts.final.items()]
    lines.append(f"  {coloured(PENDING, 15)}{counts.pending}")
    if counts.unmatched:
        lines.append(f"outcomes of intents that are no longer there: {counts.unmatched}")
    if counts.undecodable:
        lines.append(f"dead-lettered records that are no intents: {counts.undecodable}")
    return "\n".join(lines)


def _status_text(found: Status) -> str:
    folded = found.folded()
    lines = [f"{printable(found.intent_id)}  {coloured(folded.state)}"]
    if found.intent is not None:
        lines.append(f"  asks      {summary(found.intent).partition(' ')[2]}")
        lines.append(f"  by        {printable(found.intent.emitter)} at {to_json(found.intent.emitted_at)}")
    if found.intent is not None and (of := found.intent.replay_of) is not None:
        what = of.intent_id or f"{of.topic} {of.partition}/{of.offset}"
        lines.append(f"  replays   {printable(what)}")
    lines += [f"  stands at intents {place}" for place in found.positions]
    lines += [f"  deferred  {summary(each)}" for each in found.deferred]
    lines += [f"  said      {summary(each).partition(' ')[2]}" for each in found.said]
    lines += [
        f"  replayed  as {printable(each.intent_id)}: {coloured(each.folded().state)}"
        for each in found.replays.values()
    ]
    return "\n".join([*lines, *_key_lines(folded)])


def _key_lines(folded: Folded) -> list[str]:
    """Return how many keys have each outcome, then those that are not gone, some of them by name."""
    words = {key: kind.value for key, kind in folded.keys.items()} | dict.fromkeys(folded.pending, PENDING)
    counts = Counter(words.values())
    message = [f"{number} {coloured(kind)}" for kind, number in sorted(counts.items())]
    if folded.rest is not None:
        message.append(f"all {'others' if words else 'of them'} {coloured(folded.rest.value)}")
    # While no key has an outcome, that it has none is reported by the number alone.
    fine = {*_GONE, PENDING} if len(counts) == 1 else _GONE
    left = [(kind, key) for key, kind in sorted(words.items()) if kind not in fine]
    lines = [f"  keys      {', '.join(message)}"] if message else []
    lines += [f"    {coloured(kind, 14)} {printable(key)}" for kind, key in left[:_NAMED]]
    if len(left) > _NAMED:
        lines.append(f"    and {len(left) - _NAMED} more that are not gone: --format json has every key")
    return lines
