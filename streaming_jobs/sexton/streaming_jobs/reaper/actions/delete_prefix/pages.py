"""One page of a prefix: listed, and what it names deleted. Nothing outside the prefix is ever sent.

Whatever a listing claims, a key goes only if it begins with the prefix byte for byte; the owner's tombstone
is left out until it is asked for by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from sexton.schemas import events
from sexton.schemas.errors import EnvironmentFault
from sexton.storage import (
    MAX_KEYS,
    Abilities,
    BatchResult,
    Delete,
    Deleter,
    KeyState,
    Kind,
    Listed,
    ListedVersion,
    NewestLast,
    Slice,
    StoreRefused,
    Versioning,
    VersionMark,
)
from sexton.storage.states import THROTTLING
from sexton.storage.states_of import key_state
from sexton.streaming_jobs.reaper.execute.verification import state_of

__all__ = ["Mark", "Page", "Pager", "pager_of"]

Mark = str | VersionMark
"""Where a listing continues."""

_OUTSIDE = KeyState(
    Kind.FINAL, "OutsideThePrefix", "the store lists it under the prefix, but it does not begin with it"
)


_UNREADABLE = key_state("UnreadableKey", "the store's listing may show another key as this one")


def _wrong(entry: Listed | ListedVersion, prefix: str, known: Abilities) -> KeyState | None:
    """Return why what is listed must not be deleted, None where it may be."""
    if not entry.exact or not known.lists(entry.key):
        return _UNREADABLE
    return None if entry.key.startswith(prefix) else _OUTSIDE


@dataclass(slots=True)
class Page:
    """What became of the `listed` objects (or versions) of one page; `after` is None at the end.

    `left` are those of no known outcome, to be met again, `trouble` why; `unknown`: some of them may be gone.
    `kept` are newest versions that stay above older ones which do. With `fault` the bucket, or everything,
    waits. `unlisted`: not even the listing came.
    """

    listed: int = 0
    gone: int = 0
    absent: int = 0
    left: int = 0
    unknown: bool = False
    kept: int = 0
    failed: list[tuple[str, KeyState]] = field(default_factory=list)
    trouble: KeyState | None = None
    fault: KeyState | None = None
    retry_after_s: float | None = None
    request_ids: tuple[str, ...] = ()
    after: Mark | None = None
    unlisted: bool = False

    def note(self, key: str, state: KeyState) -> None:
        """Count one key that is not plainly gone."""
        if state.kind is Kind.ABSENT:
            self.absent += 1
        elif state.kind in (Kind.FINAL, Kind.REFUSED):
            locked = state.retain_until is not None or state.legal_hold
            self.failed.append((key, replace(state, kind=Kind.REFUSED) if locked else state))
        else:
            self.left += 1
            self.unknown = self.unknown or state.effect_unknown
            self._blame(state)

    def read(self, result: BatchResult, *, denials_final: bool) -> None:
        """Take in what is about a whole request."""
        self.request_ids += result.request_ids
        waits = [wait for wait in (self.retry_after_s, result.retry_after_s) if wait is not None]
        self.retry_after_s = max(waits, default=None)
        if result.all_denied and not denials_final:
            # The bucket's policy, as far as anybody can tell: nothing was ever allowed here.
            self.fault = self.fault or replace(next(iter(result.states.values())), kind=Kind.BUCKET)

    def _blame(self, state: KeyState) -> None:
        throttled = state.code in THROTTLING or state.status in (429, 503)
        if state.kind is Kind.ENVIRONMENT or (state.kind is Kind.BUCKET and not throttled):
            self.fault = state if state.kind is Kind.ENVIRONMENT else self.fault or state
        else:
            self.trouble = state

    @classmethod
    def of_error(cls, error: StoreRefused | EnvironmentFault) -> Page:
        """Return the page of a listing that did not come."""
        page, state = cls(unlisted=True), state_of(error)
        page.retry_after_s = state.retry_after_s
        page._blame(state)
        return page


class Pager(Protocol):
    """A way to go through a prefix; `effect` is how its objects go."""

    effect: str

    def page(self, after: Mark | None, limit: int, *, denials_final: bool) -> Page:
        """Delete up to `limit` (1 to 1000) objects that are listed after a mark."""

    def names(self) -> tuple[list[str], bool]:
        """Return the first keys under the prefix, without the tombstone, and whether there are more.

        Raises what a listing raises.
        """

    def tombstone(self, key: str) -> Page:
        """Delete the tombstone; nothing is `listed` when none is there."""


def pager_of(
    deleter: Deleter, action: events.DeletePrefix, abilities: Abilities, *, bypass_governance: bool
) -> Pager:
    """Return the way that the action's mode asks for; without versions there is only one."""
    creates_markers = abilities.versioning is not Versioning.OFF
    if action.mode is events.DeleteMode.ERASE_ALL_VERSIONS and creates_markers:
        return _Versions(deleter, action, abilities, bypass_governance)
    return _Objects(deleter, action, abilities, bypass_governance, "hidden" if creates_markers else "deleted")


