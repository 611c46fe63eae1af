"""The world of the model: log, Redis, intents topic, indexes, attachments, calls and the reaper.

One tenant and one object `x`, named by the tenant's index at the start. The environment is modelled: it may
lie, lag, lose and crash. The rules are the real ones: `sexton.issuer.state.fold` folds the log,
`sexton.issuer.operations.issuing` says how a call continues, `sexton.issuer.log.positions` which topic is
right, `sexton.streaming_jobs.reaper.plan` what a barrier covers, `sexton.streaming_jobs.reaper.judge` judges
an intent. A safeguard that is one of them is switched off in the product itself (`SWITCHES`); one that is an
order of I/O is restated here, and `tests/safeguards/protocol.toml` has the product's line for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import NamedTuple, cast

from tests.model.rules import Switch, SwitchedRules

from sexton.issuer.client import Subject
from sexton.issuer.log import positions
from sexton.issuer.operations import barrier, base, issuing
from sexton.issuer.state import fold
from sexton.schemas import events
from sexton.schemas.errors import EnvironmentFault
from sexton.schemas.kafka.admin import TopicIdentity
from sexton.schemas.settings import Settings
from sexton.schemas.windows import Window
from sexton.streaming_jobs.reaper import plan
from sexton.streaming_jobs.reaper.judge import Facts, judge

TENANT = "t"
NOW = datetime(2026, 1, 1, tzinfo=UTC)

SAFEGUARDS = {
    "read-back": "a number is answered only when its event was read back as valid",
    "compare-and-set": "an event counts only if what it supersedes is the newest",
    "request-id": "a second event under one request id is void",
    "ends-before-append": "an issue's end offsets are read before its event is appended",
    "last-stable-offsets": "end offsets stop at the first record of an open transaction",
    "barrier": "a micro-batch is judged as of an event appended after its range was fixed",
    "barrier-ends": "the barrier's end offsets count in the windows' running maximum",
    "below-barrier": "the micro-batch's range lies below the barrier's end offsets",
    "window-start": "what claims a generation below its window is not believed",
    "topic-ids": "end offsets of a re-created topic are refused",
    "index-first": "an intent is emitted only after the index was acknowledged",
    "put-outcome": "an attachment with an index PUT of unknown outcome emits nothing",
    "outcomes-before-commit": "offsets are committed once the outcomes are acknowledged",
}
TRUSTED = {
    "log-kept": "the log never loses an event that was read",
    "topic-kept": "the intents topic is not re-created between a barrier and the reading of its micro-batch",
    "claims-answered": "nobody claims a generation that was not answered to him",
}


class Event(NamedTuple):
    """One event of the log; an issue supersedes 0 when there was none."""

    request: str
    operation: str
    node: str
    supersedes: int
    generation: int
    ends: int


class Record(NamedTuple):
    """An intent to delete `object`; it is not `stable` while its transaction is open."""

    generation: int
    object: str = "x"
    stable: bool = True


class Redis(NamedTuple):
    """The projection and the proposals: nothing that anybody may rely on."""

    newest: int
    proposed: int


class Call(NamedTuple):
    """One call in an issuer process; `at` is the step that it takes next.

    A process keeps nothing but its calls and its fold, which has read at least `floor` events and lags at
    will. So a process that crashes is a call that ends, and two calls are two processes.
    """

    handle: int
    at: str
    floor: int
    ends: int
    supersedes: int = 0
    generation: int = 0
    offset: int = 0


class Handle(NamedTuple):
    """One attachment of a node: its request, and what it does with the generation that it is answered.

    `names_x` is whether the index, as it has read or written it, names the object; None before the read.
    `poisoned` is whether a PUT of its index is of unknown outcome.
    """

    node: str
    operation: str
    request: str
    tries: int
    generation: int = 0
    names_x: bool | None = None
    emitted: bool = False
    poisoned: bool = False


class Reaper(NamedTuple):
    """The micro-batch `[committed, until)` and how far it has got; `until` 0: no range is fixed.

    `settled` is the offset below which every record has an acknowledged outcome.
    """

    at: str
    committed: int = 0
    until: int = 0
    ends: int = 0
    barrier: int = 0
    topic: int = 0
    settled: int = 0


class Presence(NamedTuple):
    """A verdict that was given on a record: what the safety properties look back at."""

    topic: int
    offset: int
    generation: int
    passed: bool


class Budget(NamedTuple):
    """How often the environment may still do its worst."""

    lies: int = 0
    losses: int = 0
    crashes: int = 0
    barriers: int = 0
    recreations: int = 0
    unknown_puts: int = 0


class World(NamedTuple):
    """One state. `indexes` holds for each generation whether its index names `x`, None: not written.

    `late` holds index PUTs whose answer never came, each with its generation and whether it names `x`: one
    may land at any time, or never.
    """

    log: tuple[Event, ...]
    flight: tuple[Event, ...]
    redis: Redis
    topic: int
    records: tuple[Record, ...]
    indexes: tuple[bool | None, ...]
    late: tuple[tuple[int, bool], ...]
    handles: tuple[Handle, ...]
    calls: tuple[Call, ...]
    reaper: Reaper
    deleted: bool
    answers: frozenset[tuple[str, int]]
    verdicts: frozenset[Presence]
    budget: Budget

    @property
    def stable_end(self) -> int:
        """The last stable offset: below it nothing changes any more."""
        return next((i for i, record in enumerate(self.records) if not record.stable), len(self.records))


@dataclass(frozen=True, slots=True)
class Setup:
    """A small world: who takes part, and what may go wrong how often."""

    handles: tuple[Handle, ...]
    budget: Budget
    records: tuple[Record, ...] = ()
    store: bool = True
    transactional: bool = False
    most_calls: int = 2

    def start(self, rules: Rules) -> World:
        """Return the first state: with a store, generation 1 is held by `a`, whose index names `x`."""
        genesis = Event("genesis", "genesis", "", 0, 0, 0)
        log: tuple[Event, ...] = (genesis,)
        handles, answers = self.handles, frozenset[tuple[str, int]]()
        if self.store:
            log += (Event("a1", "attach", "a", 0, 1, 0),)
            handles = (Handle("a", "attach", "a1", 0, 1, True), *handles)
            answers = frozenset({("a1", 1)})
        return World(
            log=log,
            flight=(),
            redis=Redis(int(self.store), 0),
            topic=0,
            records=self.records,
            indexes=(True, *(None for _ in range(8))),
            late=(),
            handles=handles,
            calls=(),
            reaper=Reaper(rules.first),
            deleted=False,
            answers=answers,
            verdicts=frozenset(),
            budget=self.budget,
        )


_covers = Window.covers
SWITCHES: Mapping[str, Sequence[Switch]] = {
    "compare-and-set": [Switch(issuing, "grant_fault", lambda *_: None)],
    "request-id": [Switch(base, "request_fault", lambda *_: None)],
    "barrier-ends": [Switch(barrier, "apply_barrier", lambda *_: fold.VALID)],
    "below-barrier": [Switch(plan, "check_below", lambda *_: None)],
    "window-start": [
        Switch(Window, "covers", lambda window, offset: _covers(Window(0, window.until), offset))
    ],
    "topic-ids": [Switch(positions, "verify", lambda *_: None)],
}
"""The safeguards that are pure rules of the product: where each stands, and what is there without it."""


class Rules(SwitchedRules):
    """The real rules over the model's log, with at most one safeguard switched off: remembers results."""

    safeguards = SAFEGUARDS | TRUSTED
    switches = SWITCHES

    def __init__(self, off: str | None = None) -> None:
        super().__init__(off)
        self._order = {
            "barrier": ("fix_range", "judge"),
            # Made before the range is fixed: a rule for what no order of steps promises.
            "below-barrier": ("barrier_ends", "barrier", "fix_range", "judge"),
        }.get(off or "", ("fix_range", "barrier_ends", "barrier", "judge"))
        self._states: dict[tuple[Event, ...], fold.State] = {}
        self._passes: dict[tuple[tuple[Event, ...], int, int], bool] = {}
        self.is_right = cache(_is_right)
        self.lies_below = cache(_lies_below)

    @property
    def done(self) -> tuple[str, str]:
        """The reaper's last two steps in a micro-batch."""
        return ("settle", "commit") if self.on("outcomes-before-commit") else ("commit", "settle")

    @property
    def first(self) -> str:
        """The reaper's first step in a micro-batch."""
        return self._order[0]

    @property
    def replays(self) -> str:
        """The reaper's first step after a crash in a micro-batch."""
        return self._order[1] if self.first == "fix_range" else self.first

    def after(self, step: str) -> str:
        """Return the reaper's step that follows this one, up to the verdict."""
        return self._order[self._order.index(step) + 1]

    def fold(self, log: tuple[Event, ...]) -> fold.State:
        """Fold a prefix of the log by the issuer's own rule."""
        state = self._states.get(log)
        if state is None:
            state = fold.State()
            for offset, event in enumerate(log):
                fold.apply(state, offset, _real(event))
            self._states[log] = state
        return state

    def passes(self, log: tuple[Event, ...], offset: int, generation: int) -> bool:
        """Judge an intent at `offset` by the reaper's own rule, as of the end of this prefix of the log."""
        key = (log, offset, generation)
        if key not in self._passes:
            self._passes[key] = _judge(self.fold(log), offset, generation)
        return self._passes[key]


