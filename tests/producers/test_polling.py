"""P-2: who may be within the Kafka client's own call, and what may be called there."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from sexton.producers import Limits, Sexton
from sexton.producers._polling import Greenlets, Polling, Threads
from sexton.producers.testing import FakeIssuer


class Client:
    """Calls back within its own call, as the Kafka client does."""

    def __init__(self, polling: Polling) -> None:
        self.polling, self.calls, self.depth, self.deepest = polling, 0, 0, 0
        self.within: list[bool] = []

    def poll(self, seconds: float) -> int:
        """One call; in the middle of it the same thread calls again, as a handler or a finaliser would."""
        self.calls, self.depth = self.calls + 1, self.depth + 1
        self.deepest = max(self.deepest, self.depth)
        self.within.append(self.polling.is_within())
        if self.depth == 1:
            self.polling.tell(self.within.append, False)
            self.polling.poll(self, 0.001)  # type: ignore[arg-type]
            self.polling.flush(self, 0.001)  # type: ignore[arg-type]
        self.depth -= 1
        return 1

    def flush(self, seconds: float) -> int:
        """The same."""
        return self.poll(seconds)


@pytest.mark.parametrize("kind", [Threads, Greenlets])
def test_p_2_nothing_is_called_within_the_clients_own_call(kind: type[Polling]) -> None:
    """P-2: it ends the process; and what it calls back with is told by `hand_out` alone."""
    polling = kind(print)
    client: Any = Client(polling)
    polling.poll(client, 0.001)

    assert (client.calls, client.deepest, client.within) == (1, 1, [True])
    assert not polling.all_told()
    polling.hand_out()
    assert client.within == [True, False]
    assert polling.all_told()
    assert not polling.is_within()


def test_p_2_only_the_reader_looks_after_the_client(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-2: no other thread, in which a signal handler could run within the client's call."""
    seen: set[str] = set()
    call = Polling._call

    def noted(self: Polling, *arguments: Any) -> bool:
        seen.add(threading.current_thread().name)
        return call(self, *arguments)

    monkeypatch.setattr(Polling, "_call", noted)
    limits = Limits(queue_messages=2, linger=0.05)
    sexton = Sexton.connect("n", issuer=FakeIssuer(), limits=limits, kafka_bootstrap_servers=kafka)
    tenant = sexton.attach("t")
    for n in range(10):
        tenant.delete("bucket", [f"k{n}"])
    assert sexton.flush(10) == 0
    tenant.delete("bucket", ["last"])
    assert sexton.close(5) == ()
    assert seen == {"sexton-deliveries"}


def test_p_2_a_flush_does_not_wait_for_what_lingers(kafka: str) -> None:
    """P-2: the reader lets nothing linger while somebody waits."""
    limits = Limits(linger=20)
    sexton = Sexton.connect("n", issuer=FakeIssuer(), limits=limits, kafka_bootstrap_servers=kafka)
    sexton.attach("t").delete("bucket", ["k"])
    began = time.monotonic()
    assert sexton.flush(15) == 0
    assert time.monotonic() - began < 10
    sexton.close(1)
