"""Finding out whether a store's conditional writes are real: by writers that race for one key.

A store may know the headers, refuse a condition that is plainly wrong, and let two writers win all the same:
it looks first and writes later. So several race, round after round, and of each race exactly one may win and
its bytes must stand there. Like other probes: on objects of our own, which are removed again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from sexton.storage.abilities import Ability
from sexton.storage.batches import Batches
from sexton.storage.calls import Calls
from sexton.storage.conditional import (
    Absent,
    FateUnknown,
    Found,
    Lost,
    Put,
    Read,
    Written,
    compare_and_put,
    create_if_absent,
    read_if_changed,
)
from sexton.storage.errors import StoreRefused
from sexton.storage.probing import Probe, clean_up, is_about_more, object_lock_of, open_probe, versioning_of
from sexton.storage.states import Delete
from sexton.storage.ways import NOT_TAKEN

__all__ = ["WRITERS", "Finding", "judge_race", "race_writers"]

WRITERS = 8
"""How many race for one key."""

_SIZES = (20, 65_536) * 4
"""Bytes of an object, round by round: as small as a boundary, and one that takes its time to be written.

A store may let several win in one race of ten only, as moto does: one round would miss it.
"""

_MOST_ROUNDS = 12  # a race that conflicts have left without a winner shows nothing and is run once more
_CONFLICT = 409


@dataclass(frozen=True, slots=True)
class Finding:
    """An answer; `detail` is what was seen, unless it is a yes."""

    ability: Ability
    detail: str = ""


_YES = Finding(Ability.YES)


def race_writers(calls: Calls, batches: Batches, bucket: str, under: str = "") -> Finding:
    """Return whether conditional writes to the bucket are real; some 170 requests on keys under `under`.

    A put of unknown fate leaves it unknown: whether it won cannot be told. Raises StoreRefused when the
    bucket is missing or throttled, StoreUnavailable when nobody answers.
    """
    probe = open_probe(calls, batches, bucket, under)
    calls.check_bucket(bucket)
    if object_lock_of(probe)[1]:
        return Finding(Ability.UNKNOWN, "not tried: the bucket has a default retention")
    versioning, _ = versioning_of(probe)
    try:
        found = _in_turn(probe) or _rounds(probe)
    finally:
        # What is of unknown fate may land after this, and stays: under the prefix of probes, and no more.
        probe.why.clear()
        clean_up(probe, versioning, by_listing=False)
    return Finding(found.ability, "; ".join(filter(None, (found.detail, *probe.why))))


def judge_race(puts: Sequence[Put], bodies: Sequence[bytes], seen: Read) -> Finding | None:
    """Return what a race shows by what each writer was told and what stands there afterwards.

    None where it shows nothing: nobody won, and the store named conflicts as the reason. A conflict counts as
    no win, which what stands there must bear out.
    """
    won = [body for put, body in zip(puts, bodies, strict=True) if isinstance(put, Written)]
    if len(won) > 1:
        return Finding(Ability.NO, f"{len(won)} of {len(puts)} writers that raced have won")
    unknown = [put.state for put in puts if isinstance(put, FateUnknown)]
    if lost_sight := [state for state in unknown if state.status != _CONFLICT]:
        return Finding(Ability.UNKNOWN, f"a put of unknown fate: {lost_sight[0]}")
    if not won:
        return None if unknown else Finding(Ability.NO, "of writers that raced none has won")
    if not isinstance(seen, Found) or seen.body != won[0]:
        return Finding(Ability.NO, "what the winner of a race has written does not stand there")
    return _YES


def _in_turn(probe: Probe) -> Finding | None:
    """Return what one condition after the other shows; None when each was kept, and races may begin."""
    key, nowhere = f"{probe.prefix}turn", f"{probe.prefix}nowhere"
    made = probe.ask("put", lambda: probe.calls.put(probe.bucket, key, b"a"))
    if made is None:
        return Finding(Ability.UNKNOWN, probe.why[-1])
    _note(probe, key, Written(made.etag, made.version_id))
    if not made.etag:
        return Finding(Ability.NO, "a put tells no ETag")
    for step in _steps(probe, key, nowhere, made.etag):
        if (found := _one_put(probe, step)) is not None:
            return found
    return _what_stands(probe, key, nowhere, made.etag)


class _Step(NamedTuple):
    """One conditional put, and what it has to come to; `what` names the condition."""

    what: str
    key: str
    put: Callable[[], Put]
    wanted: type[Put]


def _steps(probe: Probe, key: str, nowhere: str, etag: str) -> list[_Step]:
    create = partial(create_if_absent, probe.calls, probe.bucket)
    replace = partial(compare_and_put, probe.calls, probe.bucket)
    return [
        _Step("If-None-Match where an object is", key, partial(create, key, b"b"), Lost),
        _Step("If-Match", key, partial(replace, key, b"b", etag), Written),
        _Step("If-Match with an older ETag", key, partial(replace, key, b"c", etag), Lost),
        _Step("If-Match where nothing is", nowhere, partial(replace, nowhere, b"a", etag), Lost),
    ]


def _one_put(probe: Probe, step: _Step) -> Finding | None:
    try:
        told = step.put()
    except StoreRefused as refused:
        if is_about_more(refused):
            raise
        # A plain put was taken just now: it is the condition that this store does not take.
        not_taken = refused.status in NOT_TAKEN
        return Finding(Ability.NO if not_taken else Ability.UNKNOWN, f"{step.what}: {refused.code}")
    _note(probe, step.key, told)
    if isinstance(told, FateUnknown):
        return Finding(Ability.UNKNOWN, f"{step.what}: a put of unknown fate: {told.state}")
    if isinstance(told, step.wanted):
        return None
    written = "written" if isinstance(told, Written) else "not written"
    return Finding(Ability.NO, f"{step.what}: {written}")


def _what_stands(probe: Probe, key: str, nowhere: str, etag: str) -> Finding | None:
    """Return None where the one put that was to be kept stands there, and nothing where none was."""
    calls, bucket = probe.calls, probe.bucket
    stands = probe.ask("get", lambda: read_if_changed(calls, bucket, key, etag))
    missing = probe.ask("get", lambda: read_if_changed(calls, bucket, nowhere))
    if stands is None or missing is None:
        return Finding(Ability.UNKNOWN, probe.why[-1])
    if not isinstance(stands, Found) or stands.body != b"b" or not isinstance(missing, Absent):
        return Finding(Ability.NO, "what stands there is not what the puts were said to have done")
    return None


def _rounds(probe: Probe) -> Finding:
    decided = 0
    with ThreadPoolExecutor(WRITERS, thread_name_prefix="sexton-race") as pool:
        for number in range(_MOST_ROUNDS):
            found = _round(probe, pool, f"{probe.prefix}race-{number}", _SIZES[decided])
            if found is not None and found is not _YES:
                return found
            decided += found is _YES
            if decided == len(_SIZES):
                return _YES
    return Finding(Ability.UNKNOWN, "races without a winner: the store named conflicts")


def _round(probe: Probe, pool: ThreadPoolExecutor, key: str, size: int) -> Finding | None:
    """Let writers race to create an object, and then to replace it from one ETag."""
    calls, bucket = probe.calls, probe.bucket
    bodies = [f"created by {writer} ".encode().ljust(size, b".") for writer in range(WRITERS)]
    creates = [partial(create_if_absent, calls, bucket, key, body) for body in bodies]
    found, seen = _race(probe, pool, key, creates, bodies)
    if found is not _YES or not isinstance(seen, Found):
        return found
    etag = seen.etag
    bodies = [f"replaced by {writer} ".encode().ljust(size, b".") for writer in range(WRITERS)]
    replaces = [partial(compare_and_put, calls, bucket, key, body, etag) for body in bodies]
    return _race(probe, pool, key, replaces, bodies, etag)[0]


def _race(
    probe: Probe,
    pool: ThreadPoolExecutor,
    key: str,
    puts: Sequence[Callable[[], Put]],
    bodies: Sequence[bytes],
    etag: str | None = None,
) -> tuple[Finding | None, Read | None]:
    told = probe.ask("race", lambda: _at_once(pool, puts))
    for each in told or ():
        _note(probe, key, each)
    seen = probe.ask("get", lambda: read_if_changed(probe.calls, probe.bucket, key, etag))
    if told is None or seen is None:
        return Finding(Ability.UNKNOWN, probe.why[-1]), None
    return judge_race(told, bodies, seen), seen


def _at_once(pool: ThreadPoolExecutor, puts: Sequence[Callable[[], Put]]) -> list[Put]:
    """Return what each put was told, all of them sent at one moment; raises what one of them raises."""
    start = threading.Event()

    def run(put: Callable[[], Put]) -> Put:
        start.wait()
        return put()

    waiting: list[Future[Put]] = []
    try:
        waiting += [pool.submit(run, put) for put in puts]
    finally:
        start.set()
    # All have ended before one is looked at: none may land when the probe has been cleaned up.
    errors = [future.exception() for future in waiting]
    if error := next(filter(None, errors), None):
        raise error
    return [future.result() for future in waiting]


def _note(probe: Probe, key: str, told: Put) -> None:
    """Remember what was written, for the clean-up."""
    if isinstance(told, Written):
        item = Delete(key, version_id=told.version_id or None)
        if item not in probe.made:
            probe.made.append(item)
