"""The keys of an intent as Avro bytes, packed and unpacked at once instead of one by one.

Nearly all bytes of an intent are its keys, and nearly all keys are ASCII: for these the bytes of the nested
array are text joins one way, slices of one text the other way. fastavro writes and reads everything else, and
all of it whenever a key is not ASCII or a value is not what it should be; bytes and events are the same
either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sexton.schemas import events

__all__ = ["LAYOUT", "TAIL", "read_intent", "splice", "take_keys", "write_outcome"]

TAIL = 5  # bytes after the keys of an intent: mode, bypass, no pause; no `replay_of`, no vetoes
LAYOUT = bytes.fromhex("c3013f51132914107309")
"""The header of the schema whose fields `read_intent` knows the order of; for any other it says nothing."""

_GENERATION_GUARD = b"\2\0"  # one guard, and the union's branch that it is
_PLAIN_DELETE = b"\0\0\0\0"  # no node, no node generation, end of the guards; the action's branch
_ONE_PHASE = b"\2"
_END = b"\0\0\0\0\0\0\0"  # end of the keys, end of the phases; hide, no bypass, no pause; no replay, no veto
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST_INT = 2**31 - 1
_MICROSECOND = timedelta(microseconds=1)
_RESULTS = {result: bytes([2 * number]) for number, result in enumerate(events.VerdictResult)}


def _long(number: int) -> str:
    """Return a non-negative Avro long as Latin-1 text: zigzag, 7 bits a byte, lowest first."""
    zigzag, text = number << 1, ""
    while zigzag > 0x7F:
        text += chr(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return text + chr(zigzag)


_LONGEST = 2 * 8191  # zigzag, of a text whose size takes two bytes
_LONGS = tuple(_long(number) for number in range(1_025))


def take_keys(plain: dict[str, Any]) -> bytes | None:
    """Take the keys out of a plain `DeletionIntent` and return their bytes; None leaves it as it was."""
    _, action = plain["action"]
    phases = action.get("phases")
    longer = plain["replay_of"] is not None or plain["vetoes"] or action.get("pause_s")
    if not phases or longer:  # of such a tail, which is rare
        return None
    try:
        packed = [_pack(phase) for phase in phases]
    except (TypeError, ValueError, IndexError):
        return None  # no text, not ASCII, too long: the writer says what, or writes it
    action["phases"] = []
    return (_long(len(packed)) + "".join(packed) + "\0").encode("latin-1")


def splice(encoded: bytes, keys: bytes) -> bytes:
    """Return the bytes of an intent that was written with no phases (one zero byte), with its keys."""
    return b"".join((encoded[: -TAIL - 1], keys, encoded[-TAIL:]))


def _pack(phase: Any) -> str:
    joined = "".join(phase)
    if not joined.isascii():
        raise ValueError("not ascii")
    if not phase:
        return "\0"
    width = len(phase[0])
    if width * len(phase) == len(joined) and set(map(len, phase)) == {width}:
        prefix = _LONGS[width]
        return f"{_long(len(phase))}{prefix}{prefix.join(phase)}\0"
    items = "".join([_LONGS[len(key)] + key for key in phase])
    return f"{_long(len(phase))}{items}\0"


def read_intent(data: bytes, at: int) -> events.DeletionIntent | None:
    """Return the intent of the commonest form that starts at `at` and ends with the data.

    That is a plain delete in one phase, guarded by one generation, its keys ASCII. None says nothing about
    the data: fastavro has to read it, and to say what is wrong with it.
    """
    if not data.endswith(_END):
        return None
    try:
        intent_id, at = _text(data, at)
        tenant, at = _text(data, at)
        emitted_us, at = _number(data, at)
        emitter, at = _text(data, at)
        at = _past(data, at, _GENERATION_GUARD)
        guarded, at = _text(data, at)
        generation, at = _number(data, at)
        at = _past(data, at, _PLAIN_DELETE)
        bucket, at = _text(data, at)
        count, at = _number(data, _past(data, at, _ONE_PHASE))
        emitted_at = _EPOCH + timedelta(microseconds=emitted_us)
        keys = _unpack(data[at : -len(_END)], count)
    except (IndexError, ValueError, OverflowError):
        return None
    guards, action = [events.GenerationGuard(guarded, generation)], events.DeleteObjects(bucket, [keys])
    return events.DeletionIntent(intent_id, tenant, emitted_at, emitter, guards, action)


def _unpack(packed: bytes, count: int) -> list[str]:
    """Return so many keys, which are all that is there; raises ValueError or IndexError for any doubt."""
    if count < 1:
        raise ValueError("no keys, or a block that gives its size first")
    size, start = _number(packed, 0)
    head, width = packed[:start], start + size
    text = packed.decode("latin-1")
    if size > 0 and width * count == len(packed) and _all_start_with(head, packed, width, count):
        keys = [text[at : at + size] for at in range(start, len(packed), width)]
    else:
        keys = _walk(packed, text, count)
    if not "".join(keys).isascii():
        raise ValueError("not ascii")
    return keys


def _all_start_with(head: bytes, packed: bytes, width: int, count: int) -> bool:
    return all(packed[n::width] == head[n : n + 1] * count for n in range(len(head)))


def _walk(packed: bytes, text: str, count: int) -> list[str]:
    keys: list[str] = []
    at = 0
    for _ in range(count):
        size = packed[at]
        at += 1
        if size > 0x7F:
            size = size & 0x7F | packed[at] << 7
            at += 1
        if size & 1 or size > _LONGEST:
            raise ValueError("a negative or a large size")
        end = at + (size >> 1)
        keys.append(text[at:end])
        at = end
    if at != len(packed):
        raise ValueError("the keys do not end where the array does")
    return keys


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return the Avro long at a place, and the place after it; raises ValueError for one of many bytes."""
    zigzag = 0
    for shift in range(0, 63, 7):
        byte = data[at]
        at += 1
        zigzag |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return zigzag >> 1 ^ -(zigzag & 1), at
    raise ValueError("a number of many bytes")


