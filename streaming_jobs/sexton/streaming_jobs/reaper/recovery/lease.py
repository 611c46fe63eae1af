"""Who holds the lock on the checkpoint, asked again by every process that was paused before it continues.

The lock is kept alive by the driver. Whether it still is can be seen by nobody else, nor by a driver that was
stopped together with its workers: so each process keeps the time at which Kafka last said that the lock is
held, and sends nothing once that is old. A pause makes it old, however long it was and whoever was paused.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sexton.schemas.errors import EnvironmentFault, KafkaUnavailable
from sexton.schemas.kafka.admin import Member

__all__ = ["CONFIRMED_S", "Clocks", "Holder", "Lease", "LockLost", "age_s", "clocks", "session_s"]

CONFIRMED_S = 3.0
"""For so long an answer of Kafka's is accepted: half of the shortest time after which the lock can move."""

_ANSWER_S = 10.0
_AGAIN_S = 0.1
_SESSION_S = 6.0  # the least that brokers allow by default
_FAILOVER_S = 20.0
_LOST = "the lock on the checkpoint is lost: another reaper may have taken it over"
_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class LockLost(EnvironmentFault):
    """The lock on the checkpoint went to somebody else."""

    usual_hint = "docs/operating.md, 'The lock is lost'"

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(message or _LOST, hint=hint)


def session_s(brokers: int) -> float:
    """Return for how long the driver may be silent before Kafka gives the lock to somebody else.

    With one broker nobody takes its place, and a short time lets a driver that was killed be replaced soon.
    Of several, the one that keeps the lock may die: the others miss it after nine seconds by default
    (`broker.session.timeout.ms`), and the driver has to find and reach its successor in the rest.
    """
    return _SESSION_S if brokers == 1 else _FAILOVER_S


@dataclass(frozen=True, slots=True)
class Holder:
    """The member of a consumer group that holds the lock; a driver that comes back later is another one."""

    group: str
    member_id: str


Clocks = tuple[float, float]
"""One instant: seconds since boot, sleep included, and since 1970."""


def clocks() -> Clocks:
    """Return the instant now."""
    return time.clock_gettime(_BOOT), time.time()


def age_s(then: Clocks, now: Clocks) -> float:
    """Return for how many seconds an instant is past, as the worse of two clocks says.

    A machine that was stopped as a whole starts with a clock since boot that knows nothing of it; the time
    of day is set right soon, and by one that is set back nobody gains.
    """
    return max(now[0] - then[0], abs(now[1] - then[1]))


@dataclass(slots=True)
class Lease:
    """What one process knows of the lock; safe for several threads.

    `members` asks Kafka for a group's members and raises KafkaUnavailable.
    """

    holder: Holder
    members: Callable[[str], Sequence[Member]]
    clocks: Callable[[], Clocks] = clocks
    sleep: Callable[[float], None] = time.sleep
    _confirmed: Clocks | None = None
    _asking: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        """Return when the lock was held a moment ago: at once, or once Kafka has said so.

        Raises LockLost, and KafkaUnavailable while nobody knows.
        """
        if self._is_fresh():
            return
        with self._asking:
            # Over again: this process may have been paused between the answer and here.
            while not self._is_fresh():
                self._confirm()

    def _is_fresh(self) -> bool:
        confirmed = self._confirmed
        return confirmed is not None and age_s(confirmed, self.clocks()) <= CONFIRMED_S

    def _confirm(self) -> None:
        asked = began = self.clocks()
        while True:
            found = {each.member_id: each for each in self.members(self.holder.group)}
            held = found.get(self.holder.member_id)
            if held is None:
                raise LockLost
            if held.assigned:
                self._confirmed = asked
                return
            # Somebody joins or leaves, and Kafka does not say who has what; the holder keeps it meanwhile.
            if age_s(began, self.clocks()) > _ANSWER_S:
                raise KafkaUnavailable("nobody knows who holds the lock on the checkpoint")
            self.sleep(_AGAIN_S)
            asked = self.clocks()
