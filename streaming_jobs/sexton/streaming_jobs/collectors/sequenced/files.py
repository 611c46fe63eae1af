"""What a listing has of sequenced metadata: the files of each namespace, by id and age. Pure.

A namespace is told by its folder's name; what else lies under the prefix, an engine's data files for the most
part, is passed over and costs no memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sexton.schemas.errors import InvalidFormat
from sexton.schemas.sequenced import MAX_FILE_ID, Namespace
from sexton.storage import Listed

__all__ = ["NOT_TOLD", "Ages", "Files", "FilesFold", "ages_of", "joined"]

NOT_TOLD = -1
"""In the place of an instant that the store did not tell."""
_PART = 1000
_Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Files:
    """Files of one folder: `ids`, and at the same places their bytes and when they were written.

    Instants are in microseconds since 1970, by the store's clock. `strange` counts objects of other names,
    `example` is one of them. Parts of the same folder add up.
    """

    root: str
    name: str
    ids: Sequence[int]
    sizes: Sequence[int]
    written: Sequence[int]
    strange: int = 0
    example: str = ""

    @property
    def namespace(self) -> Namespace:
        """The namespace; raises InvalidFormat for a root that not every reader takes for the same one."""
        return Namespace(self.root, self.name)

    @property
    def text(self) -> str:
        """The folder, as a guard names the namespace."""
        return f"{self.root}/{self.name}" if self.root else self.name


@dataclass
class _Open:
    namespace: Namespace | None
    ids: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    strange: int = 0
    example: str = ""


class FilesFold:
    """Gathers the files of each folder that has the name of a namespace."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)
        self._at: _Name | None = None
        self._open = _Open(None)

    def add(self, entry: Listed) -> Iterable[Files]:
        """Take in an object; a part is whole once it is long, or another folder begins."""
        folder, _, _ = entry.key.rpartition("/")
        root, _, name = folder.rpartition("/")
        if name not in self._names:
            return ()
        closed: Iterable[Files] = ()
        if (root, name) != self._at or len(self._open.ids) >= _PART:
            closed = self.end()
            self._at, self._open = (root, name), _Open(_namespace(root, name))
        self._take(entry)
        return closed

    def end(self) -> Iterable[Files]:
        """Return what is left."""
        at, found = self._at, self._open
        self._at, self._open = None, _Open(None)
        if at is None:
            return ()
        arrays = tuple(found.ids), tuple(found.sizes), tuple(found.written)
        return (Files(*at, *arrays, found.strange, found.example),)

    def _take(self, entry: Listed) -> None:
        found = self._open
        id = None if found.namespace is None else found.namespace.id_of(entry.key)
        # No intent can carry a higher one; and 0 is dead without any boundary, so that none covers it alone.
        if id is None or not 1 <= id <= MAX_FILE_ID:
            found.strange += 1
            found.example = found.example or entry.key
            return
        found.ids.append(id)
        found.sizes.append(entry.size)
        found.written.append(NOT_TOLD if entry.written_at is None else _micros(entry.written_at))


def joined(parts: Sequence[Files]) -> list[Files]:
    """Return the parts of each folder as one, in the order of their first."""
    found: dict[_Name, Files] = {}
    for part in parts:
        at = (part.root, part.name)
        found[at] = _sum(found[at], part) if at in found else part
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Ages:
    """What is old in a namespace: ids with their bytes, the lowest first; `young` counts the others.

    The newest file is in neither.
    """

    newest: int
    old: Sequence[tuple[int, int]]
    young: int


def ages_of(files: Files, listed_at: datetime, min_age_s: float) -> Ages | None:
    """Return what is older than the age by the store's clock, None without any file.

    `listed_at` is the Date of the listing, by the clock that has stamped the files: ours says nothing about
    them. A file whose instant the store does not tell is young.
    """
    if not files.ids:
        return None
    newest, limit = max(files.ids), _micros(listed_at) - round(min_age_s * 1_000_000)
    rest = [each for each in zip(files.ids, files.sizes, files.written, strict=True) if each[0] != newest]
    old = sorted((id, size) for id, size, written in rest if written != NOT_TOLD and written < limit)
    return Ages(newest, old, len(rest) - len(old))


def _sum(one: Files, other: Files) -> Files:
    return Files(
        one.root,
        one.name,
        [*one.ids, *other.ids],
        [*one.sizes, *other.sizes],
        [*one.written, *other.written],
        one.strange + other.strange,
        one.example or other.example,
    )


def _namespace(root: str, name: str) -> Namespace | None:
    try:
        return Namespace(root, name)
    except InvalidFormat:
        return None


def _micros(instant: datetime) -> int:
    return round(instant.timestamp() * 1_000_000)
