"""Erasing all versions: list them, delete each by its id, markers too, in slices that hold nothing up.

The newest version of a key goes after all its older ones: were it gone first, an older one would come to
light.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sexton.storage.calls import ListedVersion, VersionMark
from sexton.storage.interface import Deleter
from sexton.storage.states import Delete, KeyState, Kind

__all__ = ["ErasedSlice", "erase_slice"]

_SLICE = 1000


@dataclass(frozen=True, slots=True)
class ErasedSlice:
    """What became of the versions of one slice: `erased` of them (`markers` of these were markers) are gone.

    `states` names those that are not. `after` is where to continue, None at the end of the listing. Versions
    were `kept` back because older ones of the same key may stand in the next slice: unless nothing was
    listed, go through the whole once more until `listed` is 0, or only `states` stay. Unless `exact`, the
    listing may show other keys than those that stand there: nothing was erased.
    """

    listed: int
    erased: int
    markers: int
    kept: int
    states: tuple[tuple[ListedVersion, KeyState], ...]
    after: VersionMark | None
    exact: bool = True


def erase_slice(
    deleter: Deleter,
    bucket: str,
    prefix: str,
    *,
    exactly: bool = False,
    after: VersionMark | None = None,
    limit: int = _SLICE,
    bypass_governance: bool = False,
) -> ErasedSlice:
    """Erase up to `limit` (2 to 1000) versions of one key (`exactly`), or of all keys under a prefix.

    Raises what a listing raises; what a delete meets stands in `states`.
    """
    calls = deleter.calls
    if exactly:
        page = calls.versions_of(bucket, prefix, after, limit)
    else:
        page = calls.version_slice(bucket, prefix, after, limit)
    if exactly and not page.encoded:
        return ErasedSlice(0, 0, 0, 0, (), None, exact=False)
    older = [version for version in page.versions if not version.is_latest]
    newest = [version for version in page.versions if version.is_latest]
    states = _erase(deleter, bucket, older, bypass_governance)
    # A newest version stays while an older one does, or may: else the older one would be the newest.
    staying = {version.key for version, state in states if state.kind is not Kind.ABSENT}
    if page.after is not None and page.versions:
        staying.add(page.versions[-1].key)
    due = [version for version in newest if version.key not in staying]
    states += _erase(deleter, bucket, due, bypass_governance)
    failed = {(version.key, version.version_id) for version, _ in states}
    gone = [version for version in older + due if (version.key, version.version_id) not in failed]
    return ErasedSlice(
        len(page.versions),
        len(gone),
        sum(version.is_marker for version in gone),
        len(newest) - len(due),
        tuple(states),
        page.after,
        page.encoded,
    )


def _erase(
    deleter: Deleter, bucket: str, versions: Sequence[ListedVersion], bypass_governance: bool
) -> list[tuple[ListedVersion, KeyState]]:
    if not versions:
        return []
    items = [Delete(version.key, version_id=version.version_id) for version in versions]
    result = deleter.delete_all(bucket, items, bypass_governance=bypass_governance).result()
    return [(versions[index], state) for index, state in sorted(result.states.items())]
