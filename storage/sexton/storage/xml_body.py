"""The body of a DeleteObjects request, built by hand: a serializer costs more than all the rest of it.

Every key is carried byte for byte: nothing is trimmed, decoded or normalised, since a key that changes on its
way deletes somebody else's object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sexton.storage.errors import InvalidBatch
from sexton.storage.states import Delete

__all__ = [
    "MAX_KEYS",
    "MAX_KEY_BYTES",
    "DeleteBody",
    "build_body",
    "build_items",
    "key_problem",
    "xml_unsafe",
]

MAX_KEYS = 1000
"""Keys that one DeleteObjects request may carry (S3 API)."""

MAX_KEY_BYTES = 1024
"""UTF-8 bytes of the longest key (S3 API)."""

_HEAD = (
    b'<?xml version="1.0" encoding="UTF-8"?>'
    b'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Object><Key>'
)
_HEAD_ITEMS = _HEAD.removesuffix(b"<Object><Key>")
_SEAM = b"</Key></Object><Object><Key>"
_TAIL = b"</Key></Object></Delete>"

# What XML 1.0 carries unchanged in text: TAB and everything from the space up. CR and LF are legal there, but
# parsers turn CR into LF, so both are refused. U+FFFE and U+FFFF are the only ones above that XML forbids
# (surrogates do not survive the encoding).
_CARRIED = bytes([0x09, *range(0x20, 0x100)])
_NONCHARACTERS = (b"\xef\xbf\xbe", b"\xef\xbf\xbf")


@dataclass(frozen=True, slots=True)
class DeleteBody:
    """A request body and the XML-escaped keys in it, in the order of the body, U+0000 between them.

    `plain` says that no entry holds more than its key.
    """

    data: bytes
    joined: bytes
    count: int
    plain: bool = True

    @property
    def escaped(self) -> tuple[bytes, ...]:
        """The XML-escaped keys."""
        return tuple(self.joined.split(b"\0"))


def xml_unsafe(key: str) -> bool:
    """Return whether a key holds what a DeleteObjects body cannot carry unchanged (XML 1.0, 2.2 and 2.11).

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
    raw = _escaped(raw)
    return DeleteBody(_HEAD + raw.replace(b"\0", _SEAM) + _TAIL, raw, count)


def build_items(items: Sequence[Delete]) -> DeleteBody:
    """Return the body for items with conditions or versions; their keys have been verified before.

    Raises InvalidBatch for an empty, too long or repeating list, or a key for which `xml_unsafe` holds.
    """
    if all(item.etag is None and item.version_id is None for item in items):
        return build_body([item.key for item in items])
    count = len(items)
    if not 1 <= count <= MAX_KEYS:
        raise InvalidBatch(f"a batch holds 1 to {MAX_KEYS} keys: {count}")
    names = [item.key for item in items]
    if len({(item.key, item.version_id) for item in items}) != count:
        raise InvalidBatch(f"a batch names no key and version twice: {_repeated(names)!r}")
    for text in (text for item in items for text in (item.key, item.etag or "", item.version_id or "")):
        if xml_unsafe(text):
            raise InvalidBatch(f"XML cannot carry a key or its condition: {text!r}")
    _check_lengths(names)
    entries = b"".join(_entry(item) for item in items)
    joined = _escaped("\0".join(names).encode())
    return DeleteBody(_HEAD_ITEMS + entries + b"</Delete>", joined, count, plain=False)


def key_problem(key: str) -> str | None:
    """Return why S3 can hold no such key (a code of the table of error classes), None when it can."""
    if not key:
        return "EmptyKey"
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "NotUnicode"
    return "KeyTooLongError" if size > MAX_KEY_BYTES else None


def _entry(item: Delete) -> bytes:
    parts = [("Key", item.key), ("VersionId", item.version_id), ("ETag", item.etag)]
    inner = b"".join(
        b"<%b>%b</%b>" % (name.encode(), _escaped(text.encode()), name.encode())
        for name, text in parts
        if text is not None
    )
    return b"<Object>" + inner + b"</Object>"


def _escaped(raw: bytes) -> bytes:
    return raw.replace(b"&", b"&amp;").replace(b"<", b"&lt;").replace(b">", b"&gt;")


def _holds_noncharacter(raw: bytes) -> bool:
    # Most keys are ASCII, which one pass by machine words shows; the two searches cost as much as the rest.
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
