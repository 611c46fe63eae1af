"""Stage 2, judge: may this intent be executed? A pure rule over position and log, and one bulk question.

Every guard must hold; each is judged in its own room (`guards`), and the combination is decided here: *never*
of any guard wins, then *not yet*. A guard that could not be judged has not passed. As windows are taken as of
the micro-batch's barrier, and only grow towards an end that is never below it, the same micro-batch judged
again after a crash decides exactly the same (architecture: Judge).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import chain

from sexton.schemas.actions import Refusal
from sexton.schemas.events import DeletionIntent, Position, Verdict, VerdictResult
from sexton.schemas.guards import Guard, conditions_of
from sexton.schemas.tenant_prefix import TenantPrefix
from sexton.streaming_jobs.reaper.actions.registry import ROOMS as ACTIONS
from sexton.streaming_jobs.reaper.broken import Broken, alone
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.decode import Decoded, position_of
from sexton.streaming_jobs.reaper.guards import ROOMS, Asked, Case, Facts, Never, NotYet
from sexton.streaming_jobs.reaper.guards.asking import SUBJECTS_PER_CALL, Questions
from sexton.streaming_jobs.reaper.guards.transaction import FORGOTTEN
from sexton.streaming_jobs.reaper.vetoes import ROOMS as VETOES

__all__ = [
    "Allowed",
    "Facts",
    "JudgeStage",
    "Judged",
    "Judgement",
    "NotYet",
    "Rules",
    "judge",
    "parse_allow",
    "probes_under",
    "subjects",
]

Allowed = Sequence[tuple[str, str]]
Judgement = Verdict | NotYet | Broken

_FIRST_KEYS = 10_000
_INTENTS_PER_SUBJECT = 2
_ASKING_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Rules:
    """What this reaper's settings allow: where it may delete, whether retention may be bypassed.

    `prefix_depth` is how many segments below the bucket a prefix needs at least, `tenant_prefix` where
    tenants' objects lie.
    """

    allow: Allowed = ()
    allow_bypass: bool = False
    prefix_depth: int = 1
    tenant_prefix: TenantPrefix | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """An intent with its judgement; `first` is where it first stood."""

    decoded: Decoded
    first: Position
    judgement: Judgement

    @property
    def passed(self) -> bool:
        """Whether it may be executed."""
        return isinstance(self.judgement, Verdict) and self.judgement.result is VerdictResult.PASS

    @property
    def passed_as_of(self) -> int | None:
        """The log's offset as of which its guards held; None unless they held and the log was asked."""
        return self.judgement.log_offset if self.passed and isinstance(self.judgement, Verdict) else None

    @property
    def forgotten(self) -> bool:
        """Whether it claims what the log does not hold any more, though it keeps all that intents may ask."""
        return isinstance(self.judgement, Verdict) and self.judgement.reason == FORGOTTEN


@dataclass(slots=True)
class JudgeStage:
    """The second stage of one task: intents wait in it for a question to the issuer that is worth asking."""

    questions: Questions
    rules: Rules
    now: datetime
    counts: Counts
    _waiting: list[tuple[Decoded, Position]] = field(default_factory=list)
    _waiting_keys: int = 0
    _judged: int = 0

    def take(self, decoded: Iterable[Decoded]) -> Iterator[list[Judged]]:
        """Yield those that need no question first, then all that waited if it is time to ask.

        Raises EnvironmentFault where the issuer cannot be asked.
        """
        known: list[tuple[Decoded, Position]] = []
        broken: list[Judged] = []
        with self.counts.stage("judge"):
            for each in decoded:
                first = position_of(each, self.questions.topic_id)
                asked = alone("judge", partial(subjects, each.intent, first.partition))
                if isinstance(asked, Broken):
                    broken.append(Judged(each, first, asked))
                    continue
                new = self.questions.note(asked)
                (self._waiting if new else known).append((each, first))
                self._waiting_keys += each.intent.action.key_count if new else 0
        yield [*broken, *self._judge(known)]
        if self._worth_asking():
            yield self.finish()

    def finish(self) -> list[Judged]:
        """Ask what is open, and return all that waited; raises EnvironmentFault."""
        waiting, self._waiting, self._waiting_keys = self._waiting, [], 0
        with self.counts.stage("judge"):
            self.questions.ask(self.counts)
        return self._judge(waiting)

    def _judge(self, decoded: Sequence[tuple[Decoded, Position]]) -> list[Judged]:
        self._judged += len(decoded)
        with self.counts.stage("judge"):
            facts = self.questions.facts(self.now)
            judged = [self._alone(each, first, facts) for each, first in decoded]
            self.counts.forgotten += sum(each.forgotten for each in judged)
            return judged

    def _alone(self, each: Decoded, first: Position, facts: Facts) -> Judged:
        decide = partial(judge, each.intent, first, facts, self.rules, each.passed_before)
        return Judged(each, first, alone("judge", decide))

    def _worth_asking(self) -> bool:
        """Return whether the question is full, or lets many intents go, so that the store works meanwhile.

        The first one goes once it keeps the store busy. Later ones let several intents go for each subject,
        and a share of all that went before: they are few.
        """
        questions = self.questions
        first = not questions.asked and self._waiting_keys >= _FIRST_KEYS
        if len(questions.open) >= SUBJECTS_PER_CALL or first:
            return True
        went = self._judged * _ASKING_SHARE
        return len(self._waiting) >= max(_INTENTS_PER_SUBJECT * len(questions.open), went) > 0


