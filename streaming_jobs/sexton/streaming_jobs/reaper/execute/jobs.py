"""What a failed single call means for its bucket, and erasing all versions of one key.

The same table of error classes decides as for batches.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence

from sexton.schemas.errors import EnvironmentFault
from sexton.schemas.events import OutcomeKind
from sexton.storage import (
    Ability,
    Delete,
    Deleter,
    ErasedSlice,
    KeyState,
    Kind,
    StoreRefused,
    Versioning,
    VersionMark,
    erase_slice,
)
from sexton.storage.probes import NO_ETAG
from sexton.storage.probing import PREFIX
from sexton.storage.states_of import key_state, unreadable
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome, Step, is_throttled, step_of
from sexton.streaming_jobs.reaper.execute.verification import state_of

__all__ = ["denies_all", "erase_key", "fault_of_call", "lists_no_versions"]

_MOST_SLICES = 10_000
_log = logging.getLogger("sexton.streaming_jobs.execute")


def fault_of_call(error: BaseException) -> tuple[Step, ItemOutcome]:
    """Return what an error of a single call, or of a probe, means: again, the bucket, or the environment.

    What is no fault of a store is one of our reading what it says: that bucket waits, and others continue.
    """
    if not isinstance(error, StoreRefused | EnvironmentFault):
        if not isinstance(error, Exception):
            raise error
        _log.error("an answer could not be read", exc_info=error)
        state = unreadable(error)
        return Step.BUCKET, ItemOutcome(None, state.code, state.message, unknown=True)
    state = state_of(error)
    outcome = ItemOutcome(None, state.code, state.message)
    if state.kind is Kind.ENVIRONMENT:
        return Step.ENVIRONMENT, outcome
    if state.kind is Kind.UNUSABLE:
        return Step.UNUSABLE, outcome
    transient = state.kind in (Kind.TRANSIENT, Kind.UNKNOWN, Kind.UNACCOUNTED)
    return (Step.RETRY if transient or is_throttled(state) else Step.BUCKET), outcome


def denies_all(deleter: Deleter, bucket: str, under: str) -> bool:
    """Return whether a bucket denies us the delete of a key that nobody has; unknown counts as denied.

    On a versioned bucket that would leave a marker: there a condition is given that cannot hold, and nothing
    is sent where the store was not seen to check it. Raises EnvironmentFault where the answer is about
    everything: it says nothing of the bucket.
    """
    nothing: str | Delete = f"{under}{PREFIX}{uuid.uuid4().hex}"
    if deleter.abilities(bucket).versioning is not Versioning.OFF:
        known = deleter.probe(bucket)
        if Ability.YES not in (known.batch_condition, known.single_condition):
            return True
        nothing = Delete(str(nothing), NO_ETAG)
    states = deleter.delete_all(bucket, [nothing]).result().states.values()
    for state in states:
        if state.kind is Kind.ENVIRONMENT:
            raise EnvironmentFault(f"{state.code}: {state.message}")
    return any(state.kind not in (Kind.ABSENT, Kind.CHANGED) for state in states)


def erase_key(deleter: Deleter, bucket: str, key: str, *, bypass: bool) -> tuple[Step, ItemOutcome]:
    """Erase all versions and markers of one key; continues until none is listed, or one will not go."""
    try:
        known = deleter.abilities(bucket)
        if known.aliasing_of(key, batch=True) or not known.lists(key) or not known.erases(batch=True):
            known = deleter.probe(
                bucket
            )  # the store has to show that it keeps such keys apart, and lists them
        if not known.lists(key):
            return _refused_unlisted()
        return _erase_key(deleter, bucket, key, bypass=bypass)
    except (StoreRefused, EnvironmentFault) as error:
        if lists_no_versions(error):
            return _refused_unlisted("the store does not list versions")
        # A listing that failed: versions may be gone, and some are left.
        step, outcome = fault_of_call(error)
        return step, ItemOutcome(None, outcome.reason, outcome.detail, unknown=True)


def _erase_key(deleter: Deleter, bucket: str, key: str, *, bypass: bool) -> tuple[Step, ItemOutcome]:
    after: VersionMark | None = None
    erased = 0
    for _ in range(_MOST_SLICES):
        part: ErasedSlice = erase_slice(
            deleter, bucket, key, exactly=True, after=after, bypass_governance=bypass
        )
        if not part.exact:
            return _refused_unlisted()
        erased += part.erased
        bad = [state for _, state in part.states if state.kind is not Kind.ABSENT]
        if bad:
            return _worst(bad, erased)
        if not part.listed and after is None:
            kind = OutcomeKind.DELETED if erased else OutcomeKind.ABSENT
            return Step.DONE, ItemOutcome(kind, effect="erased" if erased else "")
        after = part.after
    return Step.RETRY, ItemOutcome(None, "versions", "versions keep being added", unknown=True)


def lists_no_versions(error: BaseException) -> bool:
    """Return whether a listing of versions failed because the store has none: no fault of its bucket."""
    return isinstance(error, StoreRefused) and error.status in (405, 501)


def _refused_unlisted(
    why: str = "the store's listing does not show this key byte for byte",
) -> tuple[Step, ItemOutcome]:
    state = key_state("UnreadableKey", why)
    return Step.DONE, ItemOutcome(OutcomeKind.REFUSED, state.code, str(state))


def _worst(states: Sequence[KeyState], erased: int) -> tuple[Step, ItemOutcome]:
    decided = [step_of(state, may_be_gone=False, repeat_creates_marker=False, tries=1) for state in states]
    order = (Step.ENVIRONMENT, Step.BUCKET, Step.RETRY, Step.VERIFY, Step.DENIED, Step.DONE)
    step, outcome = min(decided, key=lambda each: order.index(each[0]))
    message = f"{outcome.detail}; {erased} versions erased" if erased else outcome.detail
    final = outcome.kind or OutcomeKind.DEAD_LETTERED
    if step in (Step.VERIFY, Step.DENIED, Step.DONE):
        return Step.DONE, ItemOutcome(final, outcome.reason, message, effect="erased")
    return step, ItemOutcome(None, outcome.reason, message, unknown=True)
