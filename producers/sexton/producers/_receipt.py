"""What a caller holds of intents that are on their way."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Mapping
from concurrent.futures import Future
from types import MappingProxyType

from sexton.producers._errors import DeliveryFailed, DeliveryPending
from sexton.producers._limits import Deadline
from sexton.producers._transport import Delivered

__all__ = ["Receipt"]


class Receipt:
    """One future for each intent of a call; a call with many keys is split into several intents."""

    __slots__ = ("_futures",)

    def __init__(self, futures: Mapping[str, Future[Delivered]]) -> None:
        self._futures = futures

    @property
    def intent_ids(self) -> tuple[str, ...]:
        """The ids of the intents, in the order of their keys."""
        return tuple(self._futures)

    @property
    def futures(self) -> Mapping[str, Future[Delivered]]:
        """A future by intent id; its result says where the intent stands, its exception is DeliveryFailed."""
        return MappingProxyType(self._futures)

    def done(self) -> bool:
        """Tell whether every intent was acknowledged or has failed."""
        return all(future.done() for future in self._futures.values())

    def wait(self, timeout: float = 30.0) -> Mapping[str, Delivered]:
        """Wait until all intents are acknowledged by Kafka and return where each stands, by intent id.

        `timeout` is in seconds. Raises DeliveryFailed with the ids that failed, else DeliveryPending with the
        ids that are still on their way. Acknowledged means accepted, not deleted: that is the outcome's word.
        """
        deadline = Deadline(timeout)
        concurrent.futures.wait(self._futures.values(), deadline.left())
        failed = {i: f.exception() for i, f in self._futures.items() if f.done() and f.exception()}
        if failed:
            cause = next(iter(failed.values()))
            raise DeliveryFailed(f"{len(failed)} intents were not acknowledged: {cause}", tuple(failed))
        if pending := [i for i, future in self._futures.items() if not future.done()]:
            raise DeliveryPending(
                f"{len(pending)} intents not acknowledged yet after {timeout:g} s: {pending[0]}", pending
            )
        return {intent_id: future.result() for intent_id, future in self._futures.items()}

    def __repr__(self) -> str:
        return f"Receipt({len(self._futures)} intents, {'done' if self.done() else 'pending'})"
