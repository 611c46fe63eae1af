"""One page of a prefix: listed, and what it names deleted. Nothing outside its scope is ever sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from sexton.schemas.actions import DeleteMode
from sexton.schemas.errors import EnvironmentFault
from sexton.storage import (
    MAX_KEYS,
    Ability,
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
from sexton.streaming_jobs.reaper.actions.delete_prefix.scope import UNREADABLE, Lot, Scope
from sexton.streaming_jobs.reaper.execute.jobs import lists_no_versions
from sexton.streaming_jobs.reaper.execute.verification import state_of

__all__ = ["NO_VERSIONS", "Mark", "Page", "Pager", "pager_of"]

Mark = str | VersionMark
"""Where a listing continues."""

NO_VERSIONS = key_state("UnreadableKey", "the store does not list versions")
"""The end of a prefix whose versions nobody can list: that is no fault of its bucket."""


@dataclass(slots=True)
class Page:
    """What became of the `listed` objects (or versions) of one page; `after` is None at the end.

    `left` are those of no known outcome, to be met again, `trouble` why; `unknown`: some of them may be gone.
    `kept` are newest versions that stay above older ones which do. With `fault` the bucket, or everything,
    waits. `unlisted`: not even the listing came. `late` came after the instant of the scope, and stay;
    `beside` are without its suffix.
    """

    listed: int = 0
    late: int = 0
    beside: int = 0
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

    def takes(self, entry: Listed | ListedVersion, scope: Scope) -> bool:
        """Count what is listed, and return whether it is to be deleted."""
        lot = scope.lot(entry)
        self.late += lot is Lot.LATE
        self.beside += lot is Lot.BESIDE and entry.key != scope.action.tombstone
        if lot is Lot.LATE or lot is Lot.BESIDE:
            return False
        self.listed += 1
        if isinstance(lot, KeyState):
            self.failed.append((entry.key, lot))
        return lot is Lot.GOES

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
        """Return the first keys of the scope, and whether there may be more.

        Raises what a listing raises.
        """

    def tombstone(self, key: str) -> Page:
        """Delete the tombstone; nothing is `listed` when none is there."""


def pager_of(deleter: Deleter, scope: Scope, *, bypass_governance: bool) -> Pager:
    """Return the way that the action's mode asks for; without versions there is only one."""
    creates_markers = scope.known.versioning is not Versioning.OFF
    if scope.action.mode is DeleteMode.ERASE_ALL_VERSIONS and creates_markers:
        return _Versions(deleter, scope, bypass_governance)
    return _Objects(deleter, scope, bypass_governance, "hidden" if creates_markers else "deleted")


