"""Executing `DeletePrefix`: pass after pass over the listing, one bounded step at a time.

A prefix is done when a whole pass, from its start, lists nothing but what cannot be deleted; only then the
owner's tombstone goes. What a store leaves out of one listing, or of a reply, the next pass meets again.
Nothing is remembered between steps but how much is gone and where the first pass stands, so that a step which
is lost or repeated does no harm.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sexton.schemas.actions import DeletePrefix
from sexton.schemas.errors import EnvironmentFault, InvalidEvent
from sexton.storage import (
    MAX_KEYS,
    Ability,
    Deleter,
    KeyState,
    Kind,
    StoreRefused,
    VersionMark,
)
from sexton.storage.states_of import key_state
from sexton.streaming_jobs.reaper.actions.delete_prefix.pages import NO_VERSIONS, Mark, Page, Pager, pager_of
from sexton.streaming_jobs.reaper.actions.delete_prefix.progress import (
    FIRST_PASS_OVER,
    MOST_NAMED,
    Pass,
    PrefixProgress,
    PrefixState,
    PrefixStep,
)
from sexton.streaming_jobs.reaper.actions.delete_prefix.scope import NO_DATE, Scope
from sexton.streaming_jobs.reaper.execute.verification import state_of

__all__ = ["work_prefix"]

_MOST_MISSES = 5  # requests in a row that got nothing done, before the bucket waits
_MOST_STUCK = 4  # whole passes in a row that got nothing done
_MOST_ROUNDS = 5  # whole passes in a row that met new objects
_MOST_TRIES = 100  # slices of the tombstone's versions, or listings of it
_LONGEST_WAIT_S = 5.0
_REQUEST_IDS = 100
_NOT_LISTED = KeyState(
    Kind.FINAL, "NotListed", "the store lists in no order, and what stays is more than one step goes through"
)


def work_prefix(
    deleter: Deleter,
    action: DeletePrefix,
    progress: PrefixProgress,
    *,
    max_objects: int,
    deadline: Callable[[], bool],
    ends_writes: bool = False,
    allow_bypass: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    jitter: Callable[[], float] = random.random,
) -> PrefixStep:
    """Work on a prefix until it is done, `max_objects` were processed, or `deadline` says that time is up.

    At least one page is worked in any case. Nothing that a store answers raises. Governance retention is
    only bypassed where both the action asks for it and `allow_bypass` is set. Unless a guard `ends_writes`,
    what was written after the first listing stays. Raises InvalidEvent for a prefix that no judge lets pass.
    """
    why = action.refusal()
    if why is not None:
        # The last line before a bucket's worth of objects: it does not count on who called.
        raise InvalidEvent(why.detail)
    try:
        abilities = deleter.probe(action.bucket)
    except (StoreRefused, EnvironmentFault) as error:
        return _held(state_of(error), progress)
    aliasing = abilities.aliasing_of(action.prefix + "x", batch=True)
    if aliasing is not None:
        # Its listing may show another prefix, or none: nobody could know whether everything is gone.
        state = key_state("FoldedKey", f"{aliasing}: the store may take the prefix for another one")
        return PrefixStep(PrefixState.DONE, progress, failed=((action.prefix, state),), failed_count=1)
    if abilities.lists_exactly is Ability.NO:
        # Its names are not the keys: what it lists would be deleted in vain, or another key in its place.
        state = key_state("UnreadableKey", "the store's listing does not show keys byte for byte")
        return PrefixStep(PrefixState.DONE, progress, failed=((action.prefix, state),), failed_count=1)
    bypass = action.bypass_governance and allow_bypass
    instant = action.written_before or progress.written_before
    scope = Scope(action, abilities, instant, ends_writes=ends_writes)
    work = _Work(
        pager_of(deleter, scope, bypass_governance=bypass),
        scope,
        progress,
        in_order=abilities.lists_in_order is Ability.YES,
        max_objects=max_objects,
        deadline=deadline,
        sleep=sleep,
        jitter=jitter,
    )
    return work.run()


def _held(fault: KeyState, progress: PrefixProgress) -> PrefixStep:
    environment = fault.kind is Kind.ENVIRONMENT
    return PrefixStep(
        PrefixState.ENVIRONMENT if environment else PrefixState.BUCKET,
        progress,
        fault=fault if environment else replace(fault, kind=Kind.BUCKET),
    )


@dataclass(slots=True)
class _Work:
    pager: Pager
    scope: Scope
    before: PrefixProgress
    in_order: bool
    max_objects: int
    deadline: Callable[[], bool]
    sleep: Callable[[float], None]
    jitter: Callable[[], float]
    first_pass: bool = True
    gone: int = 0
    worked: int = 0
    added: int = 0
    rounds: int = 0
    stuck: int = 0
    misses: int = 0
    fault: KeyState | None = None
    unknown: bool = False
    reached: str | None = None
    effects: Counter[str] = field(default_factory=Counter)
    request_ids: list[str] = field(default_factory=list)

    @property
    def began_over(self) -> bool:
        """Return whether an earlier step has finished the first pass."""
        return self.before.after == FIRST_PASS_OVER

    def run(self) -> PrefixStep:
        self.first_pass = not self.began_over
        start = self.before.after or None
        if not self.in_order or (start is not None and not start.startswith(self.scope.action.prefix)):
            start = None
        self.reached = start
        previous: Pass | None = None
        while True:
            done = self._go_through(start)
            if self.fault is not None:
                return self._hold(done)
            if done.is_settled:
                return self._bury(done)
            step = self._cut(done) if done.cut else self._compare(previous, done)
            if step is not None:
                return step
            self.first_pass, start, previous = False, None, done if done.whole else None

    # -- one pass

    def _go_through(self, start: str | None) -> Pass:
        done = Pass(whole=start is None)
        after: Mark | None = start
        while True:
            page = self._page(after)
            done.add(page)
            self._took(page)
            if self.fault is not None or (page.after is None and not page.unlisted):
                return done
            if not page.unlisted:
                after = page.after
                done.after = after.key if isinstance(after, VersionMark) else after
                if self.first_pass and self.in_order:
                    self.reached = done.after
            if self._is_over():
                done.cut = True
                return done

    def _page(self, after: Mark | None) -> Page:
        limit = min(max(self.max_objects - self.worked, 1), MAX_KEYS)
        # A key that is denied beside others that were allowed is denied for itself.
        final = self.gone > 0 or (self.began_over and self.before.gone > 0)
        return self.pager.page(after, limit, denials_final=final)

    def _took(self, page: Page) -> None:
        """Count a page; slow down where nothing gets done, and set the fault once that continues."""
        self.gone += page.gone
        self.unknown = self.unknown or page.unknown
        # Out of order every step begins at the start: what stays there may not use the step up.
        self.worked += page.listed - (0 if self.in_order else len(page.failed))
        self.effects[self.pager.effect] += page.gone
        self.effects["absent"] += page.absent
        self.request_ids += page.request_ids[: max(0, _REQUEST_IDS - len(self.request_ids))]
        self.fault = page.fault
        if page.trouble is None or page.gone or page.absent or page.failed:
            self.misses = 0
            return
        self.misses += 1
        if self.misses >= _MOST_MISSES or (page.retry_after_s or 0.0) > _LONGEST_WAIT_S:
            self.fault = self.fault or page.trouble
        if self.fault is None:
            self._pause(self.misses, page.retry_after_s)

    def _pause(self, times: int, at_least_s: float | None = None) -> None:
        wait_s = min(0.1 * 2.0 ** (times - 1), _LONGEST_WAIT_S) * (0.5 + self.jitter() / 2)
        self.sleep(max(wait_s, at_least_s or 0.0))

    def _is_over(self) -> bool:
        return self.worked >= self.max_objects or self.deadline()

    # -- between passes

    def _compare(self, previous: Pass | None, done: Pass) -> PrefixStep | None:
        """Return how the step ends after a pass that came to the end, None when another one is due."""
        new = max(0, done.listed - previous.unmoved) if previous is not None else 0
        self.added += new
        self.rounds = self.rounds + 1 if new else 0
        self.stuck = 0 if done.gone else self.stuck + done.whole
        if self.stuck >= _MOST_STUCK:
            listed = KeyState(Kind.BUCKET, "StillListed", "listed again and again, and not to be deleted")
            self.fault = done.trouble or listed
            return self._hold(done)
        # A listing in no order leaves objects out: what comes to light later is not new.
        if self.rounds >= _MOST_ROUNDS * (1 if self.in_order else 10):
            return self._overrun(done)
        if self._is_over():
            return self._cut(done)
        if self.rounds or self.stuck:
            self._pause(max(min(self.rounds, _MOST_ROUNDS), self.stuck))
        return None

    def _cut(self, done: Pass) -> PrefixStep:
        """Return how the step ends when its objects or its time are used up."""
        idle = not (self.gone or done.left)
        # What goes by without work uses no step up: a step's worth of it is listed, at the least.
        passed_over = done.late + done.beside >= self.max_objects
        if self.first_pass:
            if done.cut and not self.in_order and idle and (done.failed_count or passed_over):
                if not done.failed_count:
                    # Nobody else would say that something of the prefix may be left.
                    done.failed, done.failed_count = {self.scope.action.prefix: _NOT_LISTED}, 1
                return self._end(done, "not everything was listed")
            over = not done.cut
            return self._more(done, FIRST_PASS_OVER if over else self.reached)
        stays = done.failed_count or done.late or passed_over
        if self.began_over and stays and (idle or done.failed_count >= MOST_NAMED):
            # Everything was tried before, and what stays is more than one step can go through.
            return self._end(done, "not everything was listed again")
        if self.began_over and (self.gone >= self.max_objects or self.rounds > 1):
            return self._overrun(done)
        return self._more(done, FIRST_PASS_OVER)

    def _overrun(self, done: Pass) -> PrefixStep:
        """End honestly although objects keep coming: those that stand there now are named as failed."""
        try:
            names, more = self.pager.names()
        except (StoreRefused, EnvironmentFault) as error:
            self.fault = state_of(error)
            return self._hold(done)
        if not names and not more:
            return self._bury(Pass(whole=True, late=done.late))
        came = self.added or self.gone
        why = KeyState(Kind.FINAL, "StillWritten", f"writers keep adding: {came} objects came meanwhile")
        stays = Pass(whole=True, failed_count=max(len(names), done.failed_count), late=done.late)
        stays.failed = {key: done.failed.get(key, why) for key in names[:MOST_NAMED]}
        message = f"writers keep adding: {came} objects came while it was worked, at least {len(names)} stand"
        return self._end(stays, message)

    # -- the end

    def _bury(self, done: Pass) -> PrefixStep:
        """Delete the tombstone, now that nothing else is there; then the prefix is done."""
        note = f"{self.added} objects came while it was worked" if self.added else ""
        tombstone = self.scope.action.tombstone
        # The owner's mark that it is being deleted: gone before the rest, what is left looks alive, and no
        # replay would know of it.
        if tombstone is None or done.failed_count or done.late:
            return self._end(done, note)
        self.first_pass, self.misses = False, 0
        for _ in range(_MOST_TRIES):
            page = self.pager.tombstone(tombstone)
            self._took(page)
            if self.fault is not None:
                return self._hold(done)
            if page.failed:
                done.add(page)
                return self._end(done, "everything else is gone, the tombstone stays")
            if not page.listed and not page.unlisted:
                return self._end(done, note)
        self.fault = KeyState(
            Kind.BUCKET, "StillListed", f"the tombstone is there again and again: {tombstone!r}"
        )
        return self._hold(done)

    def _end(self, done: Pass, note: str) -> PrefixStep:
        late = f"{done.late} written after {self.scope.text} stay" if done.late else ""
        kept = done.failed_count or done.late
        tombstone = kept and self.scope.action.tombstone not in (None, *done.failed)
        said = [note, late, "the tombstone stays" if tombstone else ""]
        return self._step(PrefixState.DONE, done, None, "; ".join(filter(None, said)))

    def _more(self, done: Pass, after: str | None) -> PrefixStep:
        return self._step(PrefixState.MORE, done, after, "the rest continues later")

    def _hold(self, done: Pass) -> PrefixStep:
        assert self.fault is not None
        if self.fault is NO_VERSIONS or self.fault is NO_DATE:
            failed = ((self.scope.action.prefix, self.fault),)
            return PrefixStep(PrefixState.DONE, self.before, failed=failed, failed_count=1)
        held = _held(self.fault, self.before)
        after = self.reached if self.first_pass else FIRST_PASS_OVER
        step = self._step(held.state, done, after, f"held: {self.fault}")
        return replace(step, fault=held.fault)

    def _step(self, state: PrefixState, done: Pass, after: str | None, note: str) -> PrefixStep:
        return PrefixStep(
            state,
            PrefixProgress(self.before.gone + self.gone, after, self.scope.written_before),
            {name: number for name, number in self.effects.items() if number},
            tuple(done.failed.items()),
            done.failed_count,
            note=note,
            request_ids=tuple(self.request_ids),
            unknown=self.unknown,
            late=done.late,
        )
