"""Sequenced metadata: where the files of a namespace and its boundary lie, and how they are written. Pure.

    db/manifest/00000000000000000025.manifest     a file: 20 decimal digits, then the namespace's name
    db/gc/manifest.boundary                       its boundary, for example `24`

The form is the published engine's, which writes and reads both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sexton.schemas.errors import InvalidFormat
from sexton.schemas.tenant_prefix import is_plain

__all__ = ["MAX_BOUNDARY", "MAX_FILE_ID", "Namespace", "boundary_text", "parse_boundary"]

MAX_BOUNDARY = 2**64 - 1
MAX_FILE_ID = 2**63 - 1  # an intent carries it in a signed long: a higher one could never be collected
_BOUNDARY = re.compile(rb"[0-9]{1,20}")
_GC = "gc"


@dataclass(frozen=True, slots=True)
class Namespace:
    """Files of one kind below a root; `root` is a plain path without slashes at its ends, empty for none.

    Raises InvalidFormat for a root or a name that not every reader takes for the same one.
    """

    root: str
    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.root, str) or not isinstance(self.name, str):
            raise InvalidFormat(f"a namespace's root and name are text: {self.root!r:.80}, {self.name!r:.80}")
        if self.root and not is_plain(f"{self.root}/"):
            raise InvalidFormat(f"a namespace's root has no empty segment, no . and no ..: {self.root!r:.80}")
        if not self.name or "/" in self.name or not is_plain(self.name) or self.name == _GC:
            raise InvalidFormat(f"a namespace's name is one plain segment, and not {_GC}: {self.name!r:.80}")

    @classmethod
    def of(cls, text: str) -> Namespace:
        """Return the namespace of this `text`; raises InvalidFormat where it names none."""
        root, _, name = text.rpartition("/")
        found = cls(root, name)
        if found.text != text:  # `/name` has an empty root that is spelled out
            raise InvalidFormat(f"not a namespace: {text!r:.80}")
        return found

    @property
    def text(self) -> str:
        """Root and name, as a guard names the namespace."""
        return f"{self._below}{self.name}"

    @property
    def folder(self) -> str:
        """The prefix of all its files."""
        return f"{self.text}/"

    @property
    def boundary_key(self) -> str:
        """The key of its boundary."""
        return f"{self._below}{_GC}/{self.name}.boundary"

    def key(self, id: int) -> str:
        """Return the key of a file; raises InvalidFormat for an id that has no 20 digits."""
        if not 0 <= id <= MAX_BOUNDARY:
            raise InvalidFormat(f"an id has at most 64 bits: {id}")
        return f"{self.folder}{id:020d}.{self.name}"

    def id_of(self, key: str) -> int | None:
        """Return the id of a file, None for a key that is not exactly one of this namespace."""
        digits = key.removeprefix(self.folder)[:20]
        if not digits.isascii() or not digits.isdecimal() or int(digits) > MAX_BOUNDARY:
            return None
        return int(digits) if key == self.key(int(digits)) else None

    @property
    def _below(self) -> str:
        return f"{self.root}/" if self.root else ""


def parse_boundary(body: bytes) -> int:
    """Return the boundary that an object holds: decimal digits, with ASCII white space around them or not.

    Raises InvalidFormat for anything else: no digits, a sign, other characters, more than 64 bits. The
    published engine reads the same, and refuses the same but for a plus sign and more zeros in front.
    """
    digits = body.strip()
    if not _BOUNDARY.fullmatch(digits) or int(digits) > MAX_BOUNDARY:
        raise InvalidFormat(f"a boundary is a number of at most 64 bits in digits: {body[:80]!r}")
    return int(digits)


def boundary_text(id: int) -> bytes:
    """Return the body of a boundary object, digits alone; raises InvalidFormat above 64 bits."""
    if not 0 <= id <= MAX_BOUNDARY:
        raise InvalidFormat(f"a boundary has at most 64 bits: {id}")
    return b"%d" % id
