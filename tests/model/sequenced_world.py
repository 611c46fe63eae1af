"""The world of sequenced metadata: one namespace's files, its boundary, writers, collectors and reaper tasks.

A writer that takes no step is stalled, or dead; another one opens by listing. A collector's listing and its
plan are two steps, and so is everything of a task between two requests. The SDK's own rules decide what a
writer takes from what it has read, the judge whether the guards beside the boundary hold, its gate whether a
plan has expired; `sequenced_rules` what the others do. A safeguard that is one of these rules is switched off
where it stands (`SWITCHES`); one that is an order of steps is restated in `sequenced_steps`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from tests.model import sequenced_rules
from tests.model.rules import Switch, SwitchedRules, replaced
from tests.model.sequenced_rules import Told

from sexton.producers import _sequenced_rules
from sexton.producers._sequenced_rules import Boundary, Whose
from sexton.producers._sequenced_store import NoObject, StoredObject
from sexton.schemas import events, sequenced
from sexton.schemas.guards import NotBeforeGuard, PromiseGuard
from sexton.schemas.vetoes import ExpiresAt
from sexton.streaming_jobs.reaper.execute import boundaries
from sexton.streaming_jobs.reaper.execute.gate import Gate
from sexton.streaming_jobs.reaper.guards import Met, boundary
from sexton.streaming_jobs.reaper.judge import Facts, judge
from sexton.streaming_jobs.reaper.vetoes import Now

START = datetime(2026, 1, 1, tzinfo=UTC)
TICK = timedelta(seconds=1)
DELETED, REFUSED, CANCELLED = "deleted", "refused", "cancelled"

SAFEGUARDS = {
    "advance-first": "the boundary is raised durably before anything is deleted",
    "check-after": "a writer checks the boundary after its create",
    "inclusive": "the boundary's own id has been passed",
    "newest-kept": "a file above the intent's id has been listed before the boundary is raised",
    "keys-named": "an intent names no file above its own id",
    "never-lower": "the boundary is written by compare-and-set, and a lost race is read again",
    "judged-last": "only who passes every other guard raises the boundary",
    "floor": "who knows a higher boundary than the one that stands goes no further",
    "readable": "a boundary that is no number is no boundary, and not zero",
    "unknown-put": "a put of unknown fate is no success",
    "nonce": "what is read back counts as one's own by its nonce",
    "read-back": "a refused put is read back before it is called a conflict",
    "vanished": "a boundary that was seen and is gone stops the writer",
    "lowered": "a boundary that is lower than it was stops the writer",
    "checkpoint-held": "what an active checkpoint holds is not planned",
    "plan-expires": "a plan that has expired is not begun",
}
TRUSTED = {"boundary-kept": "nobody but a judge writes the boundary, and nothing sets it back"}


class Intent(NamedTuple):
    """A record of the topic; `not_before` and `expires` are ticks, `held` is what was held when it was
    planned.
    """

    ids: tuple[int, ...]
    id: int
    floor: int = 0
    not_before: int | None = None
    expires: int | None = None
    held: frozenset[int] = frozenset()


class Writer(NamedTuple):
    """One writer, and the step that it takes next; `name` is its nonce, `known` the boundary it has seen.

    `left` is how many files it is still to create, `told` what it was told at last.
    """

    name: str
    left: int = 1
    at: str = "open"
    id: int = 0
    known: Boundary = Boundary()
    told: Told | None = None


class Task(NamedTuple):
    """One task of the reaper, and the step that it takes next.

    `batch` has the intents for which the boundary is raised, `going` those that go on, `left` the files to
    delete, `text` the boundary that it has read.
    """

    at: str = "take"
    batch: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    going: tuple[int, ...] = ()
    stopped: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    text: str | None = None


class Truth(NamedTuple):
    """What nobody in the model knows, and the properties look at.

    `first` is who has created each id first, `again` who has created one that was deleted before, `deleted`
    which were, `wrong` what was done that may not be.
    """

    first: tuple[str, ...]
    again: frozenset[tuple[int, str]] = frozenset()
    deleted: frozenset[int] = frozenset()
    wrong: frozenset[str] = frozenset()


class Budget(NamedTuple):
    """How often the environment may still do its worst, and how often others may act."""

    plans: int = 1
    unknown: int = 0
    crashes: int = 0
    ticks: int = 0
    checkpoints: int = 0
    set_backs: int = 0


class SequencedWorld(NamedTuple):
    """One state; `files` has the nonce of each id's file, `flights` puts without an answer that may land.

    `collectors` have what they have listed, `outcomes` are by the number of the intent.
    """

    files: tuple[str, ...]
    boundary: str | None
    flights: frozenset[tuple[int, str]]
    writers: tuple[Writer, ...]
    collectors: tuple[tuple[int, ...], ...]
    intents: tuple[Intent, ...]
    outcomes: tuple[str, ...]
    tasks: tuple[Task, ...]
    held: frozenset[int]
    now: int
    truth: Truth
    budget: Budget

    @property
    def listed(self) -> tuple[int, ...]:
        """The ids that a listing shows now."""
        return tuple(id for id, nonce in enumerate(self.files) if nonce)

    @property
    def stands(self) -> int | None:
        """The boundary, 0 without one, None where it is no number: the truth, whatever a rule reads there."""
        text = "0" if self.boundary is None else self.boundary
        return int(text) if text.isdigit() else None

    @property
    def newest(self) -> int:
        """The highest id that a listing shows now, 0 where nothing stands."""
        return max(self.listed, default=0)

    def writer(self, number: int, **changes: Any) -> SequencedWorld:
        """Return the world with a writer changed."""
        writer = self.writers[number]._replace(**changes)
        return self._replace(writers=replaced(self.writers, number, writer))

    def task(self, number: int, **changes: Any) -> SequencedWorld:
        """Return the world with a task changed."""
        return self._replace(tasks=replaced(self.tasks, number, self.tasks[number]._replace(**changes)))

    def wrong(self, what: str, is_wrong: bool) -> SequencedWorld:
        """Return the world in which this was done, if it was wrong."""
        if not is_wrong:
            return self
        return self._replace(truth=self.truth._replace(wrong=self.truth.wrong | {what}))

    def spend(self, what: str) -> SequencedWorld:
        """Return the world in which this may be done once less."""
        return self._replace(budget=self.budget._replace(**{what: getattr(self.budget, what) - 1}))


Found = StoredObject | NoObject
Steps = Iterator[tuple[str, SequencedWorld]]


@dataclass(frozen=True, slots=True)
class SequencedSetup:
    """A small world: how many files each writer creates, who else takes part, what may go wrong.

    `files` stand at first; `intents` are in the topic from the start, whoever sent them; `lasts` is how many
    ticks a plan does; `texts` are what a boundary may be set back to.
    """

    creates: tuple[int, ...]
    budget: Budget
    tasks: int = 1
    collectors: int = 1
    files: int = 1
    intents: tuple[Intent, ...] = ()
    lasts: int | None = None
    texts: tuple[str | None, ...] = (None,)

    def start(self) -> SequencedWorld:
        """Return the first state: files that nobody in the world has written, and no boundary."""
        files = ("", *("o" * self.files), *("" for _ in range(sum(self.creates) + 1)))
        return SequencedWorld(
            files=files,
            boundary=None,
            flights=frozenset(),
            writers=tuple(Writer("abcd"[number], left) for number, left in enumerate(self.creates)),
            collectors=((),) * self.collectors,
            intents=self.intents,
            outcomes=("",) * len(self.intents),
            tasks=(Task(),) * self.tasks,
            held=frozenset(),
            now=0,
            truth=Truth(files),
            budget=self.budget,
        )


_observed, _whose = _sequenced_rules.observed, _sequenced_rules.whose


def _by_bytes(found: Found, nonce: str | None, body: bytes) -> Whose:
    return _whose(replace(found, nonce=nonce) if isinstance(found, StoredObject) else found, nonce, body)


def _vanished_unseen(known: Boundary, key: str, answer: Found) -> Boundary:
    return known if answer is NoObject.ABSENT else _observed(known, key, answer)


def _lowered_unseen(known: Boundary, key: str, answer: Found) -> Boundary:
    return _observed(replace(known, id=0), key, answer)


def _any_text(body: bytes) -> int:
    return int(body) if body.isdigit() else 0


SWITCHES: Mapping[str, Sequence[Switch]] = {
    "inclusive": [Switch(Boundary, "is_dead", lambda boundary, id: id < boundary.id)],
    "newest-kept": [Switch(boundaries, "newest_refusals", lambda guards, newest: {})],
    "keys-named": [Switch(boundary, "verdict", lambda guard, case: Met())],
    "floor": [Switch(boundaries, "set_back", lambda guard, value, exists: None)],
    "readable": [
        Switch(sequenced, "parse_boundary", _any_text),
        Switch(_sequenced_rules, "parse_boundary", _any_text),
    ],
    "nonce": [Switch(_sequenced_rules, "whose", _by_bytes)],
    "vanished": [Switch(_sequenced_rules, "observed", _vanished_unseen)],
    "lowered": [Switch(_sequenced_rules, "observed", _lowered_unseen)],
    "checkpoint-held": [Switch(sequenced_rules, "released", lambda ids, held: tuple(sorted(ids)))],
    "plan-expires": [Switch(Gate, "said", lambda *_: None)],
}
"""The safeguards that are pure rules, and can be taken out where they stand."""


class SequencedRules(SwitchedRules):
    """The rules over the model's clock, with at most one safeguard switched off."""

    safeguards = SAFEGUARDS
    switches = SWITCHES

    def __init__(self, setup: SequencedSetup, off: str | None = None) -> None:
        super().__init__(off)
        self.setup = setup
        self.passes_others = cache(_passes_others)
        self.begins = cache(_begins)


def _passes_others(not_before: int | None, now: int) -> bool:
    """Return whether the product's own judge lets an intent pass; a promise stands for the boundary."""
    promise = PromiseGuard("op")
    guards = (promise,) if not_before is None else (promise, NotBeforeGuard(_at(not_before)))
    action = events.DeleteObjects("bucket", (("db/manifest/00000000000000000001.manifest",),))
    intent = events.DeletionIntent("i", "t", START, "collector", guards, action, None)
    said = judge(intent, events.Position("t", 0, 0), Facts("t", 0, _at(now)))
    return isinstance(said, events.Verdict) and said.result is events.VerdictResult.PASS


def _begins(expires: int | None, now: int) -> bool:
    """Return whether the product's own gate lets the deletion of a plan begin."""
    vetoes = () if expires is None else (ExpiresAt(_at(expires)),)
    return Gate(vetoes).said(0, {}, Now(_at(now), _at(now))) is None


def _at(tick: int) -> datetime:
    return START + tick * TICK
