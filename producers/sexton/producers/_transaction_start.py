"""How a transaction's handle comes to be: started, or resumed from what a service has kept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, cast

from sexton.producers._emitter import Emitter
from sexton.producers._fork import OfOneProcess
from sexton.producers._issuer import Issuer, TransactionIssuer
from sexton.producers._polling import are_eventlets
from sexton.producers._transaction import Transaction
from sexton.producers._transaction_kept import Save, check_save
from sexton.producers._transaction_names import check_prefix
from sexton.producers._transaction_state import Phase, State, resumed
from sexton.schemas.checks import check_tenant
from sexton.schemas.errors import UsageError
from sexton.schemas.events import NumberPlace

__all__ = ["StartsTransactions"]


class StartsTransactions(OfOneProcess):
    """The calls of a connection that give out handles of transactions."""

    _node: str
    _emitter: Emitter

    @abstractmethod
    def _open(self) -> None:
        """Raise ConnectionClosed after the end."""

    @abstractmethod
    def _authority(self) -> Issuer:
        """Return the issuer."""

    def transaction(
        self,
        tenant: str,
        *,
        prefix: str = "",
        number_place: str = "last",
        persist: Save | None = None,
    ) -> Transaction:
        """Start a tenant's next transaction and return its handle, for a `with` block.

        Every other open transaction of the tenant is rejected by it. Read the tenant's index, that of
        `last_committed`, only after this has returned. `prefix` is the tenant's, below which all its keys
        are. `number_place` is where they carry the number, fixed by the tenant's first transaction: `last`
        (`name.23`; then no name below the prefix has a number as its first segment), or `first`, in the
        first segment below the prefix.

        With `persist` the service keeps the transaction's state, to resume it after a restart: `Save` says
        what that function has to do. It is called before anything is sent that the next process must know of.

        Raises IssuerUnavailable, RequestRefused (for example `number-place-fixed`), StateNotSaved,
        UsageError.
        """
        place = _place(number_place)
        check_tenant(tenant)
        check_save(persist)
        check_prefix(prefix, place)
        self._open_transactions()
        grant = self._transaction_issuer().start_transaction(self._node, tenant, number_place=place)
        started = State(tenant, grant.transaction, self._node, grant.last_committed, prefix, place)
        return self._hold(started, Phase.OPEN, persist)

    def resume_transaction(
        self,
        state: Mapping[str, Any] | None,
        *,
        persist: Save | None = None,
        tenant: str | None = None,
        transaction: int | None = None,
    ) -> Transaction:
        """Return a handle of a transaction that an earlier process of this node has started.

        `state` is what `persist` was given last. It is saved as the next version before anything else, so
        that the earlier process, should it still live, sends nothing more. What the handle can do follows
        from the state: where nothing was under way it goes on; where an index PUT was, or the deadlist was
        on its way, it can only `acknowledge` (or, where index PUTs are conditional, `commit` with
        `read_index`; the deadlist is to be named again before); where the commit was asked for, it can only
        repeat that commit, or `acknowledge`. Collected keys are not part of the state.

        With no state, `tenant` and `transaction` say which one it is, and it can only `acknowledge`.

        Raises StateNotSaved, UsageError.
        """
        check_save(persist)
        self._open_transactions()
        if state is None:
            if tenant is None or transaction is None:
                raise UsageError("without a state: resume_transaction(None, tenant=..., transaction=...)")
            lost = State(check_tenant(tenant), transaction, self._node, None, "", NumberPlace.LAST)
            return self._hold(lost, Phase.LOST, None)
        if tenant is not None or transaction is not None:
            raise UsageError("a state says itself whose it is: no tenant, no transaction beside it")
        if persist is None:
            raise UsageError("a transaction is resumed by who can save its state", hint="persist=save")
        kept = State.from_dict(state)
        if kept.node != self._node:
            raise UsageError(
                f"transaction {kept.transaction} of {kept.tenant} is another node's: {kept.node}",
                hint="connect under that node's name where its process does not run any more",
            )
        return self._hold(kept, resumed(kept.phase), persist)

    def _hold(self, state: State, phase: Phase, persist: Save | None) -> Transaction:
        handle = Transaction(state, phase, self._emitter, self._transaction_issuer, persist)
        handle.keep_first()
        return handle

    def _open_transactions(self) -> None:
        self._open()
        if are_eventlets():
            # A commit asks the brokers which topic it is, by a client that answers from its own thread.
            raise UsageError("there are no transactions under eventlet", hint="gevent, or real threads")

    def _transaction_issuer(self) -> TransactionIssuer:
        return cast(TransactionIssuer, self._authority())


def _place(name: str) -> NumberPlace:
    try:
        return NumberPlace(name)
    except ValueError as error:
        raise UsageError(f"number_place must be first or last: {name!r}") from error