class _Objects:
    """Current objects: a key that a marker hides already is not listed, so no second marker is made."""

    def __init__(self, deleter: Deleter, scope: Scope, bypass_governance: bool, effect: str) -> None:
        self.effect = effect
        self._deleter = deleter
        self._scope, self._action = scope, scope.action
        self._bypass = bypass_governance
        self._ahead: tuple[str, Slice] | None = None

    def page(self, after: Mark | None, limit: int, *, denials_final: bool) -> Page:
        assert not isinstance(after, VersionMark)
        try:
            found = self._listed(after, limit)
        except (StoreRefused, EnvironmentFault) as error:
            return Page.of_error(error)
        if (fault := self._scope.begin(found.date)) is not None:
            return Page(unlisted=True, fault=fault)
        objects = found.objects[:limit]
        page = Page(after=objects[-1].key if len(found.objects) > limit else found.after)
        items = {entry.key: self._item(entry) for entry in objects if page.takes(entry, self._scope)}
        if items:
            self._delete(page, list(items.values()), denials_final, go_on=limit == MAX_KEYS)
        return page

    def names(self) -> tuple[list[str], bool]:
        found = self._deleter.calls.list_slice(self._action.bucket, self._action.prefix)
        return _names(found.objects, self._scope), found.after is not None

    def tombstone(self, key: str) -> Page:
        try:
            if not self._deleter.calls.exists(self._action.bucket, key):
                return Page()
        except (StoreRefused, EnvironmentFault) as error:
            return Page.of_error(error)
        page = Page(listed=1)
        self._delete(page, [key], denials_final=True, go_on=False)
        return page

    def _item(self, entry: Listed) -> str | Delete:
        """Return what is sent for an object: where the store checks it, this one and none written since.

        Between the listing and the delete a writer may put new data under the key.
        """
        checked = self._scope.written_before and self._scope.known.batch_condition is Ability.YES
        return Delete(entry.key, entry.etag) if checked and entry.etag else entry.key

    def _listed(self, after: str | None, limit: int) -> Slice:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == after:
            return ahead[1]
        return self._deleter.calls.list_slice(self._action.bucket, self._action.prefix, after, limit)

    def _delete(self, page: Page, items: Sequence[str | Delete], denials_final: bool, *, go_on: bool) -> None:
        sent = self._deleter.delete_all(self._action.bucket, items, bypass_governance=self._bypass)
        if go_on and isinstance(page.after, str):
            self._look_ahead(page.after)
        result = sent.result()
        page.gone += result.count - len(result.states)
        for index, state in result.states.items():
            item = items[index]
            page.note(item if isinstance(item, str) else item.key, state)
        page.read(result, denials_final=denials_final)

    def _look_ahead(self, after: str) -> None:
        """List the next page while this one is deleted."""
        try:
            found = self._deleter.calls.list_slice(self._action.bucket, self._action.prefix, after, MAX_KEYS)
        except (StoreRefused, EnvironmentFault):
            return  # it is listed again, and told then
        self._ahead = (after, found)


def _names(entries: Sequence[Listed | ListedVersion], scope: Scope) -> list[str]:
    """Return the keys of what is still to go, or cannot."""
    stays = (Lot.BESIDE, Lot.LATE)
    return list(dict.fromkeys(entry.key for entry in entries if scope.lot(entry) not in stays))


class _Versions:
    """All versions and markers, each by its id, the newest of a key last."""

    effect = "erased"

    def __init__(self, deleter: Deleter, scope: Scope, bypass_governance: bool) -> None:
        self._deleter = deleter
        self._scope, self._action = scope, scope.action
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
            return (
                Page(unlisted=True, fault=NO_VERSIONS) if lists_no_versions(error) else Page.of_error(error)
            )
        if (fault := self._scope.begin(found.date)) is not None:
            return Page(unlisted=True, fault=fault)
        page = self._begin(Page(after=found.after), denials_final)
        last = found.versions[-1].key if found.after is not None and found.versions else None
        page.kept = self._order.take(self._due(page, found.versions), last)
        return page

    def names(self) -> tuple[list[str], bool]:
        found = self._deleter.calls.version_slice(self._action.bucket, self._action.prefix)
        return _names(found.versions, self._scope), found.after is not None

    def tombstone(self, key: str) -> Page:
        try:
            found = self._deleter.calls.versions_of(self._action.bucket, key)
        except (StoreRefused, EnvironmentFault) as error:
            return Page.of_error(error)
        page = Page(len(found.versions))
        if not found.encoded:
            page.failed.append((key, UNREADABLE))
            return page
        self._begin(page, denials_final=True)
        NewestLast(self._erase).take(found.versions, key if found.after is not None else None)
        return page

    def _begin(self, page: Page, denials_final: bool) -> Page:
        """Have what is erased from now on counted in this page."""
        self._page, self._denials_final = page, denials_final
        return page

    def _due(self, page: Page, versions: Sequence[ListedVersion]) -> list[ListedVersion]:
        """Return each version of the scope once.

        Above an older one that came too late (by a clock that went back) the newest stays, too, be it of the
        page before.
        """
        due = {(v.key, v.version_id): v for v in versions if page.takes(v, self._scope)}
        late = {v.key for v in versions if not v.is_latest and self._scope.lot(v) is Lot.LATE}
        if (carried := self._order.carried) is not None and carried.key in late:
            self._order.carried = None
        return [version for version in due.values() if not (version.is_latest and version.key in late)]

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
