"""The product's rules of transactions over the model's log, with at most one safeguard switched off.

`sexton.issuer.state.fold` folds the log, the operations' own `decide` says what a call appends or is
answered, the reaper's own judge gives the verdicts. A safeguard that is one of them is switched off in the
product (`SWITCHES`); what a handle of the SDK may do next is an order of steps, and restated in
`transaction_steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tests.model.rules import Switch, SwitchedRules
from tests.model.transaction_world import (
    PROMISED,
    SAFEGUARDS,
    TENANT,
    TRUSTED,
    Handle,
    Record,
    TransactionSetup,
)

from sexton.issuer.client import TransactionFact, TransactionSubject
from sexton.issuer.operations.acknowledge_transaction import AcknowledgeTransaction
from sexton.issuer.operations.barrier import Ends
from sexton.issuer.operations.base import Done, Made, Wait
from sexton.issuer.operations.collect_transaction import CollectTransaction
from sexton.issuer.operations.commit_transaction import CommitTransaction
from sexton.issuer.operations.start_transaction import StartTransaction
from sexton.issuer.state import fold, transaction_rules
from sexton.issuer.state.transactions import Status
from sexton.schemas import events
from sexton.schemas.errors import RequestRefused
from sexton.schemas.guards import TransactionGuard, TransactionState
from sexton.schemas.tenant_prefix import TenantPrefix
from sexton.schemas.windows import Window
from sexton.streaming_jobs.reaper.guards import transaction, transaction_keys
from sexton.streaming_jobs.reaper.judge import Facts, NotYet, Rules, judge

PREFIXES = Rules(tenant_prefix=TenantPrefix.parse("tenants/{tenant}/"))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
Log = tuple[int, ...]


class View(NamedTuple):
    """What a prefix of the log says; `statuses` and `until`, the end of the deadlist, are by transaction."""

    newest: int
    committed: int
    statuses: tuple[Status, ...]
    until: tuple[int | None, ...]


class Refused(NamedTuple):
    """The issuer refuses a call, with a stable code."""

    reason: str


def _ignoring(rule: Callable[..., str | None], *reasons: str) -> Callable[..., str | None]:
    def kept(state: fold.State, event: Any) -> str | None:
        reason = rule(state, event)
        return None if reason in reasons else reason

    return kept


_start_fault, _commit_fault = transaction_rules.start_fault, transaction_rules.commit_fault
_change, _committed, _of_key = StartTransaction.change, transaction._committed, transaction_keys._of_key


def _builds_on_its_own(state: fold.State, offset: int, event: Any, bound: Any) -> None:
    _change(state, offset, event, bound)
    started = transaction_rules.transaction_of(state, event.tenant, event.transaction)
    started.base = event.last_committed


def _believed(name: str, fact: TransactionFact, offset: int) -> Any:
    window = fact.window
    assert window is not None
    return _committed(name, replace(fact, window=Window(0, window.until)), offset)


def _of_any_tenant(key: str, prefix: str, place: str, number: int) -> bool:
    root, _, rest = key.partition("/")
    return _of_key(key, f"{root}/{rest.partition('/')[0]}/", place, number)


SWITCHES: Mapping[str, Sequence[Switch]] = {
    "one-number": [
        Switch(transaction_rules, "start_fault", _ignoring(_start_fault, "not-newest", "not-next"))
    ],
    "dooms": [Switch(transaction_rules, "reject", lambda *_, **__: None)],
    # The answer's base is the fold's, which the comparison makes the event's own: neither does alone.
    "last-committed": [
        Switch(transaction_rules, "start_fault", _ignoring(_start_fault, "not-last-committed")),
        Switch(StartTransaction, "change", _builds_on_its_own),
    ],
    # One that is not the newest has been rejected: neither does alone.
    "newest-commits": [
        Switch(transaction_rules, "commit_fault", _ignoring(_commit_fault, "not-newest", "not-open"))
    ],
    "deadlist-closed": [Switch(Window, "covers", lambda window, offset: window.start <= offset)],
    "claimed-early": [Switch(transaction, "_committed", _believed)],
    "ends-reached": [Switch(transaction_rules, "covers", lambda *_: True)],
    "acknowledged": [Switch(transaction, "_CEASED", (Status.REJECT_PENDING, *transaction._CEASED))],
    "collected-passes": [Switch(transaction, "_CEASED", (Status.REJECT_ACKNOWLEDGED,))],
    "number-in-key": [Switch(transaction_keys, "_of_key", lambda key, prefix, *_: key.startswith(prefix))],
    "tenant-in-key": [Switch(transaction_keys, "_of_key", _of_any_tenant)],
}
"""The safeguards that are pure rules of the product: where each stands, and what is there without it."""


class TransactionRules(SwitchedRules):
    """The real rules: remembers what they have said, and the events that they have made."""

    safeguards = SAFEGUARDS | TRUSTED
    switches = SWITCHES

    def __init__(self, setup: TransactionSetup, off: str | None = None) -> None:
        super().__init__(off)
        self.setup = setup
        self.events: list[events.GenerationEvent] = []
        self._numbers: dict[str, int] = {}
        self._states: dict[Log, fold.State] = {}
        self._logs: dict[Hashable, Log] = {}
        self._after: dict[tuple[Log, int], Log] = {}
        self._views: dict[Log, View] = {}
        self._said: dict[tuple[Log, int, Record], bool | None] = {}
        self._asked: dict[tuple[Any, ...], int | Done | Wait | Refused] = {}

    def first(self, name: str, *args: Any) -> int:
        """Return one of the events that the log begins with."""
        ends = events.PartitionOffsets("intents", (0,))
        made: Mapping[str, Callable[..., events.GenerationEvent]] = {
            "genesis": lambda: events.Genesis(fold.FORMAT, "cluster", "generations-0", "intents", NOW),
            "started": lambda place: events.TransactionStarted(
                "o", "o", "o", TENANT, 1, None, None, place, ends, NOW
            ),
            "committed": lambda: events.TransactionCommitted(
                "o-commit", "o", "o", TENANT, 1, None, ends, NOW
            ),
        }
        return self._number(made[name](*args))

    def append(self, log: Log, event: int) -> Log:
        """Return the log with one more event: of logs that fold to the same the first one is taken for all.

        Offsets of the log are in no rule, and nothing is cut here: so such logs go on alike.
        """
        key = (log, event)
        if key not in self._after:
            longer = (*log, event)
            self._after[key] = self._logs.setdefault(self._digest(longer), longer)
        return self._after[key]

    def barrier(self, ends: int) -> int:
        """Return a barrier's event."""
        return self._number(events.Barrier("barrier", _ends(ends), None, NOW))

    def view(self, log: Log) -> View:
        """Return what the fold of a prefix of the log says."""
        if log not in self._views:
            owner = transaction_rules.transactions_of(self._fold(log), TENANT)
            numbers = range(len(self.setup.nodes) + 2)
            until = {each.number: each.until for each in owner}
            ends = (until.get(number) for number in numbers)
            self._views[log] = View(
                owner.newest or 0,
                owner.committed or 0,
                tuple(map(owner.status, numbers)),
                tuple(None if each is None else each[0] for each in ends),
            )
        return self._views[log]

    def known(self, log: Log, request: str) -> int | None:
        """Return the transaction that a request was granted, None while no event of it is valid."""
        found = self._fold(log).request(request)
        return None if found is None else found.granted[TENANT]

    def base(self, log: Log, number: int) -> int:
        """Return what a transaction builds on, as the issuer answers it."""
        return transaction_rules.transaction_of(self._fold(log), TENANT, number).base or 0

    def start(self, log: Log, handle: Handle, ends: int) -> int | Done | Wait | Refused:
        """Return the event that starts a transaction; Redis proposes the number after the newest."""
        newest = self.view(log).newest
        grant = events.Grant(TENANT, newest + 1, newest)
        call = StartTransaction(handle.node, TENANT, self.setup.place.value)
        return self._decide(log, call, handle.request, handle.node, ends, grant)

    def commit(self, log: Log, handle: Handle, ends: int) -> int | Done | Wait | Refused:
        """Return the event that commits a transaction, or what the call is answered."""
        deadlist = Ends("intents", [handle.ends]) if handle.ends else None
        call = CommitTransaction(TENANT, handle.transaction, handle.node, deadlist)
        return self._decide(log, call, f"{handle.request}-commit", handle.node, ends)

    def acknowledge(self, log: Log, handle: Handle, ends: int) -> int | Done | Wait | Refused:
        """Return the event that acknowledges a transaction, or what the call is answered."""
        call = AcknowledgeTransaction(TENANT, handle.transaction, handle.node)
        return self._decide(log, call, f"{handle.request}-acknowledge", handle.node, ends)

    def collect(self, log: Log, number: int, ends: int) -> int | Done | Wait | Refused:
        """Return the event that says that a transaction is collected, or what the call is answered."""
        return self._decide(log, CollectTransaction(TENANT, number), f"collect-{number}", "collector", ends)

    def said(self, log: Log, offset: int, record: Record) -> bool | None:
        """Return whether an intent passes as of the end of this prefix of the log; None: not yet."""
        key = (log, offset, record)
        if key not in self._said:
            self._said[key] = self._judge(self._fold(log), offset, record)
        return self._said[key]

    def deletes(self, record: Record, key: str) -> bool:
        """Return whether an intent deletes a key."""
        action = self._action(record)
        return action.may_delete(key) if isinstance(action, events.DeletePrefix) else key in action.keys

    def text(self, event: int) -> str:
        """Return an event in a word, for a trace."""
        found = self.events[event]
        return f"{type(found).__name__} {getattr(found, 'transaction', '')}".strip()

    def _judge(self, state: fold.State, offset: int, record: Record) -> bool | None:
        guard: events.Guard = events.PromiseGuard("discard")
        if record.wanted != PROMISED:
            guard = TransactionGuard(TENANT, record.transaction, TransactionState(record.wanted))
        intent = events.DeletionIntent("i", TENANT, NOW, "node", (guard,), self._action(record))
        subject = TransactionSubject(TENANT, record.transaction, 0)
        gathered = TransactionSubject.found()
        gathered.gather([answer] if (answer := subject.answer(state)) else [], [subject])
        facts = Facts("intents", state.log_offset, NOW, transactions=gathered.transactions)
        said = judge(intent, events.Position("intents", 0, offset), facts, PREFIXES)
        if isinstance(said, NotYet):
            return None
        return isinstance(said, events.Verdict) and said.result is events.VerdictResult.PASS

    def _action(self, record: Record) -> events.DeleteObjects | events.DeletePrefix:
        if not record.prefix:
            return events.DeleteObjects("bucket", (record.keys,))
        last = self.setup.place is events.NumberPlace.LAST
        return events.DeletePrefix(
            "bucket", record.keys[0], suffix=f".{record.transaction}" if last else None
        )

    def _decide(
        self, log: Log, call: Any, request: str, caller: str, ends: int, grant: events.Grant | None = None
    ) -> int | Done | Wait | Refused:
        key = (log, type(call), request, ends, getattr(call, "deadlist", None) and call.deadlist.offsets[0])
        if key not in self._asked:
            try:
                made = call.decide(self._fold(log), Made(request, caller, _ends(ends), NOW, grant))
            except RequestRefused as refused:
                made = Refused(refused.type)
            known = isinstance(made, Done | Wait | Refused)
            self._asked[key] = made if known else self._number(made)
        return self._asked[key]

    def _fold(self, log: Log) -> fold.State:
        state = self._states.get(log)
        if state is None:
            state = self._states[log] = fold.State()
            for offset, event in enumerate(log):
                fold.apply(state, offset, self.events[event])
        return state

    def _digest(self, log: Log) -> Hashable:
        state = self._fold(log)
        owner = transaction_rules.transactions_of(state, TENANT)
        kept = [
            (each.number, each.node, tuple(each.start), each.base, each.status, tuple(each.until or (-1,)))
            for each in owner
        ]
        requests = {getattr(self.events[event], "request_id", "") for event in log}
        known = [(each, self.known(log, each)) for each in sorted(requests)]
        granted = tuple(each for each in known if each[1] is not None)
        return (owner.newest, owner.committed, tuple(state.high), tuple(kept), granted)

    def _number(self, event: events.GenerationEvent) -> int:
        """Return the event's number: equal events have one, so that equal worlds are one."""
        number = self._numbers.setdefault(repr(event), len(self.events))
        if number == len(self.events):
            self.events.append(event)
        return number


def _ends(ends: int) -> events.PartitionOffsets:
    return events.PartitionOffsets("intents", (ends,))
