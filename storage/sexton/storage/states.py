"""What became of each key of a request: one state per key, driven by the store's reply.

A key that no state names is gone. A state is a fact about one exchange, not yet its outcome: whether a key is
sent again, verified first, or given up is the caller's to decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

__all__ = ["BatchResult", "Delete", "Effect", "ErrorClass", "KeyState", "Kind", "merge_results", "with_lock"]


class ErrorClass(StrEnum):
    """The four classes of errors; the second and the third have two reaches."""

    TRANSIENT = "a: per key, transient"
    FINAL = "b: per key, final"
    UNUSABLE = "b: one bucket, final"
    BUCKET = "c: environment of one bucket"
    ENVIRONMENT = "c: environment of all"
    UNKNOWN = "d: unknown effect"


class Kind(StrEnum):
    """What one key's state is."""

    GONE = "gone"
    ABSENT = "absent"
    CHANGED = "changed"
    TRANSIENT = "transient"
    FINAL = "final"
    REFUSED = "refused"
    UNUSABLE = "unusable"
    BUCKET = "bucket"
    ENVIRONMENT = "environment"
    UNACCOUNTED = "unaccounted"
    UNKNOWN = "unknown"

    @property
    def error_class(self) -> ErrorClass | None:
        """The class of an error; None for what is none (gone, absent, changed)."""
        return _CLASSES.get(self)


_CLASSES = {
    Kind.TRANSIENT: ErrorClass.TRANSIENT,
    Kind.FINAL: ErrorClass.FINAL,
    Kind.REFUSED: ErrorClass.FINAL,
    Kind.UNUSABLE: ErrorClass.UNUSABLE,
    Kind.BUCKET: ErrorClass.BUCKET,
    Kind.ENVIRONMENT: ErrorClass.ENVIRONMENT,
    Kind.UNACCOUNTED: ErrorClass.UNKNOWN,
    Kind.UNKNOWN: ErrorClass.UNKNOWN,
}


class Effect(StrEnum):
    """What a whole request did: `none` and `unknown` are about every key that has a state of an error."""

    KNOWN = "known"
    NONE = "none"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Delete:
    """One object to delete, by key byte for byte.

    With `etag` only while the object still has it; with `version_id` exactly that version is erased for good
    (a delete marker too), whatever the newest one is. Without it, on a versioned bucket, a marker hides it.
    """

    key: str
    etag: str | None = None
    version_id: str | None = None

    @classmethod
    def of(cls, item: str | Delete) -> Delete:
        """Return an item; a `str` is a plain key."""
        return cls(item) if isinstance(item, str) else item


@dataclass(frozen=True, slots=True)
class KeyState:
    """The state of one key; `code` and `message` are the store's, or ours where nothing came from it.

    `status` is the HTTP status (0 without a reply), `effect` whether the store may have acted,
    `retry_after_s` what the store asked for. `retain_until` and `legal_hold` are set where a lock kept the
    version and could be read.
    """

    kind: Kind
    code: str = ""
    message: str = ""
    status: int = 200
    effect: Effect = Effect.NONE
    retry_after_s: float | None = None
    retain_until: datetime | None = None
    legal_hold: bool = False

    @property
    def effect_unknown(self) -> bool:
        """True when the store may have acted without saying so: verify before the key is sent again."""
        return self.effect is Effect.UNKNOWN

    def __str__(self) -> str:
        lock = f", locked until {self.retain_until.isoformat()}" if self.retain_until else ""
        hold = ", under legal hold" if self.legal_hold else ""
        said = f" ({self.message})" if self.message else ""
        return f"{self.kind}: {self.code or '-'}{said}{lock}{hold}"


_NOTHING: Mapping[int, KeyState] = MappingProxyType({})
_NO_MARKERS: Mapping[int, str] = MappingProxyType({})


def _nothing() -> Mapping[int, KeyState]:
    return _NOTHING


def _no_markers() -> Mapping[int, str]:
    return _NO_MARKERS


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of `count` items of a bucket; every index that `states` does not name is gone.

    `markers` maps the index of a key that was hidden to the version id of its new delete marker (empty where
    the store gives none), `erased_markers` holds the indexes of delete markers that were themselves erased.
    `fault` is the state of a request that was answered, or not answered, as a whole. `seconds` runs from
    signing to the last byte; `requests` counts what went over the wire.
    """

    bucket: str
    count: int
    states: Mapping[int, KeyState] = field(default_factory=_nothing)
    markers: Mapping[int, str] = field(default_factory=_no_markers)
    erased_markers: frozenset[int] = frozenset()
    request_ids: tuple[str, ...] = ()
    effect: Effect = Effect.KNOWN
    fault: KeyState | None = None
    retry_after_s: float | None = None
    seconds: float = 0.0
    requests: int = 1

    @property
    def clean(self) -> bool:
        """True when every key is gone."""
        return not self.states

    @property
    def request_id(self) -> str:
        """The first request id (empty when the store gives none)."""
        return self.request_ids[0] if self.request_ids else ""

    @property
    def all_denied(self) -> bool:
        """True when the store denied every key of two or more: the bucket's policy, not the keys."""
        return 1 < self.count == len(self.states) and all(
            state.code == "AccessDenied" and not state.retain_until and not state.legal_hold
            for state in self.states.values()
        )

    @property
    def throttled(self) -> bool:
        """True when the store asked for fewer requests, for all of it or for some keys."""
        states = (self.fault,) if self.fault else self.states.values()
        return any(state.code in THROTTLING or state.status in (429, 503) for state in states)

    def state(self, index: int) -> KeyState:
        """Return the state of one item."""
        return self.states.get(index, _GONE)


THROTTLING = frozenset(
    [
        "BandwidthLimitExceeded",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
    ]
)
"""Codes by which a store asks for fewer requests."""

_GONE = KeyState(Kind.GONE, effect=Effect.KNOWN)
_EFFECTS = (Effect.UNKNOWN, Effect.KNOWN, Effect.NONE)


@dataclass(slots=True)
class _Sum:
    states: dict[int, KeyState] = field(default_factory=dict)
    markers: dict[int, str] = field(default_factory=dict)
    erased: set[int] = field(default_factory=set)


def merge_results(
    bucket: str, count: int, parts: list[tuple[list[int], BatchResult]], refused: Mapping[int, KeyState]
) -> BatchResult:
    """Return one result for items that went in several requests: each part with the items' own indexes.

    `refused` are those that were not sent at all.
    """
    total = _Sum(dict(refused))
    for indexes, part in parts:
        total.states.update((indexes[i], state) for i, state in part.states.items())
        total.markers.update((indexes[i], version) for i, version in part.markers.items())
        total.erased.update(indexes[i] for i in part.erased_markers)
    results = [part for _, part in parts]
    waits = [part.retry_after_s for part in results if part.retry_after_s is not None]
    effects = {part.effect for part in results} or {Effect.NONE}
    return BatchResult(
        bucket,
        count,
        total.states,
        total.markers,
        frozenset(total.erased),
        tuple(name for part in results for name in part.request_ids),
        next(effect for effect in _EFFECTS if effect in effects),
        next((part.fault for part in results if part.fault), None),
        max(waits, default=None),
        max((part.seconds for part in results), default=0.0),
        sum(part.requests for part in results),
    )


def with_lock(state: KeyState, retain_until: datetime | None, legal_hold: bool) -> KeyState:
    """Return the state with what could be read of the lock that kept the version."""
    return replace(state, retain_until=retain_until, legal_hold=legal_hold)
