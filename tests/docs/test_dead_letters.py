"""The commands of the operating page's section on dead letters, run as they stand there."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support import pages
from tests.support.pages import ROOT

from sexton.consumers.topics import read
from sexton.deploy.local import Installation
from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.settings import Settings

pytestmark = pytest.mark.real

PAGE = ROOT / "docs" / "operating.md"
NOW = datetime.now(UTC)


def _write(settings: Settings, topic: str, partition: int, *values: bytes) -> None:
    producer = Producer(settings.kafka(acks="all"))
    for value in values:
        producer.produce(settings.topic(topic), value, b"tenant-42", partition=partition)
    assert producer.flush(20) == 0


def _die(settings: Settings) -> None:
    """Write intents to partition 1, and a dead letter about each to partition 2 of that topic."""
    guards = [events.GenerationGuard("tenant-42", 8)]
    action = events.DeleteObjects("layers", [["a/1-00000008", "a/2-00000008", "a/3-00000008"]])
    intents = [
        events.DeletionIntent(f"compaction-{n}", "tenant-42", NOW, "node-7", guards, action)
        for n in range(19)
    ]
    values = [Codec().encode(intent) for intent in intents]
    _write(settings, records.INTENTS, 1, *values)
    topic = settings.topic(records.INTENTS)
    topic_id = Cluster(settings).topic_id(topic)
    assert topic_id is not None
    letter = events.DeadLetter(
        topic=topic,
        position=events.Position(topic_id, 1, 0),
        written_at=NOW,
        reason="AccessDenied",
        detail="Access Denied",
        intent_id=None,
        tenant="tenant-42",
        bucket="layers",
        keys=["a/1-00000008", "a/3-00000008"],
        raw_key=b"tenant-42",
        raw_value=None,
        dead_at=NOW,
    )
    letters = [
        replace(
            letter,
            intent_id=intent.intent_id,
            raw_value=value,
            position=events.Position(topic_id, 1, offset),
            reason="AccessDenied" if offset < 18 else "invalid-intent",
        )
        for offset, (intent, value) in enumerate(zip(intents, values, strict=True))
    ]
    _write(settings, records.DEAD_LETTERS, 2, *(Codec().encode(each) for each in letters))


@pytest.mark.slow
def test_the_commands_about_dead_letters_work(installation: Installation) -> None:
    """Each succeeds in the page's order, the plan is as shown, and all are replayed in the end."""
    _die(installation.settings)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**installation.environment, "PATH": path}
    lines = [line for block in pages.blocks(PAGE, "sh") for line in block.splitlines()]
    commands = [line for line in lines if line.startswith("sexton dead-letters ")]
    (shown,) = [text for text in pages.blocks(PAGE, "text") if "sexton dead-letters" in text]

    printed = {}
    for command in commands:
        done = subprocess.run(
            command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=150,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout
        printed[command] = done.stdout

    asked, plan = shown.split("\n", 1)
    assert printed[asked.removeprefix("$ ")] == plan
    assert len(list(read(installation.settings, records.DEFERRED))) == 18
    mended = [
        Codec().decode(r.value, events.DeletionIntent) for r in read(installation.settings, records.INTENTS)
    ]
    assert sorted(i.replay_of.intent_id or "" for i in mended if i.replay_of) == ["compaction-18"]
