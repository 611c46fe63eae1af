"""The body of a DeleteObjects request, built by hand: a serializer costs more than all the rest of it.

Every key is carried byte for byte: nothing is trimmed, decoded or normalised, since a key that changes on its
way deletes somebody else's object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sexton.storage.errors import InvalidBatch

__all__ = ["MAX_KEYS", "MAX_KEY_BYTES", "DeleteBody", "build_body", "xml_unsafe"]

MAX_KEYS = 1000
"""Keys that one DeleteObjects request may carry (S3 API)."""

MAX_KEY_BYTES = 1024
"""UTF-8 bytes of the longest key (S3 API)."""

_HEAD = (
    b'<?xml version="1.0" encoding="UTF-8"?>'
    b'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Object><Key>'
)
_SEAM = b"</Key></Object><Object><Key>"
_TAIL = b"</Key></Object></Delete>"

# What XML 1.0 carries unchanged in text: TAB and everything from the space up. CR and LF are legal there, but
# parsers turn CR into LF, so both are refused. U+FFFE and U+FFFF are the only ones above that XML forbids
# (surrogates do not survive the encoding).
_CARRIED = bytes([0x09, *range(0x20, 0x100)])
_NONCHARACTERS = (b"\xef\xbf\xbe", b"\xef\xbf\xbf")


@dataclass(frozen=True, slots=True)
class DeleteBody:
    """A request body and the XML-escaped keys in it, in the order of the body, U+0000 between them."""

    data: bytes
    joined: bytes
    count: int

    @property
    def escaped(self) -> tuple[bytes, ...]:
        """The XML-escaped keys."""
        return tuple(self.joined.split(b"\0"))


def xml_unsafe(key: str) -> bool:
    """Tell whether a key holds what a DeleteObjects body cannot carry unchanged (XML 1.0, 2.2 and 2.11).

    That is CR, LF, every other control character below U+0020 but TAB, U+FFFE, U+FFFF and lone surrogates.
    """
    try:
        raw = key.encode()
    except UnicodeEncodeError:
        return True
    return bool(raw.translate(None, _CARRIED)) or _holds_noncharacter(raw)


def build_body(keys: Sequence[str]) -> DeleteBody:
    """Return the body that asks for the deletion of 1 to 1000 distinct keys, with a verbose reply.

    Raises InvalidBatch for an empty, too long or repeating list, an empty or too long key, or a key for which
    `xml_unsafe` holds: one bad key must not spoil, or be taken for, its neighbours.
    """
    count = len(keys)
    if not 1 <= count <= MAX_KEYS:
        raise InvalidBatch(f"a batch holds 1 to {MAX_KEYS} keys: {count}")
    if len(set(keys)) != count:
        raise InvalidBatch(f"a batch names no key twice: {_repeated(keys)!r}")
    # U+0000 separates the keys: no safe key holds it, and the separators left after all carried bytes have
    # been taken away tell in one pass that nothing unsafe is there.
    try:
        raw = "\0".join(keys).encode()
    except UnicodeEncodeError as error:
        raise InvalidBatch(f"a key is no Unicode text: {_first_unsafe(keys)!r}") from error
    if len(raw.translate(None, _CARRIED)) != count - 1 or _holds_noncharacter(raw):
        raise InvalidBatch(f"XML cannot carry a key: {_first_unsafe(keys)!r}")
    _check_lengths(keys)
    raw = raw.replace(b"&", b"&amp;").replace(b"<", b"&lt;").replace(b">", b"&gt;")
    return DeleteBody(_HEAD + raw.replace(b"\0", _SEAM) + _TAIL, raw, count)


def _holds_noncharacter(raw: bytes) -> bool:
    # Most keys are ASCII, which one pass by machine words tells; the two searches cost as much as the rest.
    return not raw.isascii() and any(char in raw for char in _NONCHARACTERS)


def _check_lengths(keys: Sequence[str]) -> None:
    lengths = list(map(len, keys))
    if not min(lengths):
        raise InvalidBatch("a key is not empty")
    if max(lengths) * 4 <= MAX_KEY_BYTES:
        return
    for key in keys:
        if len(key.encode()) > MAX_KEY_BYTES:
            raise InvalidBatch(
                f"a key has at most {MAX_KEY_BYTES} bytes: {len(key.encode())}, {key[:60]!r}..."
            )


def _first_unsafe(keys: Sequence[str]) -> str:
    return next(key for key in keys if xml_unsafe(key))


def _repeated(keys: Sequence[str]) -> str:
    return Counter(keys).most_common(1)[0][0]
