"""What waits is retried by itself: the loop that processes those records of the delay queue that are due.

It runs beside the query, in a thread of its own, so that a bucket that is tried again holds up no first
records. Offsets are committed after Kafka has acknowledged every row, as in the query.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sexton.schemas import records
from sexton.schemas.errors import EnvironmentFault
from sexton.streaming_jobs.reaper.batch import MicroBatches
from sexton.streaming_jobs.reaper.deferred.delay_queue import DelayQueue, begun_text, waiting_text
from sexton.streaming_jobs.reaper.recovery.attempts import SentBefore
from sexton.streaming_jobs.reaper.recovery.checkpoint import Checkpoint
from sexton.streaming_jobs.reaper.stop import StopRequested
from sexton.streaming_jobs.spark import kafka_source_options

__all__ = ["DeferredConsumer"]

_POLL_S = 1.0
_LONGEST_POLL_S = 15.0


@dataclass(slots=True)
class DeferredConsumer:
    """Brings due records back; `failure` is what ended the loop, `on_failure` is called with it set.

    `earlier` is what another run began and did not commit.
    """

    batches: MicroBatches
    delay_queue: DelayQueue
    checkpoint: Checkpoint
    earlier: SentBefore = field(default_factory=SentBefore)
    on_failure: Callable[[], None] = lambda: None
    failure: BaseException | None = None
    rounds: int = 0
    _wait_s: float = _POLL_S
    _thread: threading.Thread | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Run the loop in a thread until `end`."""
        self._thread = threading.Thread(target=self._loop, name="sexton-returning", daemon=True)
        self._thread.start()

    def end(self, timeout: float | None = None) -> None:
        """Ask the loop to end, and wait for the micro-batch that it is at."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def drain(self) -> None:
        """Process what is due now, until nothing is; raises what a micro-batch raises."""
        while self._round():
            pass

    def _loop(self) -> None:
        try:
            while not self._ended.is_set():
                if not self._round():
                    self._ended.wait(self._wait_s)
        except StopRequested:
            return
        except BaseException as error:  # noqa: BLE001  told to the thread that runs the query
            self.failure = error
            self.on_failure()

    def _round(self) -> bool:
        """Process one range; say whether there was one."""
        try:
            self.batches.stop.check()
            due = self.delay_queue.due()
            duplicates = self.delay_queue.duplicates(due)
        except EnvironmentFault as fault:
            if self.batches.once:
                raise
            self._wait_s = min(2 * self._wait_s, _LONGEST_POLL_S)
            self.batches.progress.held(records.DEFERRED, fault, self._wait_s)
            return False
        self._wait_s = _POLL_S
        if not due:
            return False
        topic = self.delay_queue.place.topic
        done = self.delay_queue.done
        empty = {p: (done.get(p, 0), done.get(p, 0)) for p in range(self.delay_queue.place.partitions)}
        ranges = {**empty, **due}
        starting = {str(p): start for p, (start, _) in ranges.items()}
        ending = {str(p): end for p, (_, end) in ranges.items()}
        spark = self.batches.spark
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", "returning")
        frame = (
            spark.read.format("kafka")
            .options(**kafka_source_options(self.batches.settings, topic))
            .option("startingOffsets", json.dumps({topic: starting}))
            .option("endingOffsets", json.dumps({topic: ending}))
            .load()
        )
        ends = {p: end for p, (_, end) in due.items()}
        earlier = self.earlier.past(done)
        since_s = time.time() if earlier.since_s is None else earlier.since_s
        # Before the first delete: after a crash these are verified before they are sent again.
        # Not less than another run had begun: with longer delays a part of that is not due any more.
        begun = {p: max(end, earlier.below.get(p, 0)) for p, end in {**done, **ends}.items()}
        self.checkpoint.begin_waiting(begun_text(self.delay_queue.place, begun, since_s))
        # Committed only once outcomes and copies are on Kafka: before that, a crash would lose what waited.
        # A crash in between brings the range back, and what was begun of it is verified.
        self.batches.hold_until_done(frame, self.rounds, records.DEFERRED, earlier, duplicates)
        self.rounds += 1
        uncertain = self.delay_queue.still_uncertain(duplicates, ends)
        self.checkpoint.commit_waiting(waiting_text(self.delay_queue.place, {**done, **ends}, uncertain))
        self.delay_queue.committed(ends, uncertain)
        return True
