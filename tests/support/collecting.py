"""Runs a collector in this process, with the parts that it asks: Kafka, issuer, store."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from tests.support.chain import messages

from sexton.issuer.client import IssuerClient
from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.settings import Settings, load
from sexton.storage import ObjectStore, StoreSettings
from sexton.streaming_jobs.collectors.decision import Options
from sexton.streaming_jobs.collectors.driver import Driver
from sexton.streaming_jobs.collectors.leftovers.room import ROOM
from sexton.streaming_jobs.collectors.progress import Progress
from sexton.streaming_jobs.collectors.report import Report
from sexton.streaming_jobs.collectors.reports import Reports, open_place
from sexton.streaming_jobs.collectors.room import Room, Scope, Sources

_numbers = itertools.count(1)


@dataclass
class Collecting:
    """A bucket, and the environment that leads to all that a run asks; tenants have names of their own."""

    bucket: str
    env: Mapping[str, str]
    prefix: str = "data/"
    room: Room = ROOM

    @property
    def settings(self) -> Settings:
        """The settings of the environment."""
        return load()

    @cached_property
    def store(self) -> ObjectStore:
        """The store."""
        return ObjectStore(StoreSettings.of(self.settings))

    @property
    def reports(self) -> Reports:
        """The reports."""
        return Reports(open_place(self.settings, self.store), self.room.name)

    def tenant(self, *, dropped: bool) -> str:
        """A new tenant that the issuer knows."""
        name = f"tenant-{next(_numbers):05d}-{self.bucket}"
        with IssuerClient.of(self.settings) as issuer:
            issuer.attach("node-1", name)
            if dropped:
                issuer.drop(name)
        return name

    def put(self, *keys: str, size: int = 10) -> None:
        """Write objects under what is listed."""
        listed = self.room.listed(Scope(self.bucket, self.prefix))
        for key in keys:
            self.store.put(self.bucket, listed + key, b"x" * size)

    @contextmanager
    def driver(self, **options: Any) -> Iterator[Driver]:
        """A driver in this process."""
        settings, given = self.settings, dict(options)
        stopped = given.pop("stopped", lambda: False)
        asked = Options(Scope(self.bucket, self.prefix), **given)
        with IssuerClient.of(settings) as issuer:
            yield Driver(
                self.room, Sources(settings, issuer, self.store), asked, progress=Progress(), stopped=stopped
            )

    def run(self, **options: Any) -> Report:
        """Run once; by default whatever the share is."""
        with self.driver(**{"max_share": 1.0, **options}) as driver:
            return driver.run()

    def command(self, *arguments: str, code: int = 0, patch: str = "", **env: str) -> str:
        """Run `sexton collect` as a process, expect its exit code, and return its stdout.

        `patch` is code that the process runs first.
        """
        process = self.start(*arguments, patch=patch, **env)
        out, err = process.communicate(timeout=250)
        assert process.returncode == code, (process.returncode, out, err)
        return out

    def start(self, *arguments: str, patch: str = "", **env: str) -> subprocess.Popen[str]:
        """Start such a process."""
        scope = ["collect", self.room.name, "--bucket", self.bucket, "--prefix", self.prefix]
        code = f"import sys\n{patch}\nfrom sexton.deploy.main import run\nsys.exit(run(sys.argv[1:]))"
        return subprocess.Popen(
            [sys.executable, "-c", code, *scope, *arguments],
            env={**os.environ, **self.env, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def emitted(self) -> list[events.DeletionIntent]:
        """Every intent in Kafka that names the bucket."""
        found = messages(self.settings, self.settings.topic(records.INTENTS))
        intents = [Codec().decode(message.value(), events.DeletionIntent) for message in found]
        return [intent for intent in intents if intent.action.place == self.bucket]

    def settle(
        self,
        intent_id: str,
        outcome: events.OutcomeKind,
        reason: str = "promise",
        *,
        effects: Mapping[str, int] | None = None,
        position: events.Position | None = None,
    ) -> None:
        """Write an outcome as a reaper does."""
        verdict = events.Verdict(events.VerdictResult.PASS, reason, "", None)
        at = position or events.Position("topic", 0, 0)
        now, kind = datetime.now(UTC), {outcome.value: 1}
        event = events.Outcome(
            intent_id, "t", self.bucket, outcome, 1, kind, (), verdict, at, (), now, effects or {}
        )
        self.produce(records.OUTCOMES, event)

    def promise(self, prefix: str, intent_id: str, **fields: Any) -> events.Position:
        """Write a promise for a prefix and return where it stands."""
        action = events.DeletePrefix(self.bucket, prefix, **fields)
        guards = (events.PromiseGuard("give-up"),)
        intent = events.DeletionIntent(intent_id, "owner", datetime.now(UTC), "test", guards, action)
        partition, offset = self.produce(records.INTENTS, intent)
        return events.Position(self.topic_id(records.INTENTS), partition, offset)

    def topic_id(self, topic: str) -> str:
        """The id of a topic."""
        found = Cluster(self.settings).topic_id(self.settings.topic(topic))
        assert found is not None
        return found

    def produce(self, topic: str, event: events.Event) -> tuple[int, int]:
        """Write an event and return partition and offset."""
        where: list[tuple[int, int]] = []

        def landed(error: Any, message: Any) -> None:
            assert error is None, error
            where.append((message.partition(), message.offset()))

        producer = Producer(self.settings.kafka(acks="all"))
        producer.produce(
            self.settings.topic(topic),
            value=Codec().encode(event),
            key=records.key(event),
            headers=list[Any](records.headers(event)),
            on_delivery=landed,
        )
        assert producer.flush(20) == 0
        return where[0]


def states(report: Report) -> dict[str, str]:
    """The state of each finding by place."""
    return {finding.place: finding.state.value for finding in report.findings}


def lines(out: str) -> Sequence[Any]:
    """The JSON lines of an output."""
    return [json.loads(line) for line in out.splitlines()]


def report_files(folder: Path) -> list[str]:
    """The names of the files of a collector's reports."""
    return sorted(each.name for each in folder.glob("leftovers/*") if each.is_file())
