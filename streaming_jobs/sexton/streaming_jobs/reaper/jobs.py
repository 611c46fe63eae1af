"""What the execute stage does beside batches, each in a thread of its own: looking, and erasing all versions.

Also what an error of such a call means for the bucket: the same table of error classes decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from sexton.schemas.errors import EnvironmentFault
from sexton.schemas.events import OutcomeWord
from sexton.storage import (
    BatchResult,
    Calls,
    Delete,
    ErasedSlice,
    KeyState,
    Kind,
    NoReply,
    StoreRefused,
    VersionMark,
    erase_slice,
)
from sexton.storage.errors_table import Scope, classify
from sexton.streaming_jobs.reaper.fates import Fate, Seen, Step, is_throttled, step_of

__all__ = ["Looker", "erase_key", "fault_of_call", "look_at"]

_MOST_SLICES = 10_000


class Looker(Protocol):
    """A store that can be looked at."""

    @property
    def calls(self) -> Calls:
        """Single calls."""


class _Eraser(Looker, Protocol):
    def delete_all(
        self, bucket: str, items: Sequence[str | Delete], *, bypass_governance: bool = False
    ) -> Future[BatchResult]: ...


def fault_of_call(error: BaseException) -> tuple[Step, Fate]:
    """Return what an error of a single call, or of a probe, means: again, the bucket, or the environment.

    Raises what is no fault of a store.
    """
    detail = str(error)
    if isinstance(error, StoreRefused):
        state = KeyState(
            classify(Scope.REQUEST, error.code, error.status).kind, error.code, detail, error.status
        )
    elif isinstance(error, NoReply):
        row = classify(Scope.REQUEST, error.code, 0)
        state = KeyState(row.kind, error.code, detail, 0)
    elif isinstance(error, EnvironmentFault):
        state = KeyState(Kind.ENVIRONMENT, type(error).__name__, detail)
    else:
        raise error
    fate = Fate(None, state.code, detail)
    if state.kind is Kind.ENVIRONMENT:
        return Step.ENVIRONMENT, fate
    transient = state.kind in (Kind.TRANSIENT, Kind.UNKNOWN, Kind.UNACCOUNTED)
    return (Step.AGAIN if transient or is_throttled(state) else Step.BUCKET), fate


def look_at(looker: Looker, bucket: str, keys: Sequence[str]) -> dict[str, Seen]:
    """Look at keys one by one; what could not be seen is unknown.

    Raises what is wrong with everything (credentials, no way to the store).
    """
    return {key: _look(looker, bucket, key) for key in dict.fromkeys(keys)}


def _look(looker: Looker, bucket: str, key: str) -> Seen:
    try:
        return Seen.THERE if looker.calls.exists(bucket, key) else Seen.ABSENT
    except (StoreRefused, EnvironmentFault) as error:
        if fault_of_call(error)[0] is Step.ENVIRONMENT:
            raise
        return Seen.UNKNOWN


def erase_key(eraser: _Eraser, bucket: str, key: str, *, bypass: bool) -> tuple[Step, Fate]:
    """Erase all versions and markers of one key; goes on until none is listed, or one will not go."""
    after: VersionMark | None = None
    erased = 0
    for _ in range(_MOST_SLICES):
        part: ErasedSlice = erase_slice(
            eraser, bucket, key, exactly=True, after=after, bypass_governance=bypass
        )
        erased += part.erased
        bad = [state for _, state in part.states if state.kind is not Kind.ABSENT]
        if bad:
            return _worst(bad, erased)
        if not part.listed and after is None:
            word = OutcomeWord.DELETED if erased else OutcomeWord.ABSENT
            return Step.DONE, Fate(word, effect="erased" if erased else "")
        after = part.after
    return Step.AGAIN, Fate(None, "versions", "versions keep being added", unknown=True)


def _worst(states: Sequence[KeyState], erased: int) -> tuple[Step, Fate]:
    decided = [step_of(state, sent_before=False, repeat_marks=False, tries=1) for state in states]
    order = (Step.ENVIRONMENT, Step.BUCKET, Step.AGAIN, Step.LOOK, Step.DENIED, Step.DONE)
    step, fate = min(decided, key=lambda each: order.index(each[0]))
    told = f"{fate.detail}; {erased} versions erased" if erased else fate.detail
    final = fate.word or OutcomeWord.DEAD_LETTERED
    if step in (Step.LOOK, Step.DENIED, Step.DONE):
        return Step.DONE, Fate(final, fate.reason, told, effect="erased")
    return step, Fate(None, fate.reason, told, unknown=True)
