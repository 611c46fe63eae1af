"""One reaper for each checkpoint: two would overwrite each other's offsets and skip what neither has done.

The lock is the membership of a Kafka consumer group named after the checkpoint's id. Its one member that
is assigned the control topic's only partition holds it. Kafka notices a dead holder by itself within the
session time-out, on any machine, and no stale file has to be removed by hand. A holder that was paused asks
before it continues (`lease`), in each of its processes.
"""

from __future__ import annotations

import functools
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException

from sexton.schemas import records
from sexton.schemas.errors import KafkaUnavailable, SextonError
from sexton.schemas.kafka import refusals
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.reaper.recovery.lease import Holder, Lease, LockLost, session_s

__all__ = ["CheckpointLock", "CheckpointLocked"]

_SESSIONS = 2  # a holder that was killed is noticed within so many
_ASK_S = 0.3


class CheckpointLocked(SextonError):
    """Another reaper runs on this checkpoint."""


class CheckpointLock:
    """Held between `acquire` and `release`; `lost` is set when Kafka has given it to somebody else."""

    def __init__(self, settings: Settings, identity: str) -> None:
        self.group = f"{settings.topic_prefix}reaper-{identity}"
        self.lost = threading.Event()
        self._topic = settings.topic(records.CONTROL)
        self._settings = settings
        self._cluster = Cluster(settings)
        self._held = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Any = None  # the error of Kafka's client that ends the attempt
        self._said: Any = None  # the last one that did not
        self._lease: Lease

    def acquire(self, wait_s: float | None = None) -> None:
        """Take the lock; a holder that was killed is waited for, unless another time is given.

        Raises CheckpointLocked that names the holder, KafkaUnavailable with the brokers' own word when they
        do not let it be taken, or do not answer.
        """
        session = self._session_s
        self._thread = threading.Thread(target=self._run, args=(session,), name="sexton-lock", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + self._wait_s(wait_s)
        while not self._held.wait(0.05):
            if self._failure is None and time.monotonic() < deadline:
                continue
            failure = self._failure
            try:
                holder = "" if failure is not None else self._holder(session)
            finally:
                self.release()
            if holder:
                raise _locked(holder)
            raise _not_lockable(failure or self._said)

    def await_free(
        self, report: Callable[[str], None], pause: Callable[[float], bool], wait_s: float | None = None
    ) -> None:
        """Return once nobody holds the lock, or cannot be said to; it is not taken, `acquire` decides.

        `report` is called with the holder's name at once; one that was killed has the time of `acquire`.
        `pause` waits for some seconds, and returns whether to give up waiting. Raises CheckpointLocked that
        names the holder, KafkaUnavailable.
        """
        deadline, is_told = time.monotonic() + self._wait_s(wait_s), False
        while holder := self._named():
            if time.monotonic() > deadline:
                raise _locked(holder)
            if not is_told:
                report(holder)
                is_told = True
            if pause(_ASK_S):
                return

    def release(self) -> None:
        """Give the lock back at once."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def holder(self) -> Holder:
        """Who holds it, for those that have to ask for themselves; after `acquire`."""
        return self._lease.holder

    def check(self) -> None:
        """Raise LockLost once it is, KafkaUnavailable while nobody knows; after `acquire`."""
        if self.lost.is_set():
            raise LockLost
        self._lease.check()

    def is_lost(self) -> bool:
        """Return whether somebody else has it for all that Kafka says now; False while nobody knows."""
        try:
            self.check()
        except LockLost:
            return True
        except KafkaUnavailable:
            return False
        return False

    @functools.cached_property
    def _session_s(self) -> float:
        return session_s(self._cluster.brokers())

    def _wait_s(self, wait_s: float | None) -> float:
        return _SESSIONS * self._session_s if wait_s is None else wait_s

    def _run(self, session: float) -> None:
        # Not the reader of topics: membership of the group is all that is wanted, no record is read.
        consumer = Consumer(
            self._settings.kafka(
                **{
                    "group.id": self.group,
                    "client.id": f"{socket.gethostname()}/{os.getpid()}",
                    "session.timeout.ms": int(session * 1000),
                    "heartbeat.interval.ms": 1000,
                    # The only strategy that leaves the partition with its holder when a second one comes.
                    "partition.assignment.strategy": "cooperative-sticky",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "latest",
                    "log_level": 0,
                }
            )
        )
        try:
            consumer.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_lost, on_lost=self._on_lost
            )
            while not self._closing.is_set():
                message = consumer.poll(0.1)
                error = message.error() if message is not None else None
                if error is None:
                    continue
                self._said = error
                # What is refused later on is noticed by who asks before it continues.
                if error.fatal() or (refusals.final(error) and not self._held.is_set()):
                    self._failure = error
                    return
        except KafkaException as error:
            self._failure = error.args[0]
        finally:
            consumer.close()

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        if partitions:
            # Once: a holder that was replaced and comes back is another one, and may not continue.
            if not self._held.is_set():
                holder = Holder(self.group, consumer.memberid())
                self._lease = Lease(holder, self._cluster.group_members)
            self._held.set()
        consumer.pause(partitions)

    def _on_lost(self, consumer: Any, partitions: list[Any]) -> None:
        if self._held.is_set() and not self._closing.is_set():
            self.lost.set()

    def _holder(self, session: float) -> str:
        """Name who holds the lock, "" if nobody is said to: in the middle of a rebalance Kafka does not say,
        so it is asked again for a while.
        """
        deadline = time.monotonic() + session
        while not (holder := self._named()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return holder

    def _named(self) -> str:
        members = self._cluster.group_members(self.group)
        return ", ".join(f"process {each.client_id} on {each.host}" for each in members if each.assigned)


def _locked(holder: str) -> CheckpointLocked:
    return CheckpointLocked(
        f"another reaper runs on this checkpoint: {holder}", hint="docs/operating.md, 'A second reaper'"
    )


def _not_lockable(error: Any) -> KafkaUnavailable:
    """Return that nobody is known to hold the lock, and what Kafka said when it was asked for."""
    if error is None:
        return KafkaUnavailable(
            "the checkpoint cannot be locked: Kafka names no holder, nor gives it to this one"
        )
    return KafkaUnavailable(f"the checkpoint cannot be locked: {error.str()}", hint=refusals.hint(error))
