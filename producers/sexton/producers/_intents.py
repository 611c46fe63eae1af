"""How intents are made from the arguments of a call: the same way for every call that asks for a deletion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypedDict, Unpack

from sexton.producers._emitter import Emitter
from sexton.producers._limits import Limits
from sexton.producers._values import check_instant, check_list, check_text, check_texts
from sexton.schemas import events
from sexton.schemas.checks import MAX_KEY_BYTES, check_bucket
from sexton.schemas.errors import InvalidEvent, UsageError
from sexton.schemas.vetoes import VETOES

__all__ = ["Asking", "KeyTerms", "PrefixTerms", "Unchanged", "intents_for", "prefix_intent", "split_keys"]

Unchanged = Mapping[str, str | events.KeyCondition]
"""What objects must still be, by key: an ETag, or a condition with a version id too."""


class PrefixTerms(TypedDict, total=False):
    """What a call may say of a prefix beside its name; instants are aware, and None is as if left out.

    `suffix`: only names that end in it. `written_before`: only objects that were written up to then, by the
    store's clock. `not_before`: nothing goes until the reaper's clock and the bucket's have passed it.
    `expires_at`: what is not gone once both have passed it is cancelled. `vetoes`: whatever else stops it.
    """

    suffix: str | None
    written_before: datetime | None
    not_before: datetime | None
    expires_at: datetime | None
    vetoes: Sequence[events.Veto]


class KeyTerms(TypedDict, total=False):
    """What a call may say of keys beside their names; instants are aware, and None is as if left out.

    `phases`, in place of keys: lists of keys, each begun once the one before it is acknowledged gone, and
    `pause_s` seconds after that; they stay one intent. `unchanged`: keys that go only while they are what
    they were. `not_before`: nothing goes until the reaper's clock and the bucket's have passed it.
    `expires_at`: what is not gone once both have passed it is cancelled. `vetoes`: whatever else stops it.
    """

    phases: Sequence[Sequence[str]] | None
    pause_s: int
    unchanged: Unchanged | None
    not_before: datetime | None
    expires_at: datetime | None
    vetoes: Sequence[events.Veto]


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks, for whose data, and what makes it safe."""

    tenant: str
    node: str
    guards: Sequence[events.Guard]

    def intent(
        self,
        intent_id: str,
        at: datetime,
        action: events.Action,
        guards: Sequence[events.Guard],
        vetoes: Sequence[events.Veto],
    ) -> events.DeletionIntent:
        """Return an intent with further guards beside those that make it safe."""
        return events.DeletionIntent(
            intent_id=intent_id,
            tenant=self.tenant,
            emitted_at=at,
            emitter=self.node,
            guards=(*self.guards, *guards),
            action=action,
            vetoes=vetoes,
        )


def intents_for(
    asking: Asking, bucket: str, keys: Iterable[str] | None, emitter: Emitter, **terms: Unpack[KeyTerms]
) -> list[events.DeletionIntent]:
    """Return the intents for keys, as many as their size needs, none for no keys; or the one for phases.

    Raises InvalidEvent for what cannot be told part by part: a naive instant, a condition on a key that is
    not named, more phases than one intent carries. UsageError for keys and phases, or neither of them.
    """
    given = _KeyTerms(**terms)
    guards, vetoes = _held_by(given.not_before), _stopped_by(given.expires_at, given.vetoes)
    conditions = _conditions(given.unchanged)
    now = datetime.now(UTC)
    intents = []
    for phases in _parts(asking, bucket, keys, given, conditions, vetoes, emitter.limits):
        action = events.DeleteObjects(bucket, phases, pause_s=given.pause_s)
        # Each part has the conditions on its own keys, and whatever may stop the others stops it too.
        own = _own(phases, conditions) if conditions else ()
        unchanged = (events.UnchangedGuard(own),) if own else ()
        intents.append(asking.intent(emitter.new_id(), now, action, (*guards, *unchanged), vetoes))
    return intents