def _real(event: Event) -> events.GenerationEvent:
    ends = events.PartitionOffsets("intents", (event.ends,))
    match event.operation:
        case "genesis":
            return events.Genesis(fold.FORMAT, "cluster", "generations-0", ends.topic_id, NOW)
        case "barrier":
            return events.Barrier(event.request, ends, None, NOW)
    grants = (events.Grant(TENANT, event.generation, event.supersedes or None),)
    operation = events.IssueOperation(event.operation)
    return events.Issued(event.request, event.node, operation, event.node, 0, 1, grants, ends, NOW)


def _lies_below(offset: int, ends: int) -> bool:
    """Tell by the reaper's own rule whether an offset lies below a barrier's end offset."""
    try:
        plan.check_below(plan.TaskPlan(cast(Settings, None), "intents", 0, (ends,)), 0, offset)
    except EnvironmentFault:
        return False
    return True


def _is_right(topic: int) -> bool:
    """Tell by the issuer's own rule whether an intents topic that was created so often is the right one."""
    named = {"generations": "generations-0", "intents": "intents"}
    found = named | ({"intents": f"intents-{topic}"} if topic else {})
    try:
        positions.verify(named, {name: TopicIdentity(each, 1, 3) for name, each in found.items()})
    except positions.WrongTopic:
        return False
    return True


def _judge(state: fold.State, offset: int, generation: int) -> bool:
    guards: Sequence[events.Guard] = (events.GenerationGuard(TENANT, generation),)
    action = events.DeleteObjects("bucket", (("x",),))
    intent = events.DeletionIntent("i", TENANT, NOW, "node", guards, action)
    windows = {Subject(TENANT, generation, 0, None, None): state.window(TENANT, generation, 0)}
    verdict = judge(
        intent,
        events.Position("intents", 0, offset),
        Facts("intents", state.log_offset, NOW, windows if state.known(TENANT) else {}),
    )
    return isinstance(verdict, events.Verdict) and verdict.result is events.VerdictResult.PASS
