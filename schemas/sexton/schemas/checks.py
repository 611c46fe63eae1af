"""What an intent must be before it is written, and again before it is worked on.

The same rules at both ends: the SDK gives a typed error at the call, the reaper a dead letter for what was
written by other means. Limits are the store's (S3: a key has 1 to 1,024 bytes of UTF-8).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sexton.schemas import events
from sexton.schemas.conditions import conditions_of
from sexton.schemas.errors import InvalidEvent, InvalidFormat
from sexton.schemas.generations import MAX_PACKED_PART, check_generation

__all__ = [
    "MAX_INTENT_BYTES",
    "MAX_KEY_BYTES",
    "MAX_TENANT_BYTES",
    "check_bucket",
    "check_intent",
    "check_keys",
    "check_tenant",
]

MAX_KEY_BYTES = 1024
MAX_INTENT_BYTES = 1_500_000
"""Of a record's key and value, unpacked: its deferred copy and its dead letter have to fit into topics."""
MAX_TENANT_BYTES = 512
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}\Z")


def check_intent(intent: events.DeletionIntent) -> None:
    """Raise InvalidEvent unless every value of the intent is within its rules."""
    if not intent.intent_id or len(intent.intent_id) > MAX_TENANT_BYTES:
        raise InvalidEvent("intent_id must have 1 to 512 characters")
    check_tenant(intent.tenant)
    if not intent.guards:
        raise InvalidEvent("an intent needs a guard: without one nothing says why the delete is safe")
    for guard in intent.guards:
        _check_guard(guard)
    _check_action(intent.action)
    if any(isinstance(guard, events.UnchangedGuard) for guard in intent.guards):
        _check_conditions(intent)


def check_tenant(tenant: str) -> str:
    """Return the tenant's name; raises InvalidEvent unless it has 1 to 512 bytes of UTF-8."""
    if not isinstance(tenant, str):
        raise InvalidEvent(f"a tenant's name must be text, not {type(tenant).__name__}")
    if not 1 <= len(_utf8("tenant", tenant)) <= MAX_TENANT_BYTES:
        raise InvalidEvent(f"a tenant's name must have 1 to {MAX_TENANT_BYTES} bytes: {tenant[:80]!r}")
    return tenant


def check_keys(keys: Sequence[str]) -> None:
    """Raise InvalidEvent that names the first key which no object can have; every other one is carried as is.

    One pass over all keys joined: this runs for every key that is emitted or deleted.
    """
    try:
        joined = "".join(keys)
    except TypeError as error:
        raise InvalidEvent(f"a key must be text: {error}") from error
    if "" in keys:
        raise InvalidEvent("a key is empty")
    if not joined.isascii():
        _check_utf8(keys, joined)
    if len(joined) > MAX_KEY_BYTES // 4:  # else none can be too long, whatever its characters
        _check_lengths(keys)


def _check_utf8(keys: Sequence[str], joined: str) -> None:
    try:
        joined.encode()
    except UnicodeEncodeError:
        for key in keys:
            _utf8("a key", key)
        raise


def _check_lengths(keys: Sequence[str]) -> None:
    if max(map(len, keys)) <= MAX_KEY_BYTES // 4:
        return
    for key in keys:
        if len(key) > MAX_KEY_BYTES // 4 and len(key.encode()) > MAX_KEY_BYTES:
            raise InvalidEvent(f"a key has more than {MAX_KEY_BYTES} bytes: {key[:80]!r}...")


def _check_guard(guard: events.Guard) -> None:
    match guard:
        case events.GenerationGuard():
            check_tenant(guard.tenant)
            try:
                check_generation(guard.generation)
            except InvalidFormat as error:
                raise InvalidEvent(str(error)) from error
            if guard.node_generation is not None and not 0 <= guard.node_generation <= MAX_PACKED_PART:
                raise InvalidEvent(f"node generation out of range: {guard.node_generation}")
        case events.TransactionGuard():
            check_tenant(guard.tenant)
        case events.BoundaryGuard() if not guard.namespace:
            raise InvalidEvent("a boundary guard needs a namespace")
        case events.UnchangedGuard():
            check_keys([condition.key for condition in guard.conditions])
        case events.PromiseGuard() if not guard.operation:
            raise InvalidEvent("a promise needs an operation id")


def _check_conditions(intent: events.DeletionIntent) -> None:
    conditions, action = conditions_of(intent), intent.action
    if isinstance(action, events.DeleteObjects):
        # The store checks a condition in the delete of its key, and nobody checks another one.
        elsewhere = next(iter(conditions.keys() - {key for phase in action.phases for key in phase}), None)
        if elsewhere is not None:
            raise InvalidEvent(f"a condition names a key that is not to be deleted: {elsewhere[:80]!r}")


def _check_action(action: events.Action) -> None:
    match action:
        case events.DeleteObjects():
            check_bucket(action.bucket)
            if not action.phases or not all(action.phases):
                raise InvalidEvent("delete_objects needs at least one key in each phase")
            for phase in action.phases:
                check_keys(phase)
        case events.DeletePrefix():
            check_bucket(action.bucket)
            if not action.prefix.strip("/") or not action.prefix.endswith("/"):
                raise InvalidEvent(f"a prefix must not be empty and must end in '/': {action.prefix[:80]!r}")
            check_keys([action.prefix])
            if action.tombstone is not None:
                check_keys([action.tombstone])
        case events.AdvanceHorizon():
            if not action.timeline:
                raise InvalidEvent("advance_horizon needs a timeline")
            if action.lsn < 0:
                raise InvalidEvent(f"a log position is not negative: {action.lsn}")


def check_bucket(bucket: str) -> None:
    """Raise InvalidEvent unless it may be a bucket's name."""
    if not isinstance(bucket, str) or not _BUCKET.match(bucket):
        raise InvalidEvent(f"not a bucket name: {bucket!r}")


def _utf8(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidEvent(f"{what} is not UTF-8: {text[:80]!r}") from error
