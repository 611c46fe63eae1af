"""The keys of an intent as Avro bytes, packed at once instead of one by one.

Nearly all bytes of an intent are its keys, and nearly all keys are ASCII: for these the bytes of the nested
array are text joins. fastavro writes everything else, and all of it whenever a key is not ASCII or a value is
not what it should be; the bytes are the same either way.
"""

from __future__ import annotations

from typing import Any

__all__ = ["TAIL", "splice", "take_keys"]

TAIL = 3  # bytes after the keys of an intent: mode, bypass_governance, and the null of `replay_of`


def _long(number: int) -> str:
    """Return a non-negative Avro long as Latin-1 text: zigzag, 7 bits a byte, lowest first."""
    zigzag, text = number << 1, ""
    while zigzag > 0x7F:
        text += chr(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return text + chr(zigzag)


_LONGS = tuple(_long(number) for number in range(1_025))


def take_keys(plain: dict[str, Any]) -> bytes | None:
    """Take the keys out of a plain `DeletionIntent` and return their bytes; None leaves it as it was."""
    _, action = plain["action"]
    phases = action.get("phases")
    if not phases or plain["replay_of"] is not None:  # a replay has a longer tail, and is rare
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
