"""What a caller holds of intents that are on their way."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError

from sexton.producers._errors import DeliveryFailed, DeliveryPending
from sexton.producers._fork import OfOneProcess
from sexton.producers._transport import Delivered
from sexton.schemas.text import counted

__all__ = ["Flight", "Receipt"]


class Flight:
    """An intent between the call and its report; the future is only made when somebody asks for it.

    Report and question may come from two threads at once. Each first writes its own part and then reads the
    other's, so at least one of them sees both and settles the future; no lock is needed, which a fork could
    leave held.
    """

    __slots__ = ("_error", "_future", "_landed", "_where", "intent_id")

    def __init__(self, intent_id: str, landed: Callable[[Flight, DeliveryFailed | None], bool]) -> None:
        self.intent_id = intent_id
        self._landed = landed
        self._where: Delivered | None = None
        self._error: DeliveryFailed | None = None
        self._future: dict[str, Future[Delivered]] = {}

    @property
    def future(self) -> Future[Delivered]:
        """The intent's future, always the same."""
        future = self._future.setdefault("it", Future())
        self._settle()
        return future

    @property
    def has_failed(self) -> bool:
        """Return whether Kafka has refused it, or nobody knows."""
        return self._error is not None

    @property
    def done(self) -> bool:
        """Return whether Kafka has reported."""
        return self._where is not None or self._error is not None

    def delivered(self, where: Delivered) -> None:
        """Kafka has acknowledged it."""
        if self._landed(self, None):
            self._where = where
            self._settle()

    def failed(self, reason: str, hint: str | None = None) -> None:
        """Kafka has refused it, or nobody knows."""
        error = DeliveryFailed(f"{reason}: {self.intent_id}", (self.intent_id,), hint=hint)
        if self._landed(self, error):
            self._error = error
            self._settle()

    def _settle(self) -> None:
        future = self._future.get("it")
        if future is None or future.done():
            return
        with contextlib.suppress(InvalidStateError):  # the other thread was first, with the same news
            if self._where is not None:
                future.set_result(self._where)
            elif self._error is not None:
                future.set_exception(self._error)


class Receipt(OfOneProcess):
    """The intents of one call; a call with many keys is split into several."""

    __slots__ = ("_flights", "_here")

    def __init__(self, flights: Sequence[Flight]) -> None:
        self._flights = flights
        self._here = os.getpid()

    @property
    def intent_ids(self) -> tuple[str, ...]:
        """The ids of the intents, in the order of their keys."""
        return tuple(flight.intent_id for flight in self._flights)

    @property
    def flights(self) -> Mapping[str, Flight]:
        """What is known of each intent by its id."""
        return {flight.intent_id: flight for flight in self._flights}

    @property
    def futures(self) -> Mapping[str, Future[Delivered]]:
        """A future by intent id; its result says where the intent stands, its exception is DeliveryFailed."""
        return {flight.intent_id: flight.future for flight in self._flights}

    def done(self) -> bool:
        """Return whether every intent was acknowledged or has failed."""
        return all(flight.done for flight in self._flights)

    def wait(self, timeout: float = 30.0) -> Mapping[str, Delivered]:
        """Wait until all intents are acknowledged by Kafka and return where each stands, by intent id.

        `timeout` is in seconds. Raises DeliveryFailed with the ids that failed, else DeliveryPending with the
        ids that are still on their way. Acknowledged means accepted, not deleted: that is the outcome's word.
        """
        if os.getpid() == self._here:
            concurrent.futures.wait(self.futures.values(), timeout)
        return self.result(timeout)

    def result(self, waited: float) -> Mapping[str, Delivered]:
        """Return or raise what `wait` does, as of now; `waited` is told, in seconds."""
        if os.getpid() != self._here and not self.done():
            ids = [flight.intent_id for flight in self._flights if not flight.done]
            raise DeliveryPending(
                f"only the process that emitted them hears of these intents: {len(ids)}: {ids[0]}", ids
            )
        futures = self.futures
        failed = {i: f.exception() for i, f in futures.items() if f.done() and f.exception()}
        if failed:
            cause = next(iter(failed.values()))
            message = f"intents not acknowledged: {len(failed)}: {cause}"
            raise DeliveryFailed(message, tuple(failed), hint=getattr(cause, "hint", None))
        if pending := [i for i, future in futures.items() if not future.done()]:
            raise DeliveryPending(
                f"intents not acknowledged after {waited:g} s: {len(pending)}: {pending[0]}", pending
            )
        return {intent_id: future.result() for intent_id, future in futures.items()}

    def __repr__(self) -> str:
        return f"Receipt({counted(len(self._flights), 'intent')}, {'done' if self.done() else 'pending'})"
