"""A tenant as one attachment holds it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Unpack

from sexton.producers._emitter import Emitter, Prepared
from sexton.producers._errors import Detached, HandleUnusable, IndexNotWritten
from sexton.producers._fork import renew_after_fork
from sexton.producers._intents import Asking, KeyTerms, intents_for
from sexton.producers._limits import Deadline, Limits
from sexton.producers._names import Names
from sexton.producers._receipt import Receipt
from sexton.producers._turn import OneAtATime
from sexton.producers._values import check_text
from sexton.schemas import events
from sexton.schemas.checks import check_keys
from sexton.schemas.errors import UsageError
from sexton.schemas.generations import PackedGeneration, suffix

__all__ = ["IndexTurn", "Tenant"]


class IndexTurn:
    """One index PUT: what it has returned, and the receipt of what was emitted after it."""

    __slots__ = ("receipt", "result")

    def __init__(self) -> None:
        self.result: object = None
        self.receipt = Receipt(())


class Tenant(OneAtATime):
    """A tenant, bound for ever to the generation of one attachment.

    Calls of one handle run one after another, also from several threads: an index PUT in flight is of unknown
    outcome to everybody else. Once the handle is superseded, detached or poisoned, each call says so.
    """

    _after_unknown = "re-attach and use the new handle: its index has another name"

    def __init__(
        self,
        name: str,
        generation: int,
        node: str,
        emitter: Emitter,
        detach: Callable[[str], object],
        bucket: str | None = None,
        packed: PackedGeneration | None = None,
    ) -> None:
        super().__init__()
        self._name = name
        self._generation = generation
        self._packed = packed
        if packed is None:
            self._suffix = suffix(generation)
            guard = events.GenerationGuard(name, generation)
        else:
            self._suffix = packed.suffix
            guard = events.GenerationGuard(name, generation, node, packed.node_generation)
        self._asking = Asking(name, node, (guard,))
        self._emitter = emitter
        self._detach = detach
        self._bucket = bucket
        self._names = Names(self._suffix)
        self._end: HandleUnusable | None = None
        renew_after_fork(self)

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self._name

    @property
    def generation(self) -> int:
        """The generation of this attachment."""
        return self._generation

    @property
    def limits(self) -> Limits:
        """The limits of the connection."""
        return self._emitter.limits

    @property
    def packed(self) -> PackedGeneration | None:
        """The packed generation of a tenant of the first form, None for the final form."""
        return self._packed

    def key(self, name: str) -> str:
        """Return `name` with this attachment's suffix: `layer-1` -> `layer-1-00000008`.

        Raises KeyReused when an intent of this handle has named that key (it is never written again), or may
        have: beyond the latest 100,000 names these are known by a filter, which errs on the safe side.
        InvalidEvent when it may not be a key.
        """
        check_text(name)
        key = name + self._suffix
        check_keys((key,))
        self._names.check_fresh(key)
        return key

    def delete(
        self,
        bucket: str,
        keys: Iterable[str] | None = None,
        *,
        timeout: float | None = None,
        any_key: bool | None = None,
        **terms: Unpack[KeyTerms],
    ) -> Receipt:
        """Ask for keys to be deleted, if this attachment is still the newest when the intent is written.

        **Before the call** the service must have written an index that names none of `keys`, that PUT must
        have been acknowledged, and no earlier index PUT of this attachment may be of unknown outcome (timed
        out, connection lost, still running). `replace_index` does all of it in the right order.

        The keys may be of any generation, each a full key. Each is named once, as far as the handle remembers
        (its latest 100,000), and never written again. Returns at once with a receipt; `timeout` bounds the
        wait for room in the queue, in seconds. Nothing is sent if one key is bad; one that is a URI or begins
        with a slash is, unless with `any_key`.

        Keyword arguments beside these are `phases` (in place of `keys`), `pause_s`, `unchanged`,
        `not_before`, `expires_at` and `vetoes`: KeyTerms says what each asks for.

        Raises InvalidEvent, KeyReused, QueueFull, ProducerFailed, ConnectionClosed, or the HandleUnusable
        that says why this handle emits nothing more.
        """
        deadline = Deadline(self._emitter.limits.call_timeout if timeout is None else timeout)
        prepared = self._prepare(bucket, keys, any_key, **terms)
        with self._alone(deadline, threading.get_ident()):
            self._usable()
            self._names.take(bucket, _keys(prepared))
            return self._emitter.send(prepared, deadline.left(), self._release)

    def replace_index(
        self,
        put: Callable[[], object],
        unlinked: Iterable[str] | None = None,
        *,
        bucket: str | None = None,
        timeout: float | None = None,
        any_key: bool | None = None,
        **terms: Unpack[KeyTerms],
    ) -> Receipt:
        """Write an index with the service's own `put`, then ask for what it no longer names.

        `put` takes no argument, writes an index without the `unlinked` keys (its name ends in this
        attachment's suffix) and returns only when the store has acknowledged it. Whatever it raises means
        that nobody knows whether the index was written or may still land: the handle emits nothing more and
        IndexFateUnknown is raised; re-attach, and write the index under the new generation's name. The one
        exception is `IndexNotWritten`, for `put` to raise when the index was certainly not written: then
        nothing is emitted, the error comes through, and the handle stays good.

        `bucket` is where the keys are, the connection's own bucket if not given; `delete` has the other
        arguments.
        Everything that can be wrong with the keys is found before `put` is called. `put` brings its own
        deadline; `timeout` bounds the waits before and after it, in seconds. If sending fails after the index
        was written the keys are leaked, not lost: call `delete` with them.

        Raises what `delete` raises, IndexFateUnknown, IndexNotWritten.
        """
        here = threading.get_ident()
        with self.replacing(unlinked, here, bucket, timeout, any_key, **terms) as turn:
            turn.result = put()
        return turn.receipt

    @contextmanager
    def replacing(
        self,
        unlinked: Iterable[str] | None,
        thread: int | None,
        bucket: str | None,
        timeout: float | None,
        any_key: bool | None,
        **terms: Unpack[KeyTerms],
    ) -> Iterator[IndexTurn]:
        """Have the block write the index, and emit once it has; the turn has the receipt afterwards.

        What `replace_index` says of `put` holds for the block. `thread` is the one that runs it, None for a
        task: that may begin and end the block in different threads.
        """
        bucket = bucket or self._bucket
        if bucket is None:
            raise UsageError(
                "no bucket is given", hint="replace_index(..., bucket=...) or connect(bucket=...)"
            )
        wait = self._emitter.limits.call_timeout if timeout is None else timeout
        prepared = self._prepare(bucket, unlinked, any_key, **terms)
        with self._alone(Deadline(wait), _TASK if thread is None else thread):
            self._usable()
            fresh = self._names.take(bucket, _keys(prepared))
            turn = IndexTurn()
            try:
                with self._writing(_TASK if thread is None else thread):
                    yield turn
            except IndexNotWritten:
                self._names.give_back(bucket, _keys(prepared), fresh)
                raise
            self._acknowledged(turn.result)
            self._usable()  # a re-attach during the PUT: these intents would be stale
            turn.receipt = self._emitter.send(prepared, wait, self._release)

    def detach(self) -> None:
        """Give the tenant back; the handle emits nothing more.

        What it has emitted stays valid: the generation is the newest until the next attach.
        Raises IssuerUnavailable, RequestRefused.
        """
        with self._alone(Deadline(self._emitter.limits.call_timeout), threading.get_ident()):
            self._usable()
            self._detach(self._name)
            self.end(Detached(f"the tenant was detached: {self._name}"))

    def end(self, why: HandleUnusable) -> None:
        """Let the handle emit nothing more; the first reason stays."""
        if self._end is None:
            self._end = why

    def __repr__(self) -> str:
        state = f", {type(self._end).__name__}" if self._end else ""
        return f"Tenant({self._name!r}, generation={self._generation}{state})"

    def _prepare(
        self, bucket: str, keys: Iterable[str] | None, any_key: bool | None, **terms: Unpack[KeyTerms]
    ) -> list[Prepared]:
        intents = intents_for(self._asking, bucket, keys, self._emitter, **terms)
        return self._emitter.prepare(intents, any_key=any_key)

    def _release(self, failed: events.DeletionIntent) -> None:
        # May be named again, in another intent; it is still never handed out by `key`.
        if failed.action.place is not None:
            self._names.allow_again(failed.action.place, failed.action.keys)

    def _usable(self) -> None:
        if self._end is not None:
            raise type(self._end)(str(self._end), hint=self._end.hint)


_TASK = -1  # in place of a thread


def _keys(prepared: Sequence[Prepared]) -> list[Sequence[str]]:
    return [one.intent.action.keys for one in prepared]
