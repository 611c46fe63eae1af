"""Dead letters and plans of replays, as text for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from sexton.consumers.dead_letters import Letter
from sexton.consumers.replays import Step, Way
from sexton.schemas import events
from sexton.schemas.codec import Codec
from sexton.schemas.errors import UndecodableRecord
from sexton.schemas.forms import to_json
from sexton.schemas.text import counted, printable

__all__ = [
    "heading",
    "hex_lines",
    "letter_json",
    "letter_line",
    "show_json",
    "show_text",
    "step_json",
    "step_line",
]

_WIDTH = 16  # bytes on a line


def heading() -> str:
    """Return the line above those of letters."""
    return _columns("PLACE", "DIED", "REASON", "TENANT", "BUCKET", "INTENT", "KEYS", "FIRST AT")


def letter_line(letter: Letter) -> str:
    """Return one line: place, time of death, reason, tenant, bucket, intent id, keys, first position."""
    keys = "?" if letter.keys is None else str(letter.keys)
    return _columns(
        str(letter.place),
        _instant(letter.event.dead_at),
        letter.event.reason,
        letter.tenant or "-",
        letter.bucket or "-",
        letter.intent_id or "-",
        counted(keys, "key"),
        f"{letter.event.topic} {_position(letter.first or letter.event.position)}",
    )


def _columns(
    place: str, died: str, reason: str, tenant: str, bucket: str, intent: str, keys: str, first: str
) -> str:
    cells = (
        f"{place:<10} {died:<24}",
        f"{reason:<16}",
        f"{tenant:<16}",
        f"{bucket:<16}",
        f"{intent:<36}",
        f"{keys:>10}",
        first,
    )
    return printable("  ".join(cells))


def letter_json(letter: Letter) -> dict[str, Any]:
    """Return what `list` says of a letter."""
    event = letter.event
    return {
        "place": str(letter.place),
        "partition": letter.place.partition,
        "offset": letter.place.offset,
        "dead_at": to_json(event.dead_at),
        "reason": event.reason,
        "detail": event.detail,
        "tenant": letter.tenant,
        "bucket": letter.bucket,
        "intent_id": letter.intent_id,
        "keys": letter.keys,
        "topic": event.topic,
        "position": to_json(event.position),
        "first": None if letter.first is None else to_json(letter.first),
    }


def show_json(codec: Codec, letter: Letter) -> dict[str, Any]:
    """Return everything about a letter: what it says, what its bytes say, and the bytes as hex."""
    raw_key, raw = letter.event.raw_key, letter.event.raw_value
    head = _head(codec, letter)
    trouble = letter.trouble
    return {
        **letter_json(letter),
        "failed_keys": list(letter.event.keys),
        "written_at": to_json(letter.event.written_at),
        "intent": None if letter.intent is None else to_json(letter.intent),
        "deferred": None if letter.waited is None else to_json(letter.waited),
        "undecodable": None if trouble is None else {"reason": trouble.reason, "message": str(trouble)},
        "starts_with": None if head is None else {"type": type(head[0]).__name__, **to_json(head[0])},
        "raw_key": None if raw_key is None else raw_key.hex(),
        "raw_value": None if raw is None else raw.hex(),
    }


def show_text(codec: Codec, letter: Letter) -> str:
    """Return everything about a letter: what can be decoded as JSON, the rest as hex and characters."""
    event = letter.event
    rows = [
        ("died", _instant(event.dead_at)),
        ("reason", f"{event.reason}: {event.detail}"),
        ("stood at", f"{event.topic} {_position(event.position)} since {_instant(event.written_at)}"),
        ("first at", "unknown" if letter.first is None else _position(letter.first)),
        ("intent", letter.intent_id or "-"),
        ("tenant", letter.tenant or "-"),
        ("bucket", letter.bucket or "-"),
        ("keys", _keys(letter)),
    ]
    lines = [f"dead letter {letter.place}", *(f"  {name:<9} {printable(text)}" for name, text in rows)]
    lines += [f"    {printable(key)}" for key in event.keys]
    if event.raw_key is not None:
        lines += ["record key:", *hex_lines(event.raw_key)]
    return "\n".join([*lines, *_value_lines(codec, letter)])


def step_json(step: Step, written: str | None) -> dict[str, Any]:
    """Return one step of a plan; `written` is where its replay stands, None where nothing was written."""
    return {
        "place": str(step.letter.place),
        "also": [str(letter.place) for letter in step.letters[:-1]],
        "way": step.way.value,
        "why": step.why,
        "replays": list(step.replays),
        "of": to_json(step.letter.source),
        "keys": step.keys,
        "first": None if step.first is None else to_json(step.first),
        "intent_id": step.intent.intent_id if step.intent and written else None,
        "written": written,
    }


def step_line(step: Step, written: str | None) -> str:
    """Return one line of a plan."""
    also = "".join(f", {letter.place}" for letter in step.letters[:-1])
    parts = [f"{step.letter.place!s}{also}", step.way.value]
    if step.writes:
        parts.append(counted("?" if step.keys is None else step.keys, "key"))
    parts.append(f"of {step.letter.intent_id or 'an unreadable record'}")
    parts.append(step.why if step.first is None else f"{step.why} {_position(step.first)}")
    if step.replays:
        verb = "as" if step.way is Way.SKIPPED else "replayed before as"
        parts.append(f"{verb} {', '.join(step.replays)}")
    if written is not None:
        parts.append(f"-> {step.intent.intent_id if step.intent else 'the bytes'} at {written}")
    return printable("  ".join(parts))


def hex_lines(data: bytes, start: int = 0) -> Iterator[str]:
    """Yield lines of 16 bytes: their offset, hex, and those that are printable ASCII as characters."""
    for at in range(0, len(data), _WIDTH):
        row = data[at : at + _WIDTH]
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"  {start + at:08x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  |{shown}|"


def _value_lines(codec: Codec, letter: Letter) -> Iterator[str]:
    raw = letter.event.raw_value
    if raw is None:
        yield "record value: null"
        return
    if letter.waited is not None:
        about = f"attempt {letter.waited.attempt}, {letter.waited.reason}: {letter.waited.detail}"
        yield f"deferred copy: {printable(about)}"
    if letter.intent is not None:
        yield "intent:"
        yield from _pretty(letter.intent)
        return
    value = raw if letter.value is None else letter.value
    why = "" if letter.trouble is None else f" ({letter.trouble.reason}: {letter.trouble})"
    head = _head(codec, letter)
    if head is None:
        yield printable(f"record value, {counted(len(value), 'byte')}, undecodable{why}:")
        yield from hex_lines(value)
        return
    event, left = head
    yield printable(
        f"record value, {counted(len(value), 'byte')}{why}; it starts with a {type(event).__name__}:"
    )
    yield from _pretty(event)
    if left:
        yield f"and ends with {counted(left, 'byte')} more:"
        yield from hex_lines(value[-left:], len(value) - left)


def _head(codec: Codec, letter: Letter) -> tuple[events.Event, int] | None:
    """Return the record that undecodable bytes start with, and how many bytes follow; None without one."""
    if letter.intent is not None:
        return None
    kinds = (events.DeletionIntent, events.DeferredIntent, events.Outcome, events.DeadLetter)
    try:
        return codec.decode_first(letter.value, *kinds)
    except UndecodableRecord:
        return None


def _pretty(event: events.Event) -> Sequence[str]:
    # ASCII: whatever the names hold, nothing moves a terminal's cursor.
    return [f"  {line}" for line in json.dumps(to_json(event), indent=2).splitlines()]


def _keys(letter: Letter) -> str:
    if letter.event.keys:
        return f"{len(letter.event.keys)} that failed"
    return "all" if letter.keys is None else f"all {letter.keys}"


def _position(position: events.Position) -> str:
    return f"{position.partition}/{position.offset}"


def _instant(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
