"""A transaction as the process holds it that started or resumed it (designs: MVCC transactions, writer)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Self, Unpack

from sexton.producers._deadlist import Deadlist
from sexton.producers._emitter import Emitter
from sexton.producers._errors import (
    CommitBegun,
    CommitRejected,
    IndexFateUnknown,
    IndexNotWritten,
)
from sexton.producers._intents import Asking, KeyTerms, intents_for
from sexton.producers._issuer import TransactionIssuer
from sexton.producers._limits import Deadline, Limits
from sexton.producers._receipt import Receipt
from sexton.producers._transaction_kept import KeptTransaction, Save
from sexton.producers._transaction_state import Call, Phase, State
from sexton.schemas import events
from sexton.schemas.errors import InvalidEvent, RequestRefused, UsageError

__all__ = ["Committed", "Transaction"]


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that was granted: the log offset that says so, and the ids of its intents.

    A commit that was resumed does not know the ids that its first process has sent.
    """

    log_offset: int
    intent_ids: tuple[str, ...]


class Transaction(KeptTransaction):
    """A numbered transaction of a tenant: visible as a whole once it has committed, and never before.

    Calls of one handle run one after another, also from several threads. It belongs to the process that
    started or resumed it: in a forked child it is closed.
    """

    def __init__(
        self,
        state: State,
        phase: Phase,
        emitter: Emitter,
        issuer: Callable[[], TransactionIssuer],
        persist: Save | None,
    ) -> None:
        super().__init__(state, phase, persist)
        self._emitter, self._issuer = emitter, issuer
        guard = events.TransactionGuard(state.tenant, state.transaction, events.TransactionState.COMMITTED)
        self._asking = Asking(state.tenant, state.node, (guard,))
        promise = events.PromiseGuard(f"discarded by transaction {state.transaction}")
        self._promising = Asking(state.tenant, state.node, (promise,))
        self._deadlist = Deadlist(emitter)
        self._horizons: dict[str, int] | None = None
        self._committed: Committed | None = None

    @property
    def limits(self) -> Limits:
        """The bounds of the connection's waits."""
        return self._emitter.limits

    def delete(
        self,
        bucket: str,
        keys: Iterable[str] | None = None,
        *,
        any_key: bool | None = None,
        **terms: Unpack[KeyTerms],
    ) -> None:
        """Put keys on the deadlist: they are deleted if and when this transaction commits.

        Nothing is sent before `commit`. Everything that can be wrong with the keys is found here. The index
        that this transaction commits must name none of them, nor any later one. Further arguments are those
        of `Tenant.delete`. Raises InvalidEvent, KeyReused, or the HandleUnusable that says why.
        """
        self._check(Call.DELETE)
        intents = intents_for(self._asking, bucket, keys, self._emitter, **terms)
        self._emitter.prepare(intents, any_key=any_key)
        with self._alone(self._deadline(None), threading.get_ident()):
            self._check(Call.DELETE)
            self._names.take(bucket, [intent.action.keys for intent in intents])
            self._deadlist.add(intents)

    def discard(
        self, bucket: str, keys: Iterable[str], *, timeout: float | None = None, any_key: bool | None = None
    ) -> Receipt:
        """Ask for own objects of this transaction to be deleted now, whether or not it commits.

        Each key carries this transaction's number, no upload of it is under way any more, and the last index
        that was acknowledged does not name it. That is a promise, and nobody asks again: such a name is
        never handed out again by `key`. Further arguments are those of `Tenant.delete`.

        Raises UsageError for a key that is not this transaction's own, and what `Tenant.delete` raises.
        """
        self._check(Call.DISCARD)
        intents = intents_for(self._promising, bucket, keys, self._emitter)
        prepared = self._emitter.prepare(intents, any_key=any_key)
        named = [intent.action.keys for intent in intents]
        deadline = self._deadline(timeout)
        with self._alone(deadline, threading.get_ident()):
            self._check(Call.DISCARD)
            self._require_own([key for run in named for key in run])
            gone = self._state.discarded
            if self._persist is not None:
                gone = self._state.without(key for run in named for key in run)
            self._names.take(bucket, named)
            # First: a twin that was paused before this would not know the names, and write them again.
            self._keep(Phase.OPEN, discarded=gone)
            return self._emitter.send(prepared, deadline.left(), self._release)

    def commit(
        self,
        put_index: Callable[[], object] | None = None,
        *,
        read_index: Callable[[], bool] | None = None,
        horizons: Mapping[str, int] | None = None,
        timeout: float | None = None,
    ) -> Committed:
        """Write the index, then the deadlist and `horizons`, then ask for this transaction to be visible.

        `put_index` is the service's own upload: what `Tenant.replace_index` says of `put` holds for it.
        `horizons` has the log position by timeline up to which a WAL may be trimmed. `timeout` bounds the
        waits before and after `put_index`, in seconds.

        **The index first**: with an index PUT of unknown fate nothing is emitted and nothing asked for;
        IndexFateUnknown is raised, and all that is left is `acknowledge`. Only a service whose index PUTs
        are conditional (If-Match or If-None-Match, so that of two at most one lands) gives `read_index`,
        which reads the index and returns True if it is the one that `put_index` writes, False if it is the
        one that this builds on, and raises otherwise. It is asked when the fate of a PUT is unknown: after
        True the commit goes on, after False IndexNotWritten is raised, and commit may be called again.

        **Once the deadlist may be out** nothing but this very commit, or `acknowledge`, is possible: after
        DeliveryFailed, DeliveryPending or QueueFull (these name the intents that Kafka has not acknowledged;
        nothing was asked for) and after IssuerUnavailable call it again. What is done is not done again:
        neither index nor acknowledged intents are written twice.

        Raises CommitRejected, which is final: end the uploads and call `acknowledge`. Also InvalidEvent,
        KafkaUnavailable, RequestRefused, StateNotSaved, and what `put_index` may raise.
        """
        asked = Call.COMMIT if read_index is None else Call.READ_AND_COMMIT
        with self._alone(self._deadline(timeout), threading.get_ident()):
            self._check(asked)
            horizon_intents = self._horizon_intents(horizons)
            if self._phase in _BEFORE_DEADLIST:
                self._write_index(put_index, read_index)
                self._phase = Phase.WRITTEN
                self._check(asked)  # a child that was forked meanwhile goes no further
                self._deadlist.add(horizon_intents)
                self._horizons = dict(horizons or {})
            if self._phase is Phase.WRITTEN and self._deadlist.intents:
                # What is out cannot be recalled: a twin that was paused until now must lose before it.
                self._keep(Phase.DEADLIST)
            if self._phase is not Phase.COMMIT and self._committed is None:
                behind = self._deadlist.deliver(self._deadline(timeout))
                # Before the question: whoever resumes must know what was asked for, to ask for nothing else.
                self._keep(Phase.COMMIT, deadlist=behind)
            return self._committed or self._ask()

    def acknowledge(self) -> int:
        """Say that every upload in the name of this transaction has ceased, and return the log offset.

        After CommitRejected, or to give the transaction up. What it wrote is deleted after this: no upload of
        its objects may be under way or begin any more, by no process. All else is refused from here on; the
        call itself may be repeated. Raises IssuerUnavailable, StateNotSaved, RequestRefused
        (`transaction-committed` where a commit of unknown answer was granted).
        """
        state = self._state
        with self._alone(self._deadline(None), threading.get_ident()):
            self._check(Call.ACKNOWLEDGE)
            if self._phase is not Phase.ACKNOWLEDGE:
                self._keep(Phase.ACKNOWLEDGE)
            try:
                return self._issuer().acknowledge_transaction(state.tenant, state.transaction, state.node)
            except RequestRefused as error:
                if error.type == "transaction-committed":
                    self._phase = Phase.OVER
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._phase is Phase.OPEN:
            self._phase = Phase.LEFT

    def _write_index(
        self, put_index: Callable[[], object] | None, read_index: Callable[[], bool] | None
    ) -> None:
        before = self._phase
        if before is not Phase.OPEN:
            if self._stands(read_index):
                return
            if before is Phase.TORN:
                raise self._unknown("the index that was acknowledged is not the one that stands")
        if put_index is None:
            raise UsageError("an index is to be written first", hint="commit(put_index)")
        self._keep(Phase.PUT)
        try:
            with self._writing(threading.get_ident()):
                result = put_index()
            self._acknowledged(result)
        except IndexNotWritten:
            self._phase = before
            raise
        except IndexFateUnknown as error:
            if read_index is None:
                raise
            if not self._stands(read_index):
                raise IndexNotWritten("the index that stands is the one before", hint=_AGAIN) from error

    def _stands(self, read_index: Callable[[], bool] | None) -> bool:
        """Return whether the index of this commit was written; raises IndexFateUnknown if nobody knows."""
        try:
            found = None if read_index is None else read_index()
        except Exception as error:
            raise self._unknown(f"the index was not read back: {type(error).__name__}: {error}") from error
        if not isinstance(found, bool):
            raise self._unknown(f"read_index must return True or False: {type(found).__name__}")
        return found

    def _horizon_intents(self, horizons: Mapping[str, int] | None) -> list[events.DeletionIntent]:
        if self._horizons is not None and self._phase not in _BEFORE_DEADLIST:
            if horizons is not None and dict(horizons) != self._horizons:
                raise CommitBegun(f"other horizons than those that {self._name} has begun to commit with")
            return []
        if not isinstance(horizons, Mapping | None):
            kind = type(horizons).__name__
            raise InvalidEvent(f"horizons map timelines to log positions, not of type {kind}")
        now = datetime.now(UTC)
        intents = [
            self._asking.intent(
                self._emitter.new_id(), now, events.AdvanceHorizon(timeline, lsn), guards=(), vetoes=()
            )
            for timeline, lsn in (horizons or {}).items()
        ]
        self._emitter.prepare(intents)
        return intents

    def _ask(self) -> Committed:
        state = self._state
        try:
            offset = self._issuer().commit_transaction(
                state.node, state.tenant, state.transaction, state.deadlist
            )
        except RequestRefused as error:
            if error.type != "transaction-rejected":
                raise
            self._phase = Phase.REJECTED
            raise CommitRejected(str(error), hint="end its uploads, then acknowledge()") from error
        self._phase = Phase.COMMITTED
        ids = tuple(intent.intent_id for intent in self._deadlist.intents)
        self._committed = Committed(offset, ids)
        return self._committed

    def _require_own(self, keys: Iterable[str]) -> None:
        if not self._own.prefix:
            raise UsageError(
                "discard needs the tenant's prefix", hint='transaction(..., prefix="tenants/t/")'
            )
        for key in keys:
            if not self._own.carries(key):
                raise InvalidEvent(f"not a key of {self._name}: {key!r:.80}", hint="delete() is for others")

    def _release(self, failed: events.DeletionIntent) -> None:
        # May be named again, in another intent; it is still never handed out by `key`.
        if failed.action.place is not None:
            self._names.allow_again(failed.action.place, failed.action.keys)

    def _deadline(self, timeout: float | None) -> Deadline:
        return Deadline(self.limits.call_timeout if timeout is None else timeout)


_BEFORE_DEADLIST = (Phase.OPEN, Phase.PUT, Phase.TORN)
_AGAIN = "commit again: of two conditional PUTs at most one lands"
