"""Erasing all versions: list them, delete each by its id, markers too, in slices that hold nothing up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from sexton.storage.calls import ListedVersion, VersionMark
from sexton.storage.interface import Deleter
from sexton.storage.states import Delete, KeyState, Kind

__all__ = ["ErasedSlice", "NewestLast", "erase_slice"]

_SLICE = 1000


@dataclass(slots=True)
class NewestLast:
    """The order in which listed versions go, slice after slice: the newest of a key after its older ones.

    Were it gone first, and an older one not (it is locked, or the step fails), that would be the newest: an
    object that nobody sees any more would come to light. `erase` deletes versions and returns the keys of
    those that stay. Where the older ones of a slice's last key may stand in the next slice, its newest is
    `carried` over to that; who stops between two slices lists it again.
    """

    erase: Callable[[Sequence[ListedVersion]], Collection[str]]
    carried: ListedVersion | None = None
    _stuck: str | None = None

    def take(self, versions: Sequence[ListedVersion], last: str | None) -> int:
        """Erase a slice; `last` is its last key unless the listing is at its end.

        Returns how many newest versions were kept, as older ones of their key stay.
        """
        older = [version for version in versions if not version.is_latest]
        newest = [version for version in versions if version.is_latest]
        if self.carried is not None:
            newest.insert(0, self.carried)
        staying = {*self.erase(older), self._stuck}
        self._stuck = last if last in staying else None
        free = [version for version in newest if version.key not in staying]
        self.carried = next((version for version in free if version.key == last), None)
        self.erase([version for version in free if version.key != last])
        return len(newest) - len(free)


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
    states: list[tuple[ListedVersion, KeyState]] = []
    gone: list[ListedVersion] = []

    def erase(versions: Sequence[ListedVersion]) -> Collection[str]:
        met = _erase(deleter, bucket, versions, bypass_governance)
        states.extend((versions[index], state) for index, state in met.items())
        gone.extend(version for index, version in enumerate(versions) if index not in met)
        return {versions[index].key for index, state in met.items() if state.kind is not Kind.ABSENT}

    order = NewestLast(erase)
    more = page.after is not None and page.versions
    kept = order.take(page.versions, page.versions[-1].key if more else None)
    return ErasedSlice(
        len(page.versions),
        len(gone),
        sum(version.is_marker for version in gone),
        kept + (order.carried is not None),
        tuple(states),
        page.after,
        page.encoded,
    )


def _erase(
    deleter: Deleter, bucket: str, versions: Sequence[ListedVersion], bypass_governance: bool
) -> dict[int, KeyState]:
    if not versions:
        return {}
    items = [Delete(version.key, version_id=version.version_id) for version in versions]
    result = deleter.delete_all(bucket, items, bypass_governance=bypass_governance).result()
    return dict(sorted(result.states.items()))
