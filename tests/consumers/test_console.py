"""`sexton tail` and `sexton intents status`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.schemas.samples import INTENT, SAMPLES

from sexton.consumers.output import coloured, summary
from sexton.deploy.main import run
from sexton.schemas import events
from sexton.schemas.codec import Codec
from sexton.schemas.text import printable

Write = Callable[..., None]
Capture = pytest.CaptureFixture[str]
NOW = datetime(2026, 3, 1, tzinfo=UTC)
PLACE = events.Position("id", 0, 0)
DONE = [(events.OutcomeKind.DELETED, [0, 2, 5, 6]), (events.OutcomeKind.ABSENT, [2, 3])]


def _tail(capsys: Capture, topic: str) -> list[dict[str, object]]:
    assert run(["tail", topic, "--until-end", "--format", "json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_tail_shows_decoded_records(settings: object, write: Write, capsys: Capture) -> None:
    """Each record is one JSON line with position, key, headers and its fields."""
    write("intents", INTENT, key=b"tenant-42")
    for topic in ("intents", "sexton.intents"):
        (line,) = _tail(capsys, topic)

        assert (line["topic"], line["partition"], line["offset"]) == ("sexton.intents", 0, 0)
        assert (line["key"], line["type"]) == ("tenant-42", "DeletionIntent")
        assert line["headers"]["intent-id"] == INTENT.intent_id  # type: ignore[index]
        assert line["value"]["action"]["DeleteObjects"]["bucket"] == "bucket"  # type: ignore[index]


@pytest.mark.parametrize(
    "value", [b"", b"\x00", b"\x00garbage", b"\xc3\x01" + b"x" * 8, Codec().encode(INTENT) + b"x"]
)
def test_tail_shows_undecodable_records_raw(
    settings: object, write: Write, capsys: Capture, value: bytes
) -> None:
    """What cannot be decoded is shown in hex with the reason, and what follows it is shown too."""
    write("intents", value, INTENT)
    first, second = _tail(capsys, "intents")

    assert first["raw"] == value.hex()
    assert first["error"]["reason"]  # type: ignore[index]
    assert second["type"] == "DeletionIntent"
    assert run(["tail", "intents", "--until-end"]) == 0
    assert f"undecodable: {first['error']['reason']}" in capsys.readouterr().out  # type: ignore[index]


def test_tail_shows_null_values(settings: object, write: Write, capsys: Capture) -> None:
    """A null value is shown as one."""
    write("outcomes", None, key=b"k")
    (line,) = _tail(capsys, "outcomes")

    assert line["raw"] is None
    assert run(["tail", "outcomes", "--until-end"]) == 0
    assert "(null value)" in capsys.readouterr().out


@pytest.mark.parametrize("name", SAMPLES)
def test_tail_has_a_line_for_every_kind(settings: object, write: Write, capsys: Capture, name: str) -> None:
    """Each kind of record is one line of text that begins with its position."""
    write("intents", Codec().encode(SAMPLES[name]))
    assert run(["tail", "intents", "--until-end"]) == 0
    (line,) = capsys.readouterr().out.splitlines()

    assert line.startswith("0/0 ")
    assert type(SAMPLES[name]).__name__ in line


def test_a_key_cannot_move_the_terminals_cursor(settings: object, write: Write, capsys: Capture) -> None:
    """Control characters of names are escaped in text, and never lost in JSON."""
    evil = "k\x1b[2J\u202e"
    guards = [events.PromiseGuard("op")]
    write("intents", events.DeletionIntent("i", "t", NOW, "n", guards, events.DeleteObjects("b", [[evil]])))
    assert run(["tail", "intents", "--until-end"]) == 0
    shown = capsys.readouterr().out

    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert printable(evil) in shown
    assert _tail(capsys, "intents")[0]["value"]["action"]["DeleteObjects"]["phases"] == [[evil]]  # type: ignore[index]


def test_tail_of_an_unreachable_broker_is_an_environment_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Exit code 75, and a hint which setting to look at."""
    monkeypatch.setenv("SEXTON_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")

    assert run(["tail", "intents", "--until-end", "--timeout", "0.5"]) == 75
    assert "SEXTON_KAFKA_BOOTSTRAP_SERVERS" in capsys.readouterr().err


def _intent(*keys: str) -> events.DeletionIntent:
    guards = [events.GenerationGuard("t", 8)]
    return events.DeletionIntent("i", "t", NOW, "n", guards, events.DeleteObjects("b", [list(keys)]))


def _outcome(kind: events.OutcomeKind, intent_id: str = "i") -> events.Outcome:
    verdict = events.Verdict(events.VerdictResult.PASS, "in-window", "", 1)
    return events.Outcome(intent_id, "t", "b", kind, 1, {kind: 1}, [], verdict, PLACE, [], NOW)


