"""Verifying objects by HEAD requests, several at a time: there, absent, or not to be reported.

A key is absent only where the store says so of this key while its bucket is there. Whatever is denied, fails,
or could be another key's answer is unknown: who takes it for absent writes a receipt without its effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

from sexton.schemas.errors import EnvironmentFault, StoreUnavailable
from sexton.storage import (
    Abilities,
    BucketUnusable,
    Calls,
    CredentialsUnavailable,
    Deleter,
    KeyState,
    Kind,
    NoReply,
    StoreRefused,
)
from sexton.storage.errors_table import classify_single
from sexton.storage.states_of import key_state, unavailable, unreadable
from sexton.storage.wire import RawReply, retry_after
from sexton.storage.xml_body import key_problem
from sexton.streaming_jobs.reaper.execute.outcomes import Presence

__all__ = ["Verification", "state_of", "verify", "verify_each"]

_THREADS = 8
_MOST_MISSES = 16  # requests without an answer, none between them with one: the others are not asked
_PAUSE_S = 0.2
_AGAIN = (Kind.TRANSIENT, Kind.UNKNOWN, Kind.UNACCOUNTED)


@dataclass(frozen=True, slots=True)
class Verification:
    """What one verification showed; `state` says why it is unknown.

    `age_s` is for how many seconds at least the object has stood there, by the store's own clock; None where
    that cannot be determined.
    """

    presence: Presence
    state: KeyState | None = None
    age_s: float | None = None


_PRESENT, _ABSENT = Verification(Presence.PRESENT), Verification(Presence.ABSENT)


def verify(
    deleter: Deleter,
    bucket: str,
    keys: Sequence[str],
    *,
    versions: Mapping[str, str] | None = None,
    threads: int = _THREADS,
) -> dict[str, Verification]:
    """Return what stands under each key, or whether the version that `versions` names for it is there.

    Raises EnvironmentFault for what is wrong with everything (credentials, no way to the store).
    """
    found = verify_each(deleter, bucket, keys, versions=versions, threads=threads)
    for each in found.values():
        if each.state is not None and each.state.kind is Kind.ENVIRONMENT:
            raise EnvironmentFault(f"objects cannot be verified: {each.state}")
    return found


def verify_each(
    deleter: Deleter,
    bucket: str,
    keys: Sequence[str],
    *,
    versions: Mapping[str, str] | None = None,
    threads: int = _THREADS,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Verification]:
    """Return each key's verification with the reason of what is unknown; no answer of a store raises.

    A current delete marker is absent; a version that is a marker is there. What fails is asked twice.
    """
    verification = _Verification(deleter.calls, bucket, versions or {}, deleter.abilities(bucket), sleep)
    names = list(dict.fromkeys(keys))
    if not names:
        return {}
    with ThreadPoolExecutor(min(max(threads, 1), len(names)), thread_name_prefix="sexton-verify") as pool:
        found = dict(zip(names, pool.map(verification.at, names), strict=True))
    return verification.with_bucket(found)


def state_of(error: StoreRefused | EnvironmentFault) -> KeyState:
    """Return the state that an error of a listing, a look or a probe stands for."""
    if isinstance(error, StoreRefused | NoReply | CredentialsUnavailable):
        return unavailable(error)
    return KeyState(Kind.ENVIRONMENT, type(error).__name__, str(error), 0)


@dataclass(slots=True)
class _Verification:
    calls: Calls
    bucket: str
    versions: Mapping[str, str]
    abilities: Abilities
    sleep: Callable[[float], None]
    # Both are written by several threads: a lost count only asks a few keys more.
    misses: int = 0
    fault: KeyState | None = None
    bare: set[str] = field(default_factory=set)

    def at(self, key: str) -> Verification:
        """Verify one key, unless nobody answers any more."""
        problem = key_problem(key)
        if problem is not None:
            return Verification(Presence.UNKNOWN, key_state(problem))
        aliasing = self.abilities.aliasing_of(key, batch=False)
        if aliasing is not None:
            state = key_state("FoldedKey", f"{aliasing}: another key might answer")
            return Verification(Presence.UNKNOWN, state)
        found = self._head(key)
        if found.state is not None and found.state.kind in _AGAIN and self.fault is None:
            self.sleep(_PAUSE_S)
            found = self._head(key)
        self._count(found)
        return found

    def with_bucket(self, found: dict[str, Verification]) -> dict[str, Verification]:
        """Return what was found; a bare 404 is only absent where the bucket is there: it answers so, too."""
        if not self.bare:
            return found
        try:
            # After the requests: a bucket that is there now was there when they were answered.
            self.calls.check_bucket(self.bucket)
        except (StoreRefused, StoreUnavailable) as error:
            unknown = Verification(Presence.UNKNOWN, state_of(error))
            found.update(dict.fromkeys(self.bare, unknown))
        return found

    def _head(self, key: str) -> Verification:
        if self.fault is not None:
            return Verification(Presence.UNKNOWN, self.fault)
        version = self.versions.get(key)
        try:
            reply = self.calls.exchange(
                "HEAD", self.bucket, key, {} if version is None else {"versionId": version}
            )
        except (StoreUnavailable, BucketUnusable) as error:
            return Verification(Presence.UNKNOWN, state_of(error))
        except Exception as error:  # noqa: BLE001  our own reading failed: nothing was seen, and nobody else is harmed
            return Verification(Presence.UNKNOWN, unreadable(error))
        found = _read(reply, by_version=version is not None)
        if found is _ABSENT and not _is_marker(reply):
            self.bare.add(key)
        return found

    def _count(self, found: Verification) -> None:
        if found.state is None or found.state.kind not in (
            *_AGAIN,
            Kind.BUCKET,
            Kind.UNUSABLE,
            Kind.ENVIRONMENT,
        ):
            self.misses = 0
            return
        self.misses += 1
        if found.state.kind not in _AGAIN or self.misses >= _MOST_MISSES:
            self.fault = self.fault or found.state


def _read(reply: RawReply, *, by_version: bool) -> Verification:
    if reply.status == 200:
        return Verification(Presence.PRESENT, age_s=_age_s(reply.headers))
    if _is_marker(reply) and reply.status in (404, 405):
        return _PRESENT if by_version else _ABSENT
    if reply.status == 404:
        return _ABSENT
    row = classify_single("", reply.status)
    text = f"HEAD was answered with HTTP {reply.status}"
    return Verification(
        Presence.UNKNOWN,
        KeyState(row.kind, str(reply.status), text, reply.status, retry_after_s=retry_after(reply.headers)),
    )


def _age_s(headers: Mapping[str, str]) -> float | None:
    """Return how old an object is at least, by the store's own clock.

    The object of a multipart upload has the time at which that was begun, and its ETag a hyphen (S3 User
    Guide, "Working with object metadata"): it says nothing of when the object came to stand there.
    """
    etag = headers.get("etag", "")
    if not etag or "-" in etag:
        return None
    try:
        written, now = (parsedate_to_datetime(headers[name]) for name in ("last-modified", "date"))
        return (now - written).total_seconds() - 1.0  # both are cut to whole seconds
    except (KeyError, ValueError, TypeError, OverflowError):
        return None


def _is_marker(reply: RawReply) -> bool:
    return reply.headers.get("x-amz-delete-marker") == "true"
