"""Takes snapshots while an issuer serves: in a process of its own, so that no call ever waits for one.

The process folds the newest snapshot and the tail by itself. The state that answers calls is neither locked
nor copied, and a snapshot is what the log says, not what the serving process believes.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time

from sexton.issuer import json_lines
from sexton.issuer.deadline import Deadline
from sexton.issuer.log.positions import REACH_S, Positions
from sexton.issuer.log.reader import LogReader, open_reader
from sexton.issuer.metrics import Metrics
from sexton.issuer.snapshots.store import Snapshot, Snapshots
from sexton.schemas.errors import SextonError
from sexton.schemas.settings import Settings, load

__all__ = ["SnapshotKeeper", "main", "take_snapshot"]

_LOOK_S = 2.0
_AGAIN_S = 60.0  # after a failure
_TAKE_S = 900.0
_NICE = 10
_log = logging.getLogger("sexton.issuer.snapshots")


def take_snapshot(settings: Settings, timeout_s: float = _TAKE_S, *, unless_within: int = 0) -> Snapshot:
    """Fold the log to its end and write a snapshot of that, and return it.

    A good snapshot that lies fewer than `unless_within` events behind the end is returned instead: another
    issuer took it. Raises SextonError.
    """
    deadline = Deadline.after(timeout_s)
    positions = Positions(settings)
    snapshots = Snapshots(settings, positions)
    facts = snapshots.facts(Deadline.after(REACH_S))
    if facts.end == 0:
        raise SextonError("the generations log is empty", hint="`sexton topics create`")
    if unless_within:
        usable, _ = snapshots.usable(facts, deadline)
        if usable and facts.end - usable[0].log_offset <= unless_within:
            return usable[0]
    reader = open_reader(settings, positions, deadline)
    try:
        reader.wait_for(facts.end - 1, deadline)
        with reader.state() as state:
            return snapshots.take(state, deadline)
    finally:
        reader.stop()


class SnapshotKeeper:
    """Starts a process that takes a snapshot whenever so many events have been folded since the last one."""

    def __init__(self, settings: Settings, reader: LogReader, metrics: Metrics) -> None:
        self._settings = settings
        self._reader = reader
        self._metrics = metrics
        self._last = -1
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sexton-snapshots", daemon=True)

    def start(self) -> None:
        """Begin, unless the setting says never."""
        self._last = self._reader.next_offset - 1
        if self._settings.issuer_snapshot_events:
            self._thread.start()

    def stop(self) -> None:
        """Stop; a snapshot that is being written stays without a manifest and counts for nothing."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            if self._reader.failure is not None:
                return
            if self._reader.next_offset - 1 - self._last < self._settings.issuer_snapshot_events:
                continue
            if not self._take():
                self._stopping.wait(_AGAIN_S)

    def _take(self) -> bool:
        begun = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            env={**os.environ, **self._settings.environment()},
            stdout=subprocess.PIPE,
            text=True,
        )
        while process.poll() is None and not self._stopping.wait(0.1):
            if time.monotonic() - begun > _TAKE_S:
                break
        if process.poll() is None:
            process.kill()
        out, _ = process.communicate()
        if process.returncode != 0:
            if not self._stopping.is_set():
                self._metrics.snapshot_failures.inc()
                _log.warning("no snapshot was taken: exit code %d", process.returncode)
            return False
        self._last = json.loads(out)["log_offset"]
        self._metrics.snapshots.inc()
        self._metrics.snapshot_offset.set(self._last)
        _log.info("snapshot at log offset %d, %.1f s", self._last, time.monotonic() - begun)
        return True


def main() -> int:
    """Take the snapshot that a serving issuer wants, and print where it stands as JSON."""
    os.nice(_NICE)
    settings = load()
    json_lines.start(settings.log_level)
    try:
        taken = take_snapshot(settings, unless_within=settings.issuer_snapshot_events // 2)
    except SextonError as error:
        _log.error("no snapshot: %s", error)
        return 1
    print(json.dumps({"snapshot_id": taken.found.snapshot_id, "log_offset": taken.log_offset}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