def subjects(intent: DeletionIntent, partition: int) -> list[Asked]:
    """Return what the issuer has to be asked about an intent that stands in this partition."""
    rooms = ((ROOMS.get(type(guard)), guard) for guard in intent.guards)
    return [
        subject for room, guard in rooms if room is not None for subject in room.subjects(guard, partition)
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
    intent: DeletionIntent, position: Position, facts: Facts, rules: Rules = Rules(), passed: bool = False
) -> Verdict | NotYet:
    """Return the verdict on an intent that stands at `position`, below the barrier's end offset.

    `passed`: all its guards held before, says the dead letter that it replays.
    """
    refused = _refused(intent, rules)
    if refused is not None:
        return Verdict(VerdictResult.REFUSED, *refused, None)
    case = Case(intent.action, position, facts, rules.tenant_prefix, passed)
    said: list[object] = [_judged(guard, case) for guard in intent.guards]
    said += _not_executed(intent)
    log_offset = facts.log_offset if any(map(_asks, intent.guards)) else None
    if never := [each for each in said if isinstance(each, Never)]:
        return _never(never, log_offset)
    if waits := [each for each in said if isinstance(each, NotYet)]:
        return _not_yet(waits)
    return Verdict(VerdictResult.PASS, "pass", "every guard holds", log_offset)


def _asks(guard: Guard) -> bool:
    """Return whether a verdict on this guard rests on the issuer's log."""
    room = ROOMS.get(type(guard))
    return room is not None and room.asks


def _judged(guard: Guard, case: Case) -> object:
    room = ROOMS.get(type(guard))
    if room is None:
        return NotYet("guard-not-judged", f"no judge for {type(guard).__name__}")
    return room.verdict(guard, case)


def _not_executed(intent: DeletionIntent) -> list[NotYet]:
    """Return what of an intent this version cannot do: left out, more would be deleted than was asked for."""
    if type(intent.action) not in ACTIONS:
        return [NotYet("action-not-executed", f"{type(intent.action).__name__} is not executed")]
    unknown = [type(veto).__name__ for veto in intent.vetoes if type(veto) not in VETOES]
    return [NotYet("veto-not-judged", f"no judge for {name}") for name in unknown]


def _never(said: Sequence[Never], log_offset: int | None) -> Verdict:
    """Return the verdict where some guard can never hold: `never` before `refused`, and all that is not
    met.
    """
    first = min(said, key=lambda each: each.result is not VerdictResult.NEVER)
    return Verdict(first.result, first.reason, _all_of(first, said), log_offset)


def _not_yet(said: Sequence[NotYet]) -> NotYet:
    """Return until when an intent waits: the latest instant that is known, as before it not all can hold."""
    known = [each for each in said if each.retry_at is not None]
    last = max(known, key=lambda each: each.retry_at or each, default=said[0])  # type: ignore[arg-type,return-value]
    return NotYet(last.reason, _all_of(last, said), last.retry_at)


def _all_of(first: Never | NotYet, said: Sequence[Never] | Sequence[NotYet]) -> str:
    others = [each.detail for each in said if each is not first]
    return "; ".join([first.detail, *others])


def _refused(intent: DeletionIntent, rules: Rules) -> Refusal | None:
    """Return why this reaper may not execute such an intent, whatever its guards say."""
    action = intent.action
    if rules.allow and not _is_allowed(intent, rules.allow):
        return Refusal("not-allowed", "outside the reaper's allow-list")
    if action.bypasses_governance and not rules.allow_bypass:
        return Refusal("bypass-not-allowed", "SEXTON_REAPER_ALLOW_BYPASS is off")
    named = any(guard.names_keys for guard in intent.guards)
    conditions = conditions_of(intent.guards) if named else {}
    return action.guards_missing(intent.guards, conditions) or action.refusal(rules.prefix_depth)


def _is_allowed(intent: DeletionIntent, allow: Allowed) -> bool:
    action = intent.action
    if action.place is None:
        return True  # it touches no object
    prefixes = tuple(prefix for bucket, prefix in allow if bucket == action.place)
    written = (key for guard in intent.guards for key in guard.writes)
    return bool(prefixes) and all(name.startswith(prefixes) for name in chain(action.reaches, written))