class _Objects:
    """Current objects: a key that a marker hides already is not listed, so no second marker is made."""

    def __init__(
        self,
        deleter: Deleter,
        action: events.DeletePrefix,
        known: Abilities,
        bypass_governance: bool,
        effect: str,
    ) -> None:
        self.effect = effect
        self._deleter = deleter
        self._known = known
        self._action = action
        self._bypass = bypass_governance
        self._ahead: tuple[str, Slice] | None = None

    def page(self, after: Mark | None, limit: int, *, denials_final: bool) -> Page:
        assert not isinstance(after, VersionMark)
        try:
            found = self._listed(after, limit)
        except (StoreRefused, EnvironmentFault) as error:
            return Page.of_error(error)
        objects = found.objects[:limit]
        page = Page(after=objects[-1].key if len(found.objects) > limit else found.after)
        keys: dict[str, None] = {}
        for entry in objects:
            if entry.key != self._action.tombstone:
                page.listed += 1
                # The promise is about the prefix alone: what a store lists beside it is somebody else's.
                wrong = _wrong(entry, self._action.prefix, self._known)
                if wrong is None:
                    keys[entry.key] = None
                else:
                    page.failed.append((entry.key, wrong))
        if keys:
            self._delete(page, list(keys), denials_final, go_on=limit == MAX_KEYS)
        return page

    def names(self) -> tuple[list[str], bool]:
        found = self._deleter.calls.list_slice(self._action.bucket, self._action.prefix)
        keys = [entry.key for entry in found.objects if entry.key != self._action.tombstone]
        return keys, found.after is not None

    def tombstone(self, key: str) -> Page:
        try:
            if not self._deleter.calls.exists(self._action.bucket, key):
                return Page()
        except (StoreRefused, EnvironmentFault) as error:
            return Page.of_error(error)
        page = Page(listed=1)
        self._delete(page, [key], denials_final=True, go_on=False)
        return page

    def _listed(self, after: str | None, limit: int) -> Slice:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == after:
            return ahead[1]
        return self._deleter.calls.list_slice(self._action.bucket, self._action.prefix, after, limit)

    def _delete(self, page: Page, keys: list[str], denials_final: bool, *, go_on: bool) -> None:
        sent = self._deleter.delete_all(self._action.bucket, keys, bypass_governance=self._bypass)
        if go_on and isinstance(page.after, str):
            self._look_ahead(page.after)
        result = sent.result()
        page.gone += result.count - len(result.states)
        for index, state in result.states.items():
            page.note(keys[index], state)
        page.read(result, denials_final=denials_final)

    def _look_ahead(self, after: str) -> None:
        """List the next page while this one is deleted."""
        try:
            found = self._deleter.calls.list_slice(self._action.bucket, self._action.prefix, after, MAX_KEYS)
        except (StoreRefused, EnvironmentFault):
            return  # it is listed again, and told then
        self._ahead = (after, found)


class _Versions:
    """All versions and markers, each by its id, the newest of a key last."""

    effect = "erased"

    def __init__(
        self, deleter: Deleter, action: events.DeletePrefix, known: Abilities, bypass_governance: bool
    ) -> None:
        self._deleter = deleter
        self._known = known
        self._action = action
        self._bypass = bypass_governance
        self._page, self._denials_final = Page(), False
        self._order = NewestLast(self._erase)

    def page(self, after: Mark | None, limit: int, *, denials_final: bool) -> Page:
        if not isinstance(after, VersionMark):
            # A new pass, or the start of a step, after all versions of the key.
            self._order = NewestLast(self._erase)
            after = None if after is None else VersionMark(after, "")
        try:
            found = self._deleter.calls.version_slice(self._action.bucket, self._action.prefix, after, limit)
        except (StoreRefused, EnvironmentFault) as error:
            return Page.of_error(error)
        page = self._begin(Page(after=found.after), denials_final)
        last = found.versions[-1].key if found.after is not None and found.versions else None
        page.kept = self._order.take(self._due(page, found.versions), last)
        return page

    def names(self) -> tuple[list[str], bool]:
        found = self._deleter.calls.version_slice(self._action.bucket, self._action.prefix)
        keys = dict.fromkeys(version.key for version in found.versions)
        keys.pop(self._action.tombstone or "", None)
        return list(keys), found.after is not None

    def tombstone(self, key: str) -> Page:
        try:
            found = self._deleter.calls.versions_of(self._action.bucket, key)
        except (StoreRefused, EnvironmentFault) as error:
            return Page.of_error(error)
        page = Page(len(found.versions))
        if not found.encoded:
            page.failed.append((key, _UNREADABLE))
            return page
        self._begin(page, denials_final=True)
        NewestLast(self._erase).take(found.versions, key if found.after is not None else None)
        return page

    def _begin(self, page: Page, denials_final: bool) -> Page:
        """Have what is erased from now on counted in this page."""
        self._page, self._denials_final = page, denials_final
        return page

    def _due(self, page: Page, versions: Sequence[ListedVersion]) -> list[ListedVersion]:
        """Return each version once, without the tombstone's and what lies outside the prefix."""
        due: dict[tuple[str, str], ListedVersion] = {}
        for version in versions:
            if version.key != self._action.tombstone:
                page.listed += 1
                wrong = _wrong(version, self._action.prefix, self._known)
                if wrong is None:
                    due[version.key, version.version_id] = version
                else:
                    page.failed.append((version.key, wrong))
        return list(due.values())

    def _erase(self, versions: Sequence[ListedVersion]) -> set[str]:
        """Erase versions and return the keys of those that stay."""
        page, staying = self._page, set()
        # One more than a page may be due: with that of the page before.
        for start in range(0, len(versions), MAX_KEYS):
            part = versions[start : start + MAX_KEYS]
            items = [Delete(version.key, version_id=version.version_id) for version in part]
            result = self._deleter.delete_all(
                self._action.bucket, items, bypass_governance=self._bypass
            ).result()
            page.gone += result.count - len(result.states)
            for index, state in result.states.items():
                page.note(part[index].key, state)
                if state.kind is not Kind.ABSENT:
                    staying.add(part[index].key)
            page.read(result, denials_final=self._denials_final)
        return staying
