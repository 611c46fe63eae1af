"""Immutable units: a folder of files that its commit object names; a reader loads it once that is there.

The commit object is a `meta.json` as Prometheus writes it (tsdb/docs/format, "meta.json"); `thanos.files` in
it names the files with their sizes (Thanos, "block/metadata"). Without that list a whole unit has an `index`
and `chunks/000001`, `chunks/000002` … without a gap.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Named", "named_by"]

_VERSION = 1
_NO_NAME = frozenset(["", ".", ".."])
_CHUNK = re.compile(r"chunks/([0-9]{6})")


@dataclass(frozen=True, slots=True)
class Named:
    """What a commit object names: files by their path in the unit, with their size in bytes where it is told.

    None is a unit that lists no files: it has an index, and chunks from the first on.
    """

    files: Mapping[str, int | None] | None

    def missing(self, found: Mapping[str, int]) -> str | None:
        """Return what is missing or has another size of what is named, None when the unit is whole.

        `found` are the unit's files as a listing shows them, by their path in the unit, in bytes.
        """
        if self.files is None:
            return _gap(found)
        for path, size in self.files.items():
            if path not in found:
                return path
            if size is not None and found[path] != size:
                return f"{path} ({found[path]} of {size} bytes)"
        return None


def named_by(body: bytes) -> Named:
    """Return what a commit object names; raises ValueError for one that cannot be loaded."""
    try:
        meta = json.loads(body)
    except (UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from error
    if not isinstance(meta, dict) or meta.get("version") != _VERSION:
        raise ValueError(f"not of version {_VERSION}")
    thanos = meta.get("thanos", {})
    listed = thanos.get("files") if isinstance(thanos, dict) else thanos
    if listed is None:
        return Named(None)
    if not isinstance(listed, list) or not listed:
        raise ValueError("its list of files is none")
    files = dict(map(_file, listed))
    if len(files) < len(listed):
        raise ValueError("it names a file twice")
    return Named(files)


def _file(entry: Any) -> tuple[str, int | None]:
    path, size = (entry.get("rel_path"), entry.get("size_bytes")) if isinstance(entry, dict) else (None, None)
    # A path that no key has would be missing for ever, however whole the unit is to its readers.
    if not isinstance(path, str) or _NO_NAME.intersection(path.split("/")) or not _is_size(size):
        raise ValueError(f"an entry of its list names no file: {str(entry)[:80]}")
    return path, size


def _is_size(size: Any) -> bool:
    return size is None or (type(size) is int and size >= 0)


def _gap(found: Mapping[str, int]) -> str | None:
    if "index" not in found:
        return "index"
    numbers = sorted(int(match[1]) for path in found if (match := _CHUNK.fullmatch(path)))
    missing = next((n for n, number in enumerate(numbers or [0], 1) if n != number), None)
    return None if missing is None else f"chunks/{missing:06}"
