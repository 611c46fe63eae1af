"""Stage 2, judge: may this intent be executed? A pure rule over position and log, and one bulk question.

Every guard must hold. A verdict is final (`pass`, `never`, `refused`) or *not yet*. A guard that could not
be judged has not passed. As windows are taken as of the micro-batch's barrier, and only grow towards an end
that is never below it, the same micro-batch judged again after a crash decides exactly the same
(architecture: Judge).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from sexton.issuer.client import Subject
from sexton.schemas import events
from sexton.schemas.conditions import conditions_of
from sexton.schemas.events import VerdictResult
from sexton.schemas.windows import Window
from sexton.streaming_jobs.reaper.actions.delete_prefix.progress import prefix_refused

__all__ = ["Allowed", "Judgement", "NotYet", "Rules", "judge", "parse_allow", "probes_under", "subjects"]

Windows = Mapping[Subject, Window | None]
Forgotten = Mapping[Subject, int]
Allowed = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class NotYet:
    """Cannot be decided now; `retry_at` is when it may be, None when nobody knows."""

    reason: str
    detail: str
    retry_at: datetime | None = None


Judgement = events.Verdict | NotYet


@dataclass(frozen=True, slots=True)
class Rules:
    """What this reaper's settings allow: where it may delete, whether retention may be bypassed.

    `prefix_depth` is how many segments below the bucket a prefix needs at least.
    """

    allow: Allowed = ()
    allow_bypass: bool = False
    prefix_depth: int = 1


def subjects(intent: events.DeletionIntent, partition: int) -> list[Subject]:
    """Return what the issuer has to be asked about an intent that stands in this partition."""
    return [
        Subject(guard.tenant, guard.generation, partition, guard.node, guard.node_generation)
        for guard in intent.guards
        if isinstance(guard, events.GenerationGuard)
    ]


def parse_allow(entries: Iterable[str]) -> Allowed:
    """Return `bucket/prefix` entries as (bucket, prefix) pairs; none means everything is allowed."""
    return [(bucket, prefix) for bucket, _, prefix in (entry.partition("/") for entry in entries)]


def probes_under(allow: Allowed) -> dict[str, str]:
    """Return, by bucket, what the keys of a probe must begin with: the allow-list binds probes too."""
    found: dict[str, str] = {}
    for bucket, prefix in allow:
        found[bucket] = "" if prefix == "" else found.get(bucket, prefix)
    return found


def judge(
    intent: events.DeletionIntent,
    position: events.Position,
    windows: Windows,
    *,
    topic_id: str,
    log_offset: int,
    now: datetime,
    rules: Rules = Rules(),
    forgotten: Forgotten = MappingProxyType({}),
) -> Judgement:
    """Return the verdict on an intent that stands at `position`, below the barrier's end offset.

    `windows` holds the issuer's answer for each of `subjects(...)`: a window, None for a generation that was
    never issued in this form or whose window is forgotten, nothing for a tenant that the log does not know.
    `forgotten` holds the offsets at or below which forgotten windows ended; it changes no result, only the
    reason that is reported.
    """
    refused = _refused(intent, rules)
    if refused is not None:
        return _final(VerdictResult.REFUSED, *refused, None)
    waiting: NotYet | None = None
    asked_log: int | None = None
    for guard in intent.guards:
        match guard:
            case events.GenerationGuard():
                asked_log = log_offset
                found = _generation(guard, position, windows, forgotten, topic_id)
                if found is not None:
                    return _final(*found, log_offset)
            case events.PromiseGuard() | events.UnchangedGuard():
                pass  # a promise always holds; the store checks the other one in the delete itself
            case events.NotBeforeGuard():
                if not now > guard.instant:
                    waiting = NotYet("not-before", f"until {guard.instant.isoformat()}", guard.instant)
            case _:
                waiting = NotYet("guard-not-judged", f"no judge for {type(guard).__name__}")
    waiting = _unsupported(intent.action) or waiting
    return waiting or _final(VerdictResult.PASS, "pass", "every guard holds", asked_log)


def _generation(
    guard: events.GenerationGuard,
    position: events.Position,
    windows: Windows,
    forgotten: Forgotten,
    topic_id: str,
) -> tuple[VerdictResult, str, str] | None:
    """Return why the guard can never hold, None when it holds."""
    if position.topic_id != topic_id:
        # Windows are offsets of the topic that is there now; they say nothing about another one's.
        message = f"it stood in a topic that is no more: {position.topic_id}"
        return VerdictResult.NEVER, "another-topic", message
    subject = Subject(guard.tenant, guard.generation, position.partition, guard.node, guard.node_generation)
    if subject not in windows:
        return VerdictResult.REFUSED, "unknown-tenant", f"the log does not know tenant {guard.tenant!r}"
    window = windows[subject]
    name = f"generation {guard.generation} of {guard.tenant!r}"
    if window is None:
        return VerdictResult.NEVER, *_without_window(name, position.offset, forgotten.get(subject))
    if window.covers(position.offset):
        return None
    if position.offset < window.start:
        return VerdictResult.NEVER, "claimed-early", f"{name} was issued at offset {window.start}"
    return VerdictResult.NEVER, "superseded", f"{name} ended at offset {window.until}"


def _without_window(name: str, offset: int, ended: int | None) -> tuple[str, str]:
    """Return the reason and detail for an intent whose generation has no window, or a forgotten one.

    Below `ended`, where only replays stand, nobody knows whether the intent lay in the window or beside it.
    """
    if ended is not None and offset >= ended:
        return "superseded", f"{name} ended at or before offset {ended}"
    message = f"{name} was never issued in this form, or ended before all that is not settled"
    return "never-issued", message


def _refused(intent: events.DeletionIntent, rules: Rules) -> tuple[str, str] | None:
    """Return why this reaper may not execute such an intent, whatever its guards say."""
    action = intent.action
    if rules.allow and not _is_allowed(action, rules.allow):
        return "not-allowed", "outside the reaper's allow-list"
    if isinstance(action, events.AdvanceHorizon):
        return None
    if action.bypass_governance and not rules.allow_bypass:
        return "bypass-not-allowed", "SEXTON_REAPER_ALLOW_BYPASS is off"
    kinds = {type(guard) for guard in intent.guards}
    if isinstance(action, events.DeletePrefix):
        # Any other guard is about what the owner knew: under a prefix lies what others wrote since.
        if events.PromiseGuard not in kinds:
            return "prefix-needs-promise", "a whole prefix is only deleted when its owner has given it up"
        if events.UnchangedGuard in kinds:
            return "unchanged-without-keys", "no store checks a condition for a whole prefix"
        why = prefix_refused(action, min_depth=rules.prefix_depth)
        return ("prefix-refused", why) if why else None
    if kinds == {events.UnchangedGuard}:
        named = conditions_of(intent)
        bare = next((key for phase in action.phases for key in phase if key not in named), None)
        if bare is not None:
            return "unguarded-key", f"no condition names it, and nothing else guards it: {bare!r}"
    return None


def _unsupported(action: events.Action) -> NotYet | None:
    if isinstance(action, events.AdvanceHorizon):
        return NotYet("action-not-executed", "AdvanceHorizon is not executed")
    return None


def _is_allowed(action: events.Action, allow: Allowed) -> bool:
    match action:
        case events.DeleteObjects():
            names = [key for phase in action.phases for key in phase]
        case events.DeletePrefix():
            names = [action.prefix] if action.tombstone is None else [action.prefix, action.tombstone]
        case _:
            return True
    prefixes = tuple(prefix for bucket, prefix in allow if bucket == action.bucket)
    return bool(prefixes) and all(name.startswith(prefixes) for name in names)


def _final(result: VerdictResult, reason: str, detail: str, log_offset: int | None) -> events.Verdict:
    return events.Verdict(result, reason, detail, log_offset)
