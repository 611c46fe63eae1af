"""`sexton intents emit`, run in this process against a mock broker."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sexton.deploy.main import run
from sexton.producers import Limits, commands
from sexton.producers._emitter import Emitter
from sexton.producers._limits import Deadline
from sexton.producers.testing import FakeTransport
from sexton.schemas.codec import Codec
from sexton.schemas.events import DeletionIntent

Arrived = Callable[[], list[DeletionIntent]]
GOOD: dict[str, Any] = {
    "tenant": "t",
    "guards": [{"GenerationGuard": {"tenant": "t", "generation": 8}}],
    "action": {"DeleteObjects": {"bucket": "bucket", "phases": [["k-00000008"]]}},
}


@pytest.fixture(autouse=True)
def _environment(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEXTON_KAFKA_BOOTSTRAP_SERVERS", kafka)


def test_ids_are_printed_once_kafka_has_acknowledged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arrived: Arrived
) -> None:
    """One id a line in the file's order; what a line leaves out is filled in."""
    file = tmp_path / "f.jsonl"
    file.write_text(json.dumps(GOOD) + "\n\n" + json.dumps(GOOD | {"intent_id": "mine"}) + "\n")

    assert run(["intents", "emit", "--file", str(file)]) == 0
    ids = capsys.readouterr().out.split()
    assert ids == [intent.intent_id for intent in arrived()]
    assert ids[1] == "mine"


def test_the_same_line_twice_is_emitted_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arrived: Arrived
) -> None:
    """J-6: a repeated intent is sent as often as the file has it, in JSON with its position."""
    file = tmp_path / "f.jsonl"
    file.write_text((json.dumps(GOOD | {"intent_id": "mine"}) + "\n") * 2)

    assert run(["intents", "emit", "--file", str(file), "--format", "json"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["intent_id"], one["offset"]) for one in printed] == [("mine", 0), ("mine", 1)]
    assert len(arrived()) == 2


