"""A backlog whose outcomes are known, a store that halts for the test, drivers of a reaper on a cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.chain import Chain, keys
from tests.support.s3_api import Reply, error_reply
from tests.support.s3_recorder import Recorded, S3Recorder
from tests.support.spark_cluster import SHORT_LIVED, SparkCluster

from sexton.deploy.local import Installation
from sexton.streaming_jobs.pack import Pack

__all__ = ["BACKLOG", "Driver", "Halt", "OnCluster"]

BACKLOG = 2400
"""Intents that are asked for, a third of them too late."""

_EACH, _PARTITIONS, _AT_ONCE = 3, 4, 600
_PATIENT = {
    # Nothing that waits for the test is an answer that never came, however slow the machine is.
    "SEXTON_S3_READ_TIMEOUT_S": "600",
    "SEXTON_REAPER_SLICE_S": "600",
    "SEXTON_REAPER_GRACE_S": "250",
    "SEXTON_REAPER_INTENTS_PER_TRIGGER": str(_AT_ONCE),
}


@dataclass
class Halt:
    """A store that refuses some requests at first, and in the second micro-batch answers one more; the next
    reach the point at which it halts until it is `released`.
    """

    throttled: int = 0
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    _taken: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: Recorded) -> Reply | None:
        """Answer one request, here or as usual."""
        if not request.is_delete_objects or request.is_probe:
            return None
        with self._lock:
            if self.throttled > 0:
                self.throttled -= 1
                return error_reply(503, "SlowDown", "Please reduce your request rate.")
            halts = self._taken > _AT_ONCE * _EACH
            self._taken += len(request.keys)
        if halts:
            self.reached.set()
            self.released.wait(550)
        return None


@dataclass
class Driver:
    """A reaper's driver as a process of its own, with all that it prints in one file."""

    process: subprocess.Popen[bytes]
    log: Path

    def until(self, what: threading.Event | str) -> None:
        """Return once something has happened, or an event of this name was printed."""
        deadline = time.monotonic() + 250
        while not (self.events(what) if isinstance(what, str) else what.is_set()):
            assert self.process.poll() is None, self.tail
            assert time.monotonic() < deadline, self.tail
            time.sleep(0.1)

    def ends(self, code: int = 0) -> None:
        """Return once it has ended with this exit code."""
        assert self.process.wait(250) == code, self.tail

    def kill(self) -> None:
        """End it and its JVM with -9, as a machine does that loses power; its executors are elsewhere."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(20)

    def events(self, name: str) -> list[dict[str, Any]]:
        """The JSON lines of one kind that it has printed."""
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [found for line in lines if (found := json.loads(line))["event"] == name]

    @property
    def tail(self) -> str:
        """The end of what it has printed."""
        return self.log.read_text()[-4000:]


@dataclass
class OnCluster:
    """An installation with a backlog, a store, a pack, and the cluster on which drivers have tasks done."""

    chain: Chain
    installation: Installation
    s3: S3Recorder
    pack: Pack
    workers: SparkCluster
    folder: Path
    halt: Halt = field(default_factory=Halt)
    owed: dict[str, str] = field(default_factory=dict)

    def fill(self) -> None:
        """Ask for all deletions, and note the outcome that each is owed."""
        names = keys("k", BACKLOG * _EACH)
        self.s3.create_bucket(self.chain.bucket, dict.fromkeys(names, b"x"))
        self.s3.script(self.halt)
        with self.chain.issuer() as issuer:
            generation = issuer.attach("node", "t").generation
            for asked, outcome in ((BACKLOG * 2 // 3, "deleted"), (BACKLOG // 3, "stale")):
                begun = len(self.owed)
                intents = [
                    self.chain.intent("t", generation, names[n * _EACH : (n + 1) * _EACH])
                    for n in range(begun, begun + asked)
                ]
                for partition in range(_PARTITIONS):
                    self.chain.emit(*intents[partition::_PARTITIONS], partition=partition)
                self.owed |= {intent.intent_id: outcome for intent in intents}
                issuer.attach("node", "t")  # what the first generation asks for from here on is stale

    @property
    def live(self) -> set[str]:
        """The keys of intents that are stale."""
        names, ids = keys("k", BACKLOG * _EACH), list(self.owed)
        return {name for n, name in enumerate(names) if self.owed[ids[n // _EACH]] == "stale"}

    @property
    def run(self) -> list[str]:
        """The command `sexton reaper run` on the cluster."""
        command = [sys.executable, "-m", "sexton.deploy.main", "reaper", "run"]
        return [*command, "--master", self.workers.url, "--pack", str(self.pack.folder)]

    @contextmanager
    def driver(self, name: str, command: Sequence[str], **env: str) -> Iterator[Driver]:
        """Start a driver in a folder of its own; nothing of it is left afterwards."""
        home = self.folder / name
        home.mkdir()
        env = {**self.installation.environment, **SHORT_LIVED, **_PATIENT, "HOME": str(home), **env}
        env["SEXTON_S3_ENDPOINT_URL"] = self.s3.url
        with (home / "log").open("w") as out:
            process = subprocess.Popen(
                command, env=env, cwd=home, stdout=out, stderr=out, start_new_session=True
            )
        try:
            yield Driver(process, home / "log")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)

    def all_is_as_owed(self) -> None:
        """Every intent has the one outcome that it is owed, and what has to live is left, nothing else."""
        assert self.chain.words() == self.owed
        assert set(self.s3.objects(self.chain.bucket)) == self.live
        asked = {key for request in self.s3.deletes() for key in request.keys}
        assert asked & self.live == set()
        assert self.chain.dead_letters() == []
