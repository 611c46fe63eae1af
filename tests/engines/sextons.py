"""Whole installations of Sexton on one store: broker, issuer, reaper in a process of its own, collector."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka import Consumer, TopicPartition
from tests.engines.gate import Gate, opened
from tests.support.s3_stores import Running

from sexton.deploy import topics
from sexton.deploy.local import Installation, LocalStack
from sexton.deploy.local.process import Process, last_lines, send, spawn, stop
from sexton.schemas import events, records
from sexton.schemas.codec import Codec

__all__ = ["Sexton", "servers", "started"]

_SETTLED_SECONDS = 600.0
_COLLECTED_SECONDS = 300.0
_COMMAND = [sys.executable, "-m", "sexton.deploy.main"]
_HARMLESS = {events.OutcomeKind.DELETED, events.OutcomeKind.ABSENT, events.OutcomeKind.CANCELLED}


class Unsettled(Exception):
    """An intent has no final outcome in time, or one that nothing here asks for."""


@contextmanager
def servers(running: Running, folder: Path) -> Iterator[LocalStack]:
    """Run a broker and a Redis server; whoever uses them finds the store too, and nothing of the caller's."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SEXTON_", "AWS_")) or name == "SEXTON_CACHE_DIR"
    }
    url = running.settings.endpoint_url
    assert url is not None
    own |= {"SEXTON_S3_ENDPOINT_URL": url, "SEXTON_S3_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": url}
    own |= {**running.environ, "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
    own |= {"AWS_ALLOW_HTTP": "true"}
    stack = LocalStack.start(folder, without={"s3", "bucket", "issuer", "topics"}, environ=own)
    try:
        yield stack
    finally:
        stack.stop()


@dataclass
class Sexton:
    """One installation; its reaper reaches the store through a gate of its own."""

    installation: Installation
    bucket: str
    gate: Gate
    receipts: dict[str, events.Outcome] = field(default_factory=dict)
    intents: dict[str, events.DeletionIntent] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._runs = itertools.count(1)
        self._offsets: dict[tuple[str, int], int] = {}
        self._log = self.installation.directory / "reaper.log"
        self._reaper: Process | None = None

    def start_reaper(self) -> None:
        """Start the reaper; it takes some seconds until it takes intents."""
        urls = dict.fromkeys(("SEXTON_S3_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"), self.gate.url)
        own = {**urls, "SEXTON_REAPER_CORES": "2", "SEXTON_REAPER_DEFER_DELAYS_S": "[1, 2, 5]"}
        environment = {**self.installation.environment, **own}
        directory = self.installation.directory
        self._reaper = spawn(
            [*_COMMAND, "reaper", "run"], directory=directory, log=self._log, environment=environment
        )

    def kill_reaper(self) -> None:
        """End the reaper with all its processes, as the loss of its machine would."""
        assert self._reaper is not None
        # Spark's workers, which delete, lead a group of their own.
        workers = psutil.Process(self._reaper.pid).children(recursive=True)
        send(self._reaper, signal.SIGKILL)
        for each in workers:
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def stop_reaper(self) -> None:
        """End the reaper."""
        if self._reaper is not None:
            stop([self._reaper])

    def collect(self, prefix: str) -> None:
        """Run the collector once and let it ask for what it finds."""
        command = [*_COMMAND, "collect", "sequenced", "--bucket", self.bucket, "--prefix", prefix, "--emit"]
        command += ["--max-share", "1", "--min-age", "0.001s", "--checkpoints", "slatedb"]
        # With reports of its own a run has no last one that it could have found ten times as much as.
        reports = self.installation.directory / f"reports-{next(self._runs)}"
        done = subprocess.run(
            command,
            env={**self.installation.environment, "SEXTON_REPORTS": str(reports)},
            capture_output=True,
            text=True,
            timeout=_COLLECTED_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise Unsettled(f"the collector ended with {done.returncode}: {done.stdout}{done.stderr}")

    def settle(self) -> None:
        """Return once every intent has its outcome; raises Unsettled for one that should not come here."""
        deadline = time.monotonic() + _SETTLED_SECONDS
        while self._read() and time.monotonic() < deadline:
            time.sleep(0.1)
        pending = self.intents.keys() - self.receipts.keys()
        odd = [each for each in self.receipts.values() if each.outcome not in _HARMLESS]
        if pending or odd:
            raise Unsettled(f"pending {pending}, not asked for {odd}; the reaper: {last_lines(self._log)}")

    @property
    def files_deleted(self) -> int:
        """How many files are gone by its receipts."""
        return sum(each.counts.get("deleted", 0) for each in self.receipts.values())

    def _read(self) -> int:
        """Read what is new of intents and outcomes; return how many intents have no outcome."""
        codec = Codec()
        # Intents first: one whose outcome is read is known.
        for value in self._new(records.INTENTS):
            intent = codec.decode(value, events.DeletionIntent)
            self.intents[intent.intent_id] = intent
        for value in self._new(records.OUTCOMES):
            outcome = codec.decode(value, events.Outcome)
            self.receipts.setdefault(outcome.intent_id, outcome)
        return len(self.intents.keys() - self.receipts.keys())

    def _new(self, name: str) -> list[bytes]:
        settings, found = self.installation.settings, []
        topic = settings.topic(name)
        config: Mapping[str, object] = {
            "group.id": "engines",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
        consumer = Consumer(settings.kafka(**config))
        try:
            left = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
            places = [TopicPartition(topic, p, self._offsets.get((topic, p), 0)) for p in left]
            consumer.assign(places)
            while left:
                message = consumer.poll(30)
                assert message is not None, f"no answer while reading {topic}"
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None
                assert offset is not None
                if message.error() is not None:
                    left.discard(partition)
                    continue
                self._offsets[(topic, partition)] = offset + 1
                if value is not None:
                    found.append(value)
            return found
        finally:
            consumer.close()


@contextmanager
def started(stack: LocalStack, running: Running, bucket: str, count: int) -> Iterator[list[Sexton]]:
    """Run so many installations, each with an issuer and a reaper, that collect in one bucket."""
    url = running.settings.endpoint_url
    assert url is not None
    with ExitStack() as open_ones:
        made = []
        for number in range(count):
            installation = Installation(stack, f"engines-{number}")
            installation.directory.mkdir(parents=True, exist_ok=True)
            topics.create_installation(installation.settings, partitions=2)
            installation.start_issuer()
            open_ones.callback(installation.stop)
            sexton = Sexton(installation, bucket, open_ones.enter_context(opened(url)))
            open_ones.callback(sexton.stop_reaper)
            sexton.start_reaper()
            made.append(sexton)
        yield made
