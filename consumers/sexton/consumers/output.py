"""Records as lines for people or as JSON lines; readable without colour."""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from typing import Any

from sexton.consumers.topics import Raw
from sexton.schemas import events
from sexton.schemas.codec import EVENTS, Codec
from sexton.schemas.errors import UndecodableRecord
from sexton.schemas.forms import to_json
from sexton.schemas.text import instant_text, printable

__all__ = ["Format", "coloured", "decode", "record_json", "record_text", "summary"]

_CODES = {
    "deleted": "32",
    "absent": "32",
    "stale": "33",
    "changed": "33",
    "cancelled": "33",
    "pending": "36",
    "refused": "31",
    "dead-lettered": "31",
}
_SHOWN = 48  # bytes of a raw value, characters of a key


class Format(StrEnum):
    """How a reading command prints."""

    TEXT = "text"
    JSON = "json"


def decode(codec: Codec, record: Raw) -> events.Event | UndecodableRecord:
    """Return the event of a record, or why there is none."""
    try:
        return codec.decode(record.value, *EVENTS)
    except UndecodableRecord as error:
        return error


def record_json(record: Raw, event: events.Event | UndecodableRecord) -> str:
    """Return one JSON line: position, key, headers, and the decoded value or the raw bytes as hex."""
    shown: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp is None else to_json(record.timestamp),
        "key": _text(record.key),
        "headers": {name: _text(value) for name, value in record.headers},
    }
    if isinstance(event, UndecodableRecord):
        shown |= {"type": None, "error": {"reason": event.reason, "message": str(event)}}
        shown["raw"] = None if record.value is None else record.value.hex()
    else:
        shown |= {"type": type(event).__name__, "value": to_json(event)}
    return json.dumps(shown, ensure_ascii=True)


def record_text(record: Raw, event: events.Event | UndecodableRecord) -> str:
    """Return one line: partition and offset, time, key, and what the record says."""
    when = "-" if record.timestamp is None else instant_text(record.timestamp)
    place = f"{record.partition}/{record.offset}"
    return f"{place:<10} {when}  {printable(_text(record.key) or '-'):<24} {_said(record, event)}"


def summary(event: events.Event) -> str:
    """Return what an event says, in a few words that a terminal can take."""
    if isinstance(event, events.Outcome):
        said = [f"{kind}={number}" for kind, number in sorted(event.counts.items())]
        said.append(f"verdict {event.verdict.result.value} ({event.verdict.reason})")
        return f"{printable(event.intent_id)} {coloured(event.outcome.value)} {printable(' '.join(said))}"
    return printable(_in_words(event))


def coloured(kind: str, width: int = 0) -> str:
    """Return an outcome, padded, in its colour if stdout is a terminal and NO_COLOR is not set."""
    padded = f"{kind:<{width}}"
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty() or kind not in _CODES:
        return padded
    return f"\033[{_CODES[kind]}m{padded}\033[0m"


def _in_words(event: events.Event) -> str:
    match event:
        case events.DeletionIntent():
            guards = " and ".join(guard.text for guard in event.guards)
            vetoes = "".join(f", {veto.text}" for veto in event.vetoes)
            message = f"{event.intent_id} {event.action.text} if {guards}{vetoes}"
            if (of := event.replay_of) is None:
                return message
            return f"{message}, replays {of.intent_id or f'{of.topic} {of.partition}/{of.offset}'}"
        case events.DeadLetter():
            place = f"{event.topic} {event.position.partition}/{event.position.offset}"
            return f"{event.intent_id or '-'} from {place} {event.reason}: {event.detail}"
        case events.DeferredIntent():
            first = f"first at {event.first.partition}/{event.first.offset}"
            return f"{first} attempt {event.attempt}{_gone(event)} {event.reason}: {event.detail}"
        case _:
            return json.dumps(to_json(event), ensure_ascii=True)


def _gone(event: events.DeferredIntent) -> str:
    """Tell how far an intent that waits has come, where that is known."""
    done = [each.ranges for each in event.keys.done] if event.keys else []
    gone = event.gone + sum(sum(ends[1::2]) - sum(ends[::2]) for ends in done)
    return f" ({gone} gone)" if gone else ""


def _said(record: Raw, event: events.Event | UndecodableRecord) -> str:
    if not isinstance(event, UndecodableRecord):
        return f"{type(event).__name__} {summary(event)}"
    if record.value is None:
        return "(null value)"
    more = "..." if len(record.value) > _SHOWN else ""
    return f"(undecodable: {event.reason}) {record.value[:_SHOWN].hex()}{more}"


def _text(data: bytes | str | None) -> str | None:
    return data.decode("utf-8", "backslashreplace") if isinstance(data, bytes) else data
