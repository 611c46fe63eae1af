"""The examples of the SDK's page that ask for no more than a broker, run as they stand there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.support import pages
from tests.support.mock_kafka import mock_kafka

from sexton.consumers.topics import read
from sexton.producers import Sexton, _client
from sexton.producers.testing import FakeIssuer, FakeSexton
from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.settings import Settings, load

PAGE = pages.ROOT / "docs" / "sdk.md"
NOW = datetime(2026, 3, 1, tzinfo=UTC)
PLACE = events.Position("id", 0, 0)


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Settings, also in the environment, that lead to a mock broker with the topics of the page."""
    topics = (records.INTENTS, records.OUTCOMES, records.DEAD_LETTERS)
    with mock_kafka(*(f"sexton.{topic}" for topic in topics)) as address:
        monkeypatch.setenv("SEXTON_KAFKA_BOOTSTRAP_SERVERS", address)
        yield load()


def example(part: str) -> str:
    """Return the one block of Python with this in it."""
    (block,) = [block for block in pages.blocks(PAGE, "python") if part in block]
    return block


def test_outcomes_are_read_as_the_page_shows(settings: Settings) -> None:
    """Each intent of the receipts gets its folded word, `pending` if it has none; others are not told."""
    with Sexton.connect("n", settings, issuer=FakeIssuer()) as sexton:
        tenant = sexton.attach("t")
        receipts = [tenant.delete("bucket", [key]) for key in "abc"]
        ours = [intent_id for receipt in receipts for intent_id in receipt.intent_ids]
    write(settings, records.OUTCOMES, outcome("theirs"), outcome(ours[0]))
    write(settings, records.DEAD_LETTERS, dead_letter(ours[0]), dead_letter(ours[1]), dead_letter(None))
    receipt = type("Receipt", (), {"intent_ids": tuple(ours)})
    names: dict[str, Any] = {"receipt": receipt}
    exec(compile(example("fold("), str(PAGE), "exec"), names)

    assert names["states"] == dict(zip(ours, ("deleted", "dead-lettered", "pending"), strict=True))


def test_the_key_is_the_one_that_the_page_shows() -> None:
    """The example's comment is what `tenant.key` returns, and its reuse is seen."""
    (line,) = example("tenant.key(").splitlines()
    code, _, shown = line.partition("  # ")
    with FakeSexton("node-7") as sexton:
        for _ in range(8):
            tenant = sexton.attach("tenant-42")
        names: dict[str, Any] = {"tenant": tenant}
        exec(code, names)

    assert names["key"] == shown


def test_the_terms_of_a_call_are_as_the_page_shows() -> None:
    """The example's calls emit what their comments and the table say."""
    with FakeSexton("node-7") as sexton:
        names = {"sexton": sexton, "tenant": sexton.attach("t"), "put_index": lambda: None}
        exec(compile(example("UnlessWhole("), str(PAGE), "exec"), {**names, "old_keys": ["a/layer-1"]})
    later, unchanged, phased = sexton.intents

    kinds = [[type(each).__name__ for each in (*one.guards, *one.vetoes)] for one in sexton.intents]
    assert kinds == [
        ["GenerationGuard", "NotBeforeGuard", "ExpiresAt"],
        ["GenerationGuard", "UnchangedGuard"],
        ["PromiseGuard", "OnlyWhileExists", "UnlessWhole"],
    ]
    assert (list(later.action.keys), list(unchanged.action.keys)) == (["a/layer-1"], ["a/config"])
    phases = [["01J/meta.json"], ["01J/index", "01J/chunks/000001"]]
    assert phased.action == events.DeleteObjects("blocks", phases, pause_s=900)


def test_p_2_the_asyncio_example_runs(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-2: as it stands, with the issuer in memory."""
    monkeypatch.setattr(_client, "open_issuer", lambda _: FakeIssuer())
    exec(compile(example("AsyncSexton.connect("), str(PAGE), "exec"), {})

    assert emitted(settings) == [["layer-1-00000001"]]


@pytest.mark.parametrize("eventlet", [False, True])
def test_p_2_the_example_for_greenlets_runs(settings: Settings, eventlet: bool) -> None:
    """P-2: as it stands, and with the call that its comment has for eventlet."""
    code = example("monkey.patch_all()")
    if eventlet:
        patched = (
            "import warnings; warnings.simplefilter('ignore')\nimport eventlet; eventlet.monkey_patch()\n"
        )
        code = patched + code.partition("monkey_patch()\n")[2]
    assert run(code.replace("\nwith ", IN_MEMORY + "\nwith ")) == ""
    assert emitted(settings) == [["layer-1-00000001"]]


def test_p_2_the_example_for_servers_runs_in_workers(settings: Settings) -> None:
    """P-2: loaded in a master, called in three workers that are forked in C."""
    assert run(example("def application(") + WORKERS) == ""
    assert emitted(settings) == [["old/layer-1"]] * 3


IN_MEMORY = """
from sexton.producers import _client
from sexton.producers.testing import FakeIssuer
_client.open_issuer = lambda _: FakeIssuer()
"""
WORKERS = """
import ctypes, os
children = []
for _ in range(3):
    child = ctypes.PyDLL(None).fork()
    if child == 0:
        said = []
        application({}, lambda status, headers: said.append(status))
        os._exit(0 if said == ["204 No Content"] and sexton.close(3) == () else 1)
    children.append(child)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
"""


def run(code: str) -> str:
    """Run code in a process of its own, to its end, and return what it has said."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def emitted(settings: Settings) -> list[list[str]]:
    """Return the keys of each intent in the topic."""
    found = [
        Codec().decode(record.value, events.DeletionIntent) for record in read(settings, records.INTENTS)
    ]
    return [list(intent.action.keys) for intent in found]


def write(settings: Settings, topic: str, *values: events.Event) -> None:
    """Write events, acknowledged."""
    producer = Producer(settings.kafka(acks="all"))
    for event in values:
        data = Codec().encode(event)
        producer.produce(settings.topic(topic), data, headers=[*records.headers(event)])
    assert producer.flush(10) == 0


def outcome(intent_id: str) -> events.Outcome:
    """Return the outcome that all keys are gone."""
    kind = events.OutcomeKind.DELETED
    verdict = events.Verdict(events.VerdictResult.PASS, "in-window", "", 1)
    return events.Outcome(intent_id, "t", "bucket", kind, 1, {kind: 1}, [], verdict, PLACE, [], NOW)


def dead_letter(intent_id: str | None) -> events.DeadLetter:
    """Return a dead letter of a whole intent."""
    return events.DeadLetter("sexton.intents", PLACE, NOW, "r", "", intent_id, "t", "b", [], None, None, NOW)