def prefix_intent(
    asking: Asking,
    bucket: str,
    prefix: str,
    emitter: Emitter,
    *,
    tombstone: str | None = None,
    **terms: Unpack[PrefixTerms],
) -> events.DeletionIntent:
    """Return the intent for all that lies under a prefix; raises InvalidEvent for a naive instant."""
    given = _PrefixTerms(**terms)
    check_instant("written_before", given.written_before)
    action = events.DeletePrefix(
        bucket, prefix, tombstone=tombstone, suffix=given.suffix, written_before=given.written_before
    )
    guards, vetoes = _held_by(given.not_before), _stopped_by(given.expires_at, given.vetoes)
    return asking.intent(emitter.new_id(), datetime.now(UTC), action, guards, vetoes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PrefixTerms:
    suffix: str | None = None
    written_before: datetime | None = None
    not_before: datetime | None = None
    expires_at: datetime | None = None
    vetoes: Sequence[events.Veto] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyTerms:
    phases: Sequence[Sequence[str]] | None = None
    pause_s: int = 0
    unchanged: Unchanged | None = None
    not_before: datetime | None = None
    expires_at: datetime | None = None
    vetoes: Sequence[events.Veto] = ()


def _held_by(not_before: datetime | None) -> tuple[events.Guard, ...]:
    check_instant("not_before", not_before)
    return () if not_before is None else (events.NotBeforeGuard(not_before),)


def _stopped_by(expires_at: datetime | None, vetoes: Sequence[events.Veto]) -> tuple[events.Veto, ...]:
    check_instant("expires_at", expires_at)
    for veto in check_list("vetoes", vetoes):
        if type(veto) not in VETOES:
            raise InvalidEvent(f"not a veto: {type(veto).__name__}")
        check_texts(veto.objects)
        check_list("a veto's phases", () if veto.phases is None else veto.phases)
    return (*(() if expires_at is None else (events.ExpiresAt(expires_at),)), *vetoes)


def _conditions(unchanged: Unchanged | None) -> dict[str, events.KeyCondition]:
    if unchanged is None:
        return {}
    if not isinstance(unchanged, Mapping):
        kind = type(unchanged).__name__
        raise InvalidEvent(f"unchanged must map keys to ETags or conditions, not be of type {kind}")
    return {key: _condition(key, wanted) for key, wanted in unchanged.items()}


def _condition(key: str, wanted: str | events.KeyCondition) -> events.KeyCondition:
    condition = wanted if isinstance(wanted, events.KeyCondition) else events.KeyCondition(key, wanted)
    check_text(key)
    if condition.key != key:
        raise InvalidEvent(
            f"a condition is about another key than its own: {key!r:.80}: {condition.key!r:.80}"
        )
    for text in (condition.etag, condition.version_id):
        if not isinstance(text, str | None):
            raise InvalidEvent(f"an ETag or version id must be text, not {type(text).__name__}: {key!r:.80}")
    return condition


def _own(
    phases: Sequence[Sequence[str]], conditions: Mapping[str, events.KeyCondition]
) -> tuple[events.KeyCondition, ...]:
    return tuple(conditions[key] for phase in phases for key in phase if key in conditions)


def _parts(
    asking: Asking,
    bucket: str,
    keys: Iterable[str] | None,
    given: _KeyTerms,
    conditions: Mapping[str, events.KeyCondition],
    vetoes: Sequence[events.Veto],
    limits: Limits,
) -> list[Sequence[Sequence[str]]]:
    """Return the phases of each intent; raises InvalidEvent for a condition that would be in none."""
    if (keys is None) == (given.phases is None):
        raise UsageError("either keys are to be named or phases", hint="phases=[[first, …], [then, …]]")
    whole: Sequence[Sequence[str]] = (
        [_listed(keys)] if keys is not None else _phases(given.phases, limits.keys_per_intent)
    )
    if whole == [[]] and given.phases is None:
        return []
    check_bucket(bucket)  # the keys are checked with the whole intent, once
    if conditions:
        events.DeleteObjects(bucket, whole).check_conditions(conditions.keys())
    if given.phases is not None:
        return [whole]  # never in parts: nothing would keep the order between two intents
    if given.pause_s:
        raise InvalidEvent("a pause is between phases, and keys alone are one", hint="name phases")
    fixed = _WIDEST * (2 * len(asking.tenant) + len(asking.node)) + sum(map(_size, vetoes))
    return [(run,) for run in split_keys(whole[0], fixed, limits, conditions)]


def _listed(keys: Iterable[str]) -> list[str]:
    if isinstance(keys, str | bytes):
        raise InvalidEvent("keys must be a list of keys, not one text")
    return list(keys)


def _phases(phases: object, most: int) -> Sequence[Sequence[str]]:
    whole = [tuple(check_list("a phase", phase)) for phase in check_list("phases", phases)]
    if (count := sum(map(len, whole))) > most:
        raise InvalidEvent(f"phases stay one intent, and that names at most {most} keys: {count}")
    return whole


# Of a message's bytes: framing, ids, guard, headers and batch overhead beside names, which are counted.
_OVERHEAD = 8_192
_WIDEST = 4  # bytes of UTF-8 for one character
_PER_KEY = 3  # length of a text: two bytes of varint up to 4 KiB, and one to spare
_PER_CONDITION = 16  # lengths of three texts, branches of two unions
_PER_VETO = 64  # branch, instant and phases


def _size(veto: events.Veto) -> int:
    """Return a veto's bytes, estimated from above."""
    return _PER_VETO + _WIDEST * len(veto.phases or ()) + _bytes(*veto.objects)


def split_keys(
    keys: Sequence[str], fixed: int, limits: Limits, conditions: Mapping[str, events.KeyCondition]
) -> list[Sequence[str]]:
    """Cut keys into runs that each fit into one intent; `fixed` is the size of the other names, in bytes.

    The size is estimated from above for all keys at once, so that no call costs a loop over keys; only those
    with conditions are looked at one by one.
    """
    room = limits.message_bytes - _OVERHEAD - fixed
    longest = len(keys) * (MAX_KEY_BYTES + _PER_KEY)
    if len(keys) <= limits.keys_per_intent and longest <= room and not conditions:
        return [keys]  # however long each may be
    try:
        size = _bytes(*keys) + _PER_KEY * len(keys)
    except TypeError:
        check_texts(keys)
        raise
    if conditions:
        size += sum(_condition_size(conditions[key]) for key in keys if key in conditions)
    parts = max(-(-size // room) if room > 0 else len(keys), -(-len(keys) // limits.keys_per_intent), 1)
    if parts == 1 or len(keys) == 1:
        return [keys]
    step = -(-len(keys) // parts)
    if step == len(keys):
        step = -(-len(keys) // 2)
    runs = [keys[start : start + step] for start in range(0, len(keys), step)]
    return [part for run in runs for part in split_keys(run, fixed, limits, conditions)]


def _condition_size(condition: events.KeyCondition) -> int:
    return _PER_CONDITION + _bytes(condition.key, condition.etag or "", condition.version_id or "")


def _bytes(*texts: str) -> int:
    return len("".join(texts).encode("utf-8", "surrogatepass"))
