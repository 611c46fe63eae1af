"""A reaper that runs in this process beside the test, in the run's own Spark."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

from tests.support.chain import NEVER, Chain

from sexton.streaming_jobs.reaper.job import Reaper
from sexton.streaming_jobs.reaper.progress import Progress
from sexton.streaming_jobs.reaper.stop import StopFlag

__all__ = ["Running", "running"]


@dataclass
class Running:
    """What it has told so far, and when it ends."""

    stop: StopFlag
    reported: io.StringIO = field(default_factory=io.StringIO)
    ended: Future[None] = field(default_factory=Future)

    def events(self, name: str) -> list[dict[str, Any]]:
        """The JSON lines of one kind that it has told."""
        parsed = [json.loads(line) for line in self.reported.getvalue().splitlines()]
        return [line for line in parsed if line["event"] == name]

    def until(self, what: Callable[[], object], seconds: float = 90) -> None:
        """Return once something holds; fail if the reaper ends before, or it takes too long."""
        deadline = time.monotonic() + seconds
        while not what():
            assert not self.ended.done(), f"ended: {self.ended.exception()!r}, {self.reported.getvalue()}"
            assert time.monotonic() < deadline, f"it did not become true: {self.reported.getvalue()}"
            time.sleep(0.05)

    def end(self) -> float:
        """Ask it to stop; returns the seconds that it took, or raises what it ended with."""
        asked = time.monotonic()
        self.stop.set()
        self.ended.result(30)
        return time.monotonic() - asked


@contextmanager
def running(chain: Chain, **overrides: Any) -> Iterator[Running]:
    """Run a reaper with these settings until the block ends; what it raised is raised then."""
    made = Running(StopFlag(NEVER, lambda: None))
    settings = chain.settings.model_copy(update=overrides)
    reaper = Reaper(settings, chain.spark, made.stop, progress=Progress(out=made.reported))

    def run() -> None:
        try:
            reaper.run()
            made.ended.set_result(None)
        except BaseException as error:  # noqa: BLE001 - raised again by who waits
            made.ended.set_exception(error)

    # A daemon: a reaper that does not stop fails its test, and is not waited for when the run ends.
    Thread(target=run, name="reaper", daemon=True).start()
    try:
        yield made
    finally:
        made.stop.set()
    made.ended.result(30)