def _status(capsys: Capture, intent_id: str = "i") -> dict[str, object]:
    assert run(["intents", "status", intent_id, "--format", "json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_status_is_pending_until_an_outcome_stands_there(
    settings: object, write: Write, capsys: Capture
) -> None:
    """An intent without an outcome is pending, with the position at which it stands."""
    write("intents", _intent("a", "b"))
    write("outcomes", _outcome(events.OutcomeKind.STALE, "another"))
    status = _status(capsys)

    assert (status["state"], status["final"]) == ("pending", False)
    assert status["pending_keys"] == ["a", "b"]
    assert status["positions"] == ["0/0"]


def test_status_is_folded_by_precedence(settings: object, write: Write, capsys: Capture) -> None:
    """J-9: a later `stale` or dead letter does not undo `deleted`."""
    write("intents", _intent("a"), _intent("a"))
    write("outcomes", _outcome(events.OutcomeKind.DELETED), _outcome(events.OutcomeKind.STALE))
    write("dead-letters", events.DeadLetter("t", PLACE, NOW, "r", "", "i", "t", "b", [], None, None, NOW))
    status = _status(capsys)

    assert (status["state"], status["final"]) == ("deleted", True)
    assert status["keys"] == {"a": "deleted"}
    assert len(status["records"]) == 3  # type: ignore[arg-type]


def test_status_sees_a_deferred_intent(settings: object, write: Write, capsys: Capture) -> None:
    """An intent that waits is pending, and what it waits for is reported."""
    raw = Codec().encode(_intent("a"))
    write("deferred", events.DeferredIntent(PLACE, NOW, "not-yet", "not_before", 1, None, b"t", raw))
    status = _status(capsys)

    assert status["state"] == "pending"
    assert status["deferred"][0]["reason"] == "not-yet"  # type: ignore[index]


def test_tail_tells_how_far_an_intent_has_come(settings: object, write: Write, capsys: Capture) -> None:
    """Of an intent that waits it is told how many of its keys, or objects, are gone."""
    waits = events.DeferredIntent(PLACE, NOW, "SlowDown", "busy", 2, None, b"t", b"")
    done = [events.DoneKeys(kind, "", ends) for kind, ends in DONE]
    keys = events.KeyProgress(done, [3, 4], None, [])
    write("deferred", waits, replace(waits, keys=keys), replace(waits, gone=7))
    assert run(["tail", "deferred", "--until-end"]) == 0

    shown = [line.partition("attempt ")[2] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["2 SlowDown: busy", "2 (4 gone) SlowDown: busy", "2 (7 gone) SlowDown: busy"]


def test_status_finds_records_written_without_headers(
    settings: object, write: Write, capsys: Capture
) -> None:
    """Headers only spare decoding: an intent of another writer is found by its bytes."""
    write("intents", b"garbage", Codec().encode(_intent("a")), headers=[])

    assert _status(capsys)["positions"] == ["0/1"]


def test_status_in_text_names_keys_and_what_was_said(settings: object, write: Write, capsys: Capture) -> None:
    """The text has the state, what was asked for, each record and each key, without colour codes."""
    write("intents", _intent("a"))
    write("outcomes", _outcome(events.OutcomeKind.ABSENT))
    assert run(["intents", "status", "i"]) == 0
    shown = capsys.readouterr().out

    assert shown.splitlines()[0] == "i  absent"
    assert "if generation t@8" in shown
    assert "absent=1 verdict pass (in-window)" in shown
    assert "\x1b" not in shown


def test_an_outcome_without_counts_has_no_gap() -> None:
    """Of a prefix under which nothing was: nothing stands where the counts would."""
    outcome = replace(_outcome(events.OutcomeKind.ABSENT), counts={})

    assert summary(outcome) == "i absent verdict pass (in-window)"


def test_status_in_text_is_a_summary(settings: object, write: Write, capsys: Capture) -> None:
    """Keys are counted by their outcome; those that are not gone are named, some of them, and JSON has
    all.
    """
    keys = [f"k{number:03}" for number in range(100)]
    changed = [events.KeyOutcome(key, events.OutcomeKind.CHANGED, "") for key in keys[:30]]
    outcome = replace(
        _outcome(events.OutcomeKind.CHANGED),
        counts={events.OutcomeKind.CHANGED: 30, events.OutcomeKind.DELETED: 70},
        exceptions=changed,
    )
    write("intents", _intent(*keys))
    assert run(["intents", "status", "i"]) == 0
    pending = capsys.readouterr().out.splitlines()
    write("outcomes", outcome)
    assert run(["intents", "status", "i"]) == 0
    shown = capsys.readouterr().out.splitlines()

    assert pending[-1] == "  keys      100 pending"
    assert "  keys      30 changed, 70 deleted" in shown
    assert [line.split()[1] for line in shown if line.startswith("    changed ")] == keys[:20]
    assert shown[-1] == "    and 10 more that are not gone: --format json has every key"
    assert set(_status(capsys)["keys"]) == set(keys)  # type: ignore[call-overload]


def test_status_of_an_unknown_intent_fails(settings: object, capsys: Capture) -> None:
    """An id that no record names is exit code 1."""
    assert run(["intents", "status", "nope"]) == 1
    reported = capsys.readouterr().err
    assert "no record names the intent: nope" in reported
    assert "hint: is the id right? `sexton tail intents --until-end`" in reported


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An outcome is coloured on a terminal, and never with NO_COLOR."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert coloured("deleted") == "\x1b[32mdeleted\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured("deleted") == "deleted"