@pytest.mark.parametrize(
    "other",
    [
        GOOD | {"tenant": "u"},
        GOOD | {"action": {"DeleteObjects": {"bucket": "bucket", "phases": [["j-00000008"]]}}},
        GOOD | {"emitter": "somebody"},
    ],
)
def test_one_id_for_two_intents_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arrived: Arrived, other: dict[str, Any]
) -> None:
    """I2: two lines that differ under one id are reported by their numbers, and nothing is sent."""
    file = tmp_path / "f.jsonl"
    lines = [GOOD | {"intent_id": "mine"}, GOOD, other | {"intent_id": "mine"}]
    file.write_text("\n".join(map(json.dumps, lines)))

    assert run(["intents", "emit", "--file", str(file)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "line 3: line 1 has another intent under this id: mine" in printed.err
    assert arrived() == []


def test_the_order_of_a_lines_fields_is_no_difference(tmp_path: Path, arrived: Arrived) -> None:
    """J-6: a line that says the same in another order repeats the intent."""
    file = tmp_path / "f.jsonl"
    line = GOOD | {"intent_id": "mine"}
    file.write_text(json.dumps(line) + "\n" + json.dumps(dict(reversed(line.items()))))

    assert run(["intents", "emit", "--file", str(file)]) == 0
    assert len(arrived()) == 2


def test_lines_are_read_from_stdin(monkeypatch: pytest.MonkeyPatch, arrived: Arrived) -> None:
    """A dash as the file reads standard input."""
    stdin = SimpleNamespace(buffer=io.BytesIO(json.dumps(GOOD).encode()))
    monkeypatch.setattr("sys.stdin", stdin)

    assert run(["intents", "emit", "--file", "-"]) == 0
    assert len(arrived()) == 1


def test_p_9_a_uri_for_a_key_needs_the_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arrived: Arrived
) -> None:
    """P-9: the line and the key that was meant are named; with the flag the line goes as it is."""
    file = tmp_path / "f.jsonl"
    odd = GOOD | {"action": {"DeleteObjects": {"bucket": "bucket", "phases": [["s3://bucket/k-00000008"]]}}}
    file.write_text(json.dumps(odd))

    assert run(["intents", "emit", "--file", str(file)]) == 2
    message = capsys.readouterr().err
    assert "line 1: a key is a URI: 's3://bucket/k-00000008'" in message
    assert "give 'k-00000008'" in message
    assert arrived() == []
    assert run(["intents", "emit", "--file", str(file), "--any-key"]) == 0
    (intent,) = arrived()
    assert list(intent.action.keys) == ["s3://bucket/k-00000008"]


def test_a_missing_file_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that cannot be read is reported, with exit code 2."""
    assert run(["intents", "emit", "--file", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.slow
def test_an_unreachable_broker_is_an_environment_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers that are away are given up before anything is sent, within 15 s, with exit code 75."""
    monkeypatch.setenv("SEXTON_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    file = tmp_path / "f.jsonl"
    file.write_text(json.dumps(GOOD))
    began = time.monotonic()

    assert run(["intents", "emit", "--file", str(file)]) == 75
    printed = capsys.readouterr()
    assert time.monotonic() - began < 15
    assert printed.out == ""
    assert "the brokers do not answer: 127.0.0.1:1" in printed.err


def test_a_topic_that_is_not_there_is_told_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, with an outcome about the prefix, and nothing is sent."""
    monkeypatch.setenv("SEXTON_TOPIC_PREFIX", "foo.")
    file = tmp_path / "f.jsonl"
    file.write_text(json.dumps(GOOD))
    began = time.monotonic()

    assert run(["intents", "emit", "--file", str(file)]) == 75
    printed = capsys.readouterr()
    assert time.monotonic() - began < 12
    assert printed.err.startswith("error: no such topic: foo.intents\n")
    assert "is SEXTON_TOPIC_PREFIX not 'foo.' there?" in printed.err


def test_what_is_not_acknowledged_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers that go away under way: one error with count, reason and first id, and no id on stdout."""
    monkeypatch.setenv("SEXTON_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setattr(commands, "_find_topic", lambda settings, timeout: None)
    file = tmp_path / "f.jsonl"
    file.write_text((json.dumps(GOOD | {"intent_id": "mi\x1bne"}) + "\n") * 2)

    assert run(["intents", "emit", "--file", str(file), "--timeout", "0.5"]) == 75
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("acknowledged") == 1
    assert "error: intents not acknowledged: 2 of 2: " in printed.err
    assert ": mi\\x1bne\n" in printed.err


def test_what_is_acknowledged_while_closing_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id is on stdout exactly if Kafka has its intent, in the file's order, however late it was."""
    late = _Late()
    monkeypatch.setattr(Emitter, "open", lambda *_, **__: Emitter(late, "sexton.intents", Codec(), Limits()))
    file = tmp_path / "f.jsonl"
    file.write_text("".join(json.dumps(GOOD | {"intent_id": each}) + "\n" for each in "abc"))

    assert run(["intents", "emit", "--file", str(file), "--timeout", "0.3"]) == 0
    printed = capsys.readouterr()
    assert printed.out.split() == ["a", "b", "c"]
    assert "3 of 3 intents acknowledged" in printed.err


def test_an_id_cannot_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arrived: Arrived
) -> None:
    """One line for each id, in which nothing moves a cursor; the JSON has the id itself."""
    file = tmp_path / "f.jsonl"
    file.write_text(json.dumps(GOOD | {"intent_id": "a\nb\x1b[31m"}))

    assert run(["intents", "emit", "--file", str(file)]) == 0
    assert capsys.readouterr().out == "a\\nb\\x1b[31m\n"
    assert run(["intents", "emit", "--file", str(file), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["intent_id"] == "a\nb\x1b[31m"


class _Late(FakeTransport):
    """Acknowledges nothing before it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.hold = True

    def close(self, deadline: Deadline) -> None:
        """Acknowledge all."""
        self.release()
        super().close(deadline)
