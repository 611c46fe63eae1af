"""`sexton dead-letters replay` on a real broker: what is written, and what the console then tells."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from sexton.consumers.status import count_all, look_up
from sexton.consumers.topics import Raw, read
from sexton.deploy.local import Installation
from sexton.deploy.main import run
from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.settings import Settings

pytestmark = pytest.mark.real

Capture = pytest.CaptureFixture[str]
NOW = datetime(2026, 3, 1, tzinfo=UTC)
FOREIGN = b"\xc3\x01garbage!"  # of a schema that nobody here knows


@dataclass
class Desk:
    """Writes records and dead letters about them, and runs the command."""

    settings: Settings
    capsys: Capture

    def put(self, topic: str, value: bytes, key: bytes | None = None, partition: int = 0) -> tuple[int, int]:
        """Write one record; returns partition and offset."""
        landed: list[tuple[int, int]] = []
        producer = Producer(self.settings.kafka(acks="all"))
        producer.produce(
            self.settings.topic(topic),
            value,
            key,
            partition=partition,
            on_delivery=lambda error, message: landed.append((message.partition(), message.offset())),  # type: ignore[arg-type]
        )
        assert producer.flush(20) == 0
        return landed[0]

    def die(self, content: events.DeletionIntent | bytes, *keys: str, **changes: Any) -> str:
        """Write a record to intents and a dead letter about it; returns the letter's place."""
        raw = content if isinstance(content, bytes) else Codec().encode(content)
        partition, offset = self.put(records.INTENTS, raw, b"t", partition=1)
        reported = content if isinstance(content, events.DeletionIntent) else None
        topic = self.settings.topic(records.INTENTS)
        letter = events.DeadLetter(
            topic=topic,
            position=events.Position(Cluster(self.settings).topic_id(topic) or "", partition, offset),
            written_at=NOW,
            reason="AccessDenied" if reported else "unframed",
            detail="",
            intent_id=reported.intent_id if reported else None,
            tenant="t" if reported else None,
            bucket="bucket" if reported else None,
            keys=keys,
            raw_key=b"t",
            raw_value=raw,
            dead_at=NOW,
        )
        return self.letter(replace(letter, **changes))

    def letter(self, letter: events.DeadLetter) -> str:
        """Write a dead letter; returns its place."""
        partition, offset = self.put(records.DEAD_LETTERS, Codec().encode(letter))
        return f"{partition}/{offset}"

    def replay(self, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        """Run the command; returns its steps."""
        self.capsys.readouterr()
        assert run(["dead-letters", "replay", "--format", "json", *arguments]) == code
        return [json.loads(line) for line in self.capsys.readouterr().out.splitlines()]

    def records(self, topic: str) -> list[Raw]:
        """Everything that stands in a topic."""
        return list(read(self.settings, topic))

    def deferred(self) -> list[events.DeferredIntent]:
        """Every deferred copy."""
        return [Codec().decode(r.value, events.DeferredIntent) for r in self.records(records.DEFERRED)]


@pytest.fixture
def desk(installation: Installation, capsys: Capture) -> Desk:
    """A desk on an installation of its own."""
    return Desk(installation.settings, capsys)


def intent(intent_id: str, *keys: str) -> events.DeletionIntent:
    """Return an intent of generation 8."""
    guards = [events.GenerationGuard("t", 8)]
    return events.DeletionIntent(
        intent_id, "t", NOW, "n", guards, events.DeleteObjects("bucket", [list(keys)])
    )


def test_the_plan_writes_nothing(desk: Desk) -> None:
    """Without --yes the steps are printed, with keys and position, and every topic is as it was."""
    place = desk.die(intent("one", "a", "b", "c"), "a", "b")
    (step,) = desk.replay(place)

    assert (step["place"], step["way"], step["keys"], step["written"]) == (place, "unchanged", 2, None)
    assert (step["first"]["partition"], step["first"]["offset"]) == (1, 0)
    assert desk.deferred() == []
    assert len(desk.records(records.INTENTS)) == 1


def test_a_replay_keeps_the_first_position(desk: Desk) -> None:
    """A deferred copy with the first position, a new intent id, a link, and only the keys that failed."""
    asked = intent("one", "a", "b", "c")
    place = desk.die(asked, "a", "c", passed_as_of=70)
    (step,) = desk.replay(place, "--yes")
    ((copy,), (record,)) = desk.deferred(), desk.records(records.DEFERRED)

    assert (copy.first.partition, copy.first.offset) == (1, 0)
    assert copy.first.topic_id == Cluster(desk.settings).topic_id(desk.settings.topic(records.INTENTS))
    assert (copy.reason, copy.attempt, copy.raw_key, copy.first_written_at) == ("replay", 1, b"t", NOW)
    assert copy.effect_unknown
    assert copy.passed_as_of == 70
    replay = Codec().decode(copy.raw_value, events.DeletionIntent)
    assert replay.intent_id == step["intent_id"] != "one"
    assert replay.guards == asked.guards
    assert replay.action == events.DeleteObjects("bucket", [["a", "c"]])
    assert replay.replay_of is not None
    assert (replay.replay_of.intent_id, replay.replay_of.offset) == ("one", 0)
    assert record.partition == 0
    assert record.header("intent-id") == replay.intent_id
    assert record.header("replay-of") == f"{desk.settings.topic(records.INTENTS)}/1/0"


def test_a_second_replay_needs_again(desk: Desk) -> None:
    """What was replayed is skipped and the replay is named; --again writes one more."""
    place = desk.die(intent("one", "a"))
    (first,) = desk.replay(place, "--yes")
    (second,) = desk.replay("one", "--yes")
    (third,) = desk.replay("--all", "--again", "--yes")

    assert (second["way"], second["replays"], second["written"]) == ("skipped", [first["intent_id"]], None)
    assert (third["way"], third["replays"]) == ("unchanged", [first["intent_id"]])
    assert len(desk.deferred()) == 2


def test_a_replay_that_died_too_can_be_replayed(desk: Desk) -> None:
    """Its letter is another one than the first, though both name the same position."""
    place = desk.die(intent("one", "a", "b"), "a")
    (first,) = desk.replay(place, "--yes")
    (copy,) = desk.deferred()
    topic = desk.settings.topic(records.INTENTS)
    names = {"intent_id": first["intent_id"], "tenant": "t", "bucket": "bucket", "keys": [], "raw_key": b"t"}
    again = desk.letter(
        events.DeadLetter(
            topic, copy.first, NOW, "AccessDenied", "", **names, raw_value=copy.raw_value, dead_at=NOW
        )
    )
    by_place = {step["place"]: step for step in desk.replay("--reason", "AccessDenied", "--yes")}

    assert by_place[place]["way"] == "skipped"
    assert (by_place[again]["way"], by_place[again]["of"]["intent_id"]) == ("unchanged", first["intent_id"])
    assert [each.first for each in desk.deferred()] == [copy.first, copy.first]


def test_raw_bytes_are_copied_as_they_are(desk: Desk) -> None:
    """Bytes that cannot be read here keep every byte; a second time they are known to be replayed."""
    place = desk.die(FOREIGN)
    (step,) = desk.replay(place, "--yes")
    (again,) = desk.replay(place, "--yes")
    (copy,) = desk.deferred()

    assert (step["way"], step["keys"]) == ("raw", None)
    assert (copy.raw_value, copy.first.offset, copy.reason) == (FOREIGN, 0, "replay")
    assert (again["way"], again["replays"]) == ("skipped", [f"{desk.settings.topic(records.DEFERRED)} 0/0"])


def test_a_forged_letter_is_not_believed(desk: Desk) -> None:
    """I4: other bytes than those at the position, or a position in another topic, are not replayed."""
    desk.die(intent("one", "a"))
    forged = Codec().encode(intent("two", "live"))
    other = desk.die(intent("three", "a"), raw_value=forged)
    moved = desk.die(intent("four", "a"), position=events.Position("another-topic-id", 1, 2))
    steps = {step["place"]: step for step in desk.replay(other, moved, "--yes", code=1)}

    assert steps[other]["way"] == steps[moved]["way"] == "impossible"
    assert desk.deferred() == []


def test_mended_content_is_a_new_intent(desk: Desk, tmp_path: Path) -> None:
    """It goes to the intents topic, with a link and without a position."""
    place = desk.die(intent("one", "a"))
    file = tmp_path / "mended.jsonl"
    guard = {"GenerationGuard": {"tenant": "t", "generation": 9}}
    line = {"intent_id": "one", "tenant": "t", "guards": [guard]}
    file.write_text(
        json.dumps({**line, "action": {"DeleteObjects": {"bucket": "bucket", "phases": [["a"]]}}})
    )
    (plan,) = desk.replay(place, "--mended", str(file))
    assert len(desk.records(records.INTENTS)) == 1
    (step,) = desk.replay(place, "--mended", str(file), "--yes")
    stand = [Codec().decode(r.value, events.DeletionIntent) for r in desk.records(records.INTENTS)]
    by_id = {each.intent_id: each for each in stand}

    assert (plan["way"], plan["first"], plan["written"]) == ("mended", None, None)
    assert by_id.keys() == {"one", step["intent_id"]}
    assert desk.deferred() == []
    assert by_id[step["intent_id"]].replay_of == events.ReplayOf(**step["of"])
    (after,) = desk.replay(place)
    assert (after["way"], after["replays"]) == ("skipped", [step["intent_id"]])


def test_replays_are_counted_and_told_with_the_first(desk: Desk) -> None:
    """submitted = final + pending holds with replays in it, and the first's status names its replay."""
    desk.put(records.INTENTS, Codec().encode(intent("other", "x")))
    place = desk.die(intent("one", "a"))
    (step,) = desk.replay(place, "--yes")
    new = step["intent_id"]
    verdict = events.Verdict(events.VerdictResult.PASS, "pass", "", 1)
    at = events.Position("id", 1, 0)
    deleted = events.Outcome(
        new, "t", "bucket", events.OutcomeKind.DELETED, 1, {"deleted": 1}, [], verdict, at, [], NOW
    )

    before = count_all(desk.settings)
    assert (before.submitted, before.settled, before.pending) == (3, 1, 2)
    assert look_up(desk.settings, new).folded().state == "pending"
    desk.put(records.OUTCOMES, Codec().encode(deleted), new.encode())
    after = count_all(desk.settings)
    assert (after.submitted, after.final, after.pending) == (
        3,
        {events.OutcomeKind.DELETED: 1, events.OutcomeKind.DEAD_LETTERED: 1},
        1,
    )
    first = look_up(desk.settings, "one")
    assert first.folded().state == "dead-lettered"
    assert {name: each.folded().state for name, each in first.replays.items()} == {new: "deleted"}
    desk.capsys.readouterr()
    assert run(["intents", "status", "one"]) == 0
    assert f"replayed  as {new}: deleted" in desk.capsys.readouterr().out
    assert run(["intents", "status", new]) == 0
    assert "  replays   one" in desk.capsys.readouterr().out
    assert run(["intents", "status"]) == 0
    assert desk.capsys.readouterr().out.splitlines()[0].split() == ["submitted", "3"]


def test_the_command_works_as_a_process(desk: Desk, cli: Callable[..., Any]) -> None:
    """The plan goes to stdout, what was done to stderr, and exit codes are those of the surface."""
    place = desk.die(intent("one", "a"))
    plan = cli("dead-letters", "replay", place)

    assert (plan.returncode, plan.stdout.split()[:2]) == (0, [place, "unchanged"])
    assert "nothing is written without --yes" in plan.stderr
    assert cli("dead-letters", "replay").returncode == 2
    assert cli("dead-letters", "show", "2/99").returncode == 1
