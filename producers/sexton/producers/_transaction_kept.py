"""What a transaction's handle keeps, what it is called, and what it refuses."""

from __future__ import annotations

import concurrent.futures
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sexton.producers._errors import HandleUnusable, KeyReused, StateNotSaved, TransactionLost
from sexton.producers._fork import notice_fork, renew_after_fork
from sexton.producers._names import Names
from sexton.producers._transaction_names import OwnNames
from sexton.producers._transaction_state import Call, Phase, State, digest, refusal
from sexton.producers._turn import OneAtATime
from sexton.schemas.errors import UsageError

__all__ = ["KeptTransaction", "Save", "check_save", "is_saved"]

Save = Callable[[dict[str, Any], int], object]
"""A service's own compare-and-set of a transaction's state: `save(state, version)`.

It stores `state` if what is stored for this tenant and number is of version `version - 1` (nothing for 1).
Otherwise it raises, or returns something false that is not None, such as False or 0.
"""


class KeptTransaction(OneAtATime):
    """A transaction whose state the service keeps, if it gave a `save`: each step before anything is sent."""

    _after_unknown = "commit again with read_index where index PUTs are conditional; else acknowledge()"

    def __init__(self, state: State, phase: Phase, persist: Save | None) -> None:
        super().__init__()
        self._state, self._phase, self._persist = state, phase, persist
        self._own = OwnNames(state.prefix, state.transaction, state.number_place)
        self._names = Names(self._own.ending)
        self._closed: HandleUnusable | None = None
        renew_after_fork(self)

    @property
    def tenant(self) -> str:
        """The tenant's name."""
        return self._state.tenant

    @property
    def id(self) -> int:
        """The number of this transaction, which nobody else has."""
        return self._state.transaction

    @property
    def last_committed(self) -> int | None:
        """The number of the transaction that this one builds on, None for a tenant's first."""
        return self._state.last_committed

    def key(self, name: str) -> str:
        """Return the key under which this transaction writes an object: `<prefix>name.23`.

        Where keys carry the number first it is `<prefix>23/name`. Raises KeyReused when an intent of this
        transaction has named it, or may have (it is never written again), InvalidEvent when it may not be a
        key, or the HandleUnusable that says why nothing is written any more.
        """
        self._check(Call.KEY)
        key = self._own.key(name)
        self._names.check_fresh(key)
        if digest(key) in self._state.discarded:
            raise KeyReused(f"this transaction has discarded the key, it is never written again: {key}")
        return key

    def prefix(self, name: str = "") -> str:
        """Return the prefix of this transaction's objects in a folder, or of all: `<prefix>23/name/`.

        Raises UsageError where keys carry the number last: no prefix has one transaction's objects alone.
        """
        return self._own.folder(name)

    def visible(self, name: str) -> str:
        """Return the key under which the last committed transaction wrote an object: `<prefix>name.22`.

        Only for names that this transaction itself wrote, as parts of its index: every other key comes from
        the index. Raises UsageError when the tenant has no committed transaction.
        """
        if self.last_committed is None:
            raise UsageError(f"the tenant has no committed transaction: {self.tenant}")
        return replace(self._own, number=self.last_committed).key(name)

    def end(self, why: HandleUnusable) -> None:
        """Nothing: that an index PUT is under way stands in the state since before it."""

    def renew(self) -> None:
        """In a forked child: it is the parent's, which may be writing its index at this moment."""
        super().renew()
        self._close(TransactionLost(f"{self._name} belongs to the process that began it", hint=_IN_A_CHILD))

    def __repr__(self) -> str:
        return f"Transaction({self.tenant!r}, {self.id}, {self._phase.value})"

    @property
    def _name(self) -> str:
        return f"transaction {self.id} of {self.tenant}"

    def keep_first(self) -> None:
        """Have the service keep the state that this handle begins with; raises StateNotSaved."""
        phase = self._phase
        self._keep(self._state.phase)
        self._phase = phase

    def _keep(self, phase: Phase, **changes: Any) -> None:
        """Have the service keep a state, before anything is sent for it; closes the handle if it does not."""
        state = self._state.next(phase, **changes)
        if self._persist is not None:
            why = StateNotSaved(f"the state of {self._name} was not saved, nothing is sent", hint=_RESUME)
            try:
                saved = self._persist(state.to_dict(), state.version)
            except BaseException as error:
                self._close(why)
                if isinstance(error, Exception):
                    raise why from error
                raise
            if not is_saved(saved):
                self._close(why)
                raise why
        self._state, self._phase = state, phase

    def _check(self, call: Call) -> None:
        notice_fork()
        if self._closed is not None:
            raise type(self._closed)(str(self._closed), hint=self._closed.hint)
        if (why := refusal(self._phase, call, self._name)) is not None:
            raise why

    def _close(self, why: HandleUnusable) -> None:
        self._phase, self._closed = Phase.CLOSED, self._closed or why


_RESUME = "resume it from the state that is stored"
_IN_A_CHILD = "start transactions after the fork, or resume this one there from its state"


def check_save(persist: object) -> None:
    """Raise UsageError for a `persist` that cannot be called: nothing of the transaction would be kept."""
    if persist is not None and not callable(persist):
        raise UsageError(f"persist must be a function that saves: {persist!r:.80}", hint="persist=save")


def is_saved(answer: object) -> bool:
    """Return whether a service's `save` has saved: it returned, and neither False, 0 nor what is awaited."""
    if inspect.iscoroutine(answer):
        answer.close()
    if inspect.isawaitable(answer) or isinstance(answer, concurrent.futures.Future):
        return False
    return answer is None or bool(answer)