def _text(data: bytes, at: int) -> tuple[str, int]:
    size = data[at] >> 1
    start = at + 1
    if data[at] & 0x81:  # of more than one byte, or negative
        size, start = _number(data, at)
    end = start + size
    if not start <= end <= len(data):
        raise ValueError("a text of no such size")
    return data[start:end].decode(), end


def _past(data: bytes, at: int, expected: bytes) -> int:
    if not data.startswith(expected, at):
        raise ValueError("another form")
    return at + len(expected)


def write_outcome(outcome: events.Outcome) -> bytes | None:
    """Return the bytes of an outcome without exceptions, which nearly all are; None leaves it to fastavro.

    So does every value that is not what it should be: fastavro says what is wrong with it.
    """
    verdict, at = outcome.verdict, outcome.position
    types = (type(outcome.outcome), type(verdict), type(at), type(outcome.exceptions))
    if outcome.exceptions or types != (events.OutcomeKind, events.Verdict, events.Position, list):
        return None
    if type(at.partition) is not int or at.partition > _LARGEST_INT:
        return None
    try:
        return b"".join(
            (
                *map(_string, (outcome.intent_id, outcome.tenant, outcome.bucket, outcome.outcome)),
                _integer(outcome.keys),
                _numbers(outcome.counts),
                b"\0",
                _RESULTS[verdict.result],
                _string(verdict.reason),
                _string(verdict.detail),
                b"\0" if verdict.log_offset is None else b"\2" + _integer(verdict.log_offset),
                _string(at.topic_id),
                _integer(at.partition),
                _integer(at.offset),
                _strings(outcome.store_request_ids),
                _integer((outcome.settled_at - _EPOCH) // _MICROSECOND),
                _numbers(outcome.effects),
            )
        )
    except (TypeError, ValueError, AttributeError, KeyError, IndexError):
        return None


def _integer(number: int) -> bytes:
    if type(number) is not int or not 0 <= number < 2**62:
        raise ValueError("not a number of few bytes")
    return _long(number).encode("latin-1")


def _string(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError("not a text")
    raw = text.encode()
    return _LONGS[len(raw)].encode("latin-1") + raw


def _strings(texts: Sequence[str]) -> bytes:
    if not isinstance(texts, list | tuple):
        raise TypeError("not a list")
    return _integer(len(texts)) + b"".join(map(_string, texts)) + b"\0" if texts else b"\0"


def _numbers(named: Mapping[str, int]) -> bytes:
    if type(named) is not dict:
        raise TypeError("not a map")
    pairs = b"".join([_string(name) + _integer(number) for name, number in named.items()])
    return _integer(len(named)) + pairs + b"\0" if named else b"\0"
