"""A node's connection: attachments, promises, and the end in time."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, Unpack, cast

from sexton.producers._emitter import Emitter, Statistics
from sexton.producers._errors import ConnectionClosed, DeliveryFailed, Detached, HandleUnusable, Superseded
from sexton.producers._fork import notice_fork, renew_after_fork
from sexton.producers._handle import Tenant
from sexton.producers._intents import Asking, KeyTerms, PrefixTerms, intents_for, prefix_intent
from sexton.producers._issuer import FirstFormIssuer, Issuer, open_issuer
from sexton.producers._limits import Limits
from sexton.producers._receipt import Receipt
from sexton.producers._sequenced import SequencedWriter, sequenced
from sexton.producers._settings import with_arguments
from sexton.producers._transaction_start import StartsTransactions
from sexton.schemas import events
from sexton.schemas.checks import MAX_TENANT_BYTES, check_tenant
from sexton.schemas.errors import InvalidEvent, RequestRefused, UsageError
from sexton.schemas.events import GenerationForm
from sexton.schemas.generations import PackedGeneration
from sexton.schemas.settings import Settings

__all__ = ["Sexton", "generation_form"]

_log = logging.getLogger(__name__)


class Sexton(StartsTransactions):
    """A node's connection to Kafka and the issuer; use it in a `with` block, or call `close`.

    Safe to share between threads. After a fork parent and child each have a connection of their own: what was
    on its way at that moment is delivered by the parent.
    """

    def __init__(
        self,
        node: str,
        emitter: Emitter,
        settings: Settings,
        issuer: Issuer | None = None,
        bucket: str | None = None,
        form: GenerationForm = GenerationForm.FINAL,
        number: int | None = None,
    ) -> None:
        check_tenant(node)
        self._form, self._number = form, number
        self._registration: Any = None
        self._registering = threading.RLock()
        self._node = node
        self._bucket = bucket
        self._emitter = emitter
        self._settings = settings
        self._given_issuer = self._issuer = issuer
        # A handle that nobody holds any more emits nothing, and needs no end.
        self._handles: weakref.WeakValueDictionary[str, Tenant] = weakref.WeakValueDictionary()
        self._lock = threading.RLock()
        self._undelivered: tuple[str, ...] | None = None
        self._closing = False
        renew_after_fork(self)

    @classmethod
    def connect(
        cls,
        node: str,
        settings: Settings | None = None,
        *,
        limits: Limits | None = None,
        issuer: Issuer | None = None,
        bucket: str | None = None,
        form: str = "final",
        number: int | None = None,
        any_key: bool = False,
        **overrides: Any,
    ) -> Self:
        """Return a connection for a node; nothing is contacted before the first call.

        `node` is the name by which the issuer knows this process' place; two running processes must not share
        it. `settings` are those of the environment (`SEXTON_...`) if not given, `overrides` single settings
        on top, for example `issuer_url=...`. `issuer` replaces the HTTP client. `bucket` is where
        `replace_index` deletes unless another one is given.

        With `form="first"` the node registers before its first attach: it gets a node generation under its
        `number` (0 to 65535, chosen by the issuer if not given), tenants that are new take the first form,
        and keys and guards carry all three parts. RequestRefused of type `stale-node` then means that the
        node has been started again elsewhere: this process must stop.

        Keys that are URIs or begin with a slash are refused as a likely mistake, unless with `any_key`, here
        or in a single call.

        Raises InvalidSettings, InvalidEvent for a node without a name.
        """
        limits = limits or Limits()
        settings = with_arguments(settings, overrides)
        emitter = Emitter.open(settings, limits, any_key=any_key)
        return cls(node, emitter, settings, issuer, bucket, generation_form(form), number)

    def _registered(self) -> Any:
        """Register once for this connection; what is handed out later is bound to that registration."""
        issuer = cast(FirstFormIssuer, self._authority())
        with self._registering:
            if self._registration is None:
                self._registration = issuer.register_node(self._node, self._number)
            return self._registration

    @contextmanager
    def _unless_stale(self) -> Iterator[None]:
        try:
            yield
        except RequestRefused as error:
            if error.type == "stale-node":
                for name in list(self._handles):
                    self._end(name, Superseded(f"the node has been started again elsewhere: {self._node}"))
            raise

    @property
    def node(self) -> str:
        """The node's name."""
        return self._node

    def attach(self, tenant: str) -> Tenant:
        """Take a tenant and return its handle, bound to a generation that nobody else has.

        Read the tenant's index only after this has returned. An older handle of the tenant is superseded.
        Raises IssuerUnavailable, RequestRefused (for example a dropped tenant), InvalidEvent.
        """
        check_tenant(tenant)
        self._open()
        if self._form is GenerationForm.FINAL:
            attached = self._authority().attach(self._node, tenant)
            return self._hand_out(tenant, attached.generation, None)
        registration = self._registered()
        with self._unless_stale():
            issuer = cast(FirstFormIssuer, self._authority())
            attached = issuer.attach(self._node, tenant, registration=registration)
        return self._hand_out(tenant, attached.generation, attached.packed)

    def re_attach(self) -> dict[str, Tenant]:
        """Take a new generation of every tenant that the issuer says this node holds, after a (re)start.

        Returns new handles by tenant. All older handles are superseded, also those of tenants that are not in
        the answer: they have moved to another node. Raises IssuerUnavailable, RequestRefused.
        """
        self._open()
        held = self._take_all()
        for name in set(self._handles) - set(held):
            self._end(name, Superseded(f"the tenant is no longer held by {self._node}: {name}"))
        return {name: self._hand_out(name, *parts) for name, parts in held.items()}

    def _take_all(self) -> dict[str, tuple[int, PackedGeneration | None]]:
        if self._form is GenerationForm.FINAL:
            return {name: (g, None) for name, g in self._authority().re_attach(self._node).items()}
        registration = self._registered()
        with self._unless_stale():
            issuer = cast(FirstFormIssuer, self._authority())
            attached = issuer.re_attach_all(self._node, registration=registration)
        return {each.tenant: (each.generation, each.packed) for each in attached}

    def promise_delete(
        self,
        bucket: str,
        keys: Iterable[str] | None = None,
        *,
        operation: str,
        tenant: str | None = None,
        timeout: float | None = None,
        any_key: bool | None = None,
        **terms: Unpack[KeyTerms],
    ) -> Receipt:
        """Ask for keys to be deleted that their owner has given up for good, whoever is attached.

        No generation is asked for: the promise is that nobody will ever read or write these keys again.
        `operation` names the decision, for people; `tenant` whose data it was (default: the operation).
        Further arguments are those of `Tenant.delete`.
        Raises InvalidEvent, QueueFull, ProducerFailed, ConnectionClosed.
        """
        intents = intents_for(self._promise(operation, tenant), bucket, keys, self._emitter, **terms)
        return self._emitter.emit(intents, timeout, any_key=any_key)

    def promise_delete_prefix(
        self,
        bucket: str,
        prefix: str,
        *,
        operation: str,
        tenant: str | None = None,
        drop: bool = False,
        tombstone: str | None = None,
        timeout: float | None = None,
        any_key: bool | None = None,
        **terms: Unpack[PrefixTerms],
    ) -> Receipt:
        """Ask for everything under a prefix to be deleted, which its owner has given up for good.

        The prefix ends in `/`. Nobody may write under it any more. With `drop` the tenant is dropped at the
        issuer first, so that no generation is ever handed out for it again: for the end of a whole tenant.
        `tombstone` names an object that goes last; further arguments are `suffix`, `written_before`,
        `not_before`, `expires_at` and `vetoes`: PrefixTerms says what each asks for.
        Raises InvalidEvent, QueueFull, ProducerFailed, ConnectionClosed; with `drop` IssuerUnavailable and
        RequestRefused, and then nothing was sent.
        """
        if drop and tenant is None:
            raise UsageError("drop=True needs the tenant's name")
        asking = self._promise(operation, tenant)
        intent = prefix_intent(asking, bucket, prefix, self._emitter, tombstone=tombstone, **terms)
        prepared = self._emitter.prepare([intent], any_key=any_key)
        if drop and tenant is not None:
            # First: while a successor could still be issued, somebody could write under the prefix.
            self._open()
            self._authority().drop(tenant)
            self._end(tenant, Detached(f"the tenant was dropped: {tenant}"))
        return self._emitter.send(prepared, timeout)

    def sequenced(
        self,
        s3: Any,
        bucket: str,
        root: str,
        name: str,
        *,
        nonce_of: Callable[[bytes], str | None] | None = None,
    ) -> SequencedWriter:
        """Return a writer of sequenced metadata: `sexton.producers.sequenced`, which needs no connection."""
        return sequenced(s3, bucket, root, name, nonce_of=nonce_of)

    def statistics(self) -> Statistics:
        """Return how many intents were emitted; they add up: delivered + failed + pending."""
        return self._emitter.statistics()

    def flush(self, timeout: float) -> int:
        """Wait until nothing is on its way, at most `timeout` seconds; return how many intents still are."""
        return self._emitter.flush(timeout)

    def close(self, timeout: float | None = None) -> tuple[str, ...]:
        """Deliver what can be delivered in `timeout` seconds and return the ids of intents that were not.

        An id in the result was not acknowledged; after a timeout it may nevertheless be in the log. Keys that
        were not delivered are leaked, never lost. Of those that failed before the call the latest 100,000 are
        named; `statistics` counts all. A second call returns the same; while the first still runs, in another
        thread or under a signal handler, it waits as long as it may itself.
        """
        notice_fork()
        limit = self._emitter.limits.close_timeout if timeout is None else timeout
        with self._lock:
            is_first, self._closing = not self._closing, True
        if self._undelivered is not None:
            return self._undelivered
        if not is_first:
            return self._emitter.settle(limit)
        try:
            self._undelivered = self._emitter.close(limit)
            close = getattr(self._issuer, "close", None)
            if self._issuer is not self._given_issuer and close is not None:
                close()
        finally:
            self._closing = False  # if it was interrupted, the next one closes
        return self._undelivered

    def renew(self) -> None:
        """In a forked child: what the parent's threads have locked stays locked, and closed by nobody."""
        self.relock()
        self._closing = False

    def relock(self) -> None:
        """Put fresh locks in place; a signal handler may call what its thread is in the middle of."""
        self._lock = threading.RLock()
        self._registering = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        undelivered = self.close()
        if undelivered and kind is None:
            first = self._emitter.first_failure
            message = f"intents not delivered: {self.statistics().failed}: {first or undelivered[0]}"
            raise DeliveryFailed(message, undelivered, hint=first.hint if first else None)
        if undelivered:  # the error that is on its way does not tell of them
            _log.warning("intents not delivered: %d: %s", self.statistics().failed, undelivered[0])

    def __repr__(self) -> str:
        return f"Sexton(node={self._node!r}, tenants={len(self._handles)})"

    def _authority(self) -> Issuer:
        with self._lock:
            if self._issuer is None:
                self._issuer = open_issuer(self._settings)
            return self._issuer

    def _open(self) -> None:
        notice_fork()
        if self._undelivered is not None:
            raise ConnectionClosed()

    def _hand_out(self, name: str, generation: int, packed: PackedGeneration | None) -> Tenant:
        self._end(name, Superseded(f"attached anew as generation {generation}: {name}"))
        handle = Tenant(name, generation, self._node, self._emitter, self._give_back, self._bucket, packed)
        self._handles[name] = handle
        return handle

    def _give_back(self, tenant: str) -> int:
        self._open()
        if self._registration is None:
            return self._authority().detach(self._node, tenant)
        # A stale registration may not give back what its successor holds.
        issuer: Any = self._authority()
        return int(issuer.detach(self._node, tenant, registration=self._registration))

    def _end(self, name: str, why: HandleUnusable) -> None:
        handle = self._handles.pop(name, None)
        if handle is not None:
            handle.end(why)

    def _promise(self, operation: str, tenant: str | None) -> Asking:
        try:
            owner = check_tenant(operation if tenant is None else tenant)
        except InvalidEvent as error:
            if tenant is not None:
                raise InvalidEvent(f"tenant: {error}") from error
            message = f"operation must be text of 1 to {MAX_TENANT_BYTES} bytes in UTF-8: {operation!r:.80}"
            raise InvalidEvent(message) from error
        return Asking(owner, self._node, (events.PromiseGuard(operation),))


def generation_form(form: str) -> GenerationForm:
    """Return the form of that name; raises UsageError for another one."""
    try:
        return GenerationForm(form)
    except ValueError as error:
        raise UsageError(f"form must be final or first: {form!r}") from error
