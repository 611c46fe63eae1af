"""`sexton dead-letters list` and `show`, and what `replay` refuses before it looks at anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.schemas.samples import INTENT, SAMPLES

from sexton.consumers.dead_letters_output import hex_lines
from sexton.deploy.main import run
from sexton.schemas import events
from sexton.schemas.codec import Codec

Write = Callable[..., None]
Capture = pytest.CaptureFixture[str]
NOW = datetime.now(UTC)
LETTER = events.DeadLetter(
    topic="sexton.intents",
    position=events.Position("intents-id", 3, 17),
    written_at=NOW - timedelta(hours=5),
    reason="AccessDenied",
    detail="Access Denied",
    intent_id=INTENT.intent_id,
    tenant="tenant-42",
    bucket="bucket",
    keys=["a-00000008"],
    raw_key=b"tenant-42",
    raw_value=Codec().encode(INTENT),
    dead_at=NOW - timedelta(hours=1),
)
GARBAGE = replace(
    LETTER,
    reason="unframed",
    intent_id=None,
    tenant=None,
    bucket=None,
    keys=[],
    raw_value=b"garbage \x00\xff~" * 3,
)


def _listed(capsys: Capture, *arguments: str) -> list[str]:
    assert run(["dead-letters", "list", "--format", "json", *arguments]) == 0
    return [json.loads(line)["place"] for line in capsys.readouterr().out.splitlines()]


def test_the_list_has_a_line_for_each(settings: object, write: Write, capsys: Capture) -> None:
    """Place, reason, tenant, bucket, intent id, how many keys, first position; other records are left out."""
    write("dead-letters", LETTER, b"no letter", GARBAGE, SAMPLES["outcome"])
    assert run(["dead-letters", "list"]) == 0
    titles, first, second = capsys.readouterr().out.splitlines()

    assert titles.split() == ["PLACE", "DIED", "REASON", "TENANT", "BUCKET", "INTENT", "KEYS", "FIRST", "AT"]
    for title, reported in {
        "REASON": "AccessDenied",
        "INTENT": INTENT.intent_id,
        "FIRST": "sexton.in",
    }.items():
        assert titles.index(title) == first.index(reported)
    for reported in (
        "0/0 ",
        "AccessDenied",
        "tenant-42",
        "bucket",
        INTENT.intent_id,
        "1 key ",
        "intents 3/17",
    ):
        assert reported in first
    assert "0/2 " in second
    assert "? keys" in second
    assert run(["dead-letters", "list", "--format", "json"]) == 0
    reported = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (reported["partition"], reported["offset"], reported["keys"]) == (0, 0, 1)
    assert reported["first"] == {"topic_id": "intents-id", "partition": 3, "offset": 17}


def test_the_list_is_filtered(settings: object, write: Write, capsys: Capture) -> None:
    """By reason, tenant, bucket and time of death, all of which must agree."""
    write("dead-letters", LETTER, GARBAGE, replace(LETTER, dead_at=NOW - timedelta(days=3)), partition=1)

    assert _listed(capsys) == ["1/0", "1/1", "1/2"]
    assert _listed(capsys, "--reason", "unframed") == ["1/1"]
    assert _listed(capsys, "--reason", "unframed", "--reason", "AccessDenied", "--since", "2h") == [
        "1/0",
        "1/1",
    ]
    assert _listed(capsys, "--tenant", "tenant-42", "--bucket", "bucket", "--until", "2d") == ["1/2"]
    assert _listed(capsys, "--tenant", "nobody") == []
    assert _listed(capsys, "--since", (NOW - timedelta(hours=2)).isoformat()) == ["1/0", "1/1"]


@pytest.mark.parametrize("command", ["list", "replay"])
def test_filters_that_take_nothing_are_answered_with_the_reasons(
    settings: object, write: Write, capsys: Capture, command: str
) -> None:
    """A misspelt reason is no error; which there are, of those that are named, is reported on stderr."""
    write("dead-letters", LETTER, GARBAGE, LETTER)

    assert run(["dead-letters", command, "--reason", "AccessDenid"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    reported = "nothing passes the filters; reasons that are there: AccessDenied (2), unframed (1)\n"
    assert printed.err.startswith(reported)
    assert run(["dead-letters", "list", "--reason", "unframed"]) == 0
    assert "passes the filters" not in capsys.readouterr().err


def test_show_decodes_what_can_be_decoded(settings: object, write: Write, capsys: Capture) -> None:
    """The intent in its JSON form, the keys that failed; found by its place and by the intent's id."""
    write("dead-letters", GARBAGE, LETTER)
    for name in ("0/1", "0:1", INTENT.intent_id):
        assert run(["dead-letters", "show", name]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith("dead letter 0/1\n")
        assert "AccessDenied: Access Denied" in shown
        assert "    a-00000008\n" in shown
        assert '"phases": [' in shown
    assert run(["dead-letters", "show", "0/1", "--format", "json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["intent"]["action"]["DeleteObjects"]["bucket"] == "bucket"
    assert reported["failed_keys"] == ["a-00000008"]
    assert (reported["undecodable"], bytes.fromhex(reported["raw_value"])) == (None, LETTER.raw_value)


def test_show_prints_the_rest_as_hex(settings: object, write: Write, capsys: Capture) -> None:
    """Bytes that are no record stand in hex with an ASCII column; none reaches the terminal raw."""
    glued = Codec().encode(INTENT) + b"\x1b[2J!"
    write("dead-letters", GARBAGE, replace(GARBAGE, raw_value=glued), replace(GARBAGE, raw_value=None))
    assert run(["dead-letters", "show", "0/0"]) == 0
    shown = capsys.readouterr().out
    assert "undecodable (unframed: " in shown
    assert "  00000000  67 61 72 62 61 67 65 20  00 ff 7e 67 61 72 62 61  |garbage ..~garba|" in shown
    assert "  00000020  7e                       " in shown

    assert run(["dead-letters", "show", "0/1"]) == 0
    shown = capsys.readouterr().out
    assert "trailing-bytes" in shown
    assert '"intent_id"' in shown
    assert "and ends with 5 bytes more:" in shown
    assert "|.[2J!|" in shown
    assert "\x1b" not in shown
    assert run(["dead-letters", "show", "0/1", "--format", "json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["starts_with"]["type"] == "DeletionIntent"
    assert reported["undecodable"]["reason"] == "trailing-bytes"

    assert run(["dead-letters", "show", "0/2"]) == 0
    assert "record value: null" in capsys.readouterr().out


def test_a_name_without_a_letter_fails(settings: object, write: Write, capsys: Capture) -> None:
    """A place or id that no dead letter has is exit code 1, and is named."""
    write("dead-letters", LETTER)
    for arguments in (["show", "0/9"], ["show", "nope"], ["replay", "0/0", "2/2"]):
        assert run(["dead-letters", *arguments]) == 1
        reported = capsys.readouterr().err
        assert f"no such dead letter: {arguments[-1]}" in reported
        assert "hint: `sexton dead-letters list` shows them" in reported


def test_the_place_that_tail_prints_is_the_name(settings: object, write: Write, capsys: Capture) -> None:
    """What `tail` and `list` print first in a line names the dead letter, as it stands there."""
    write("dead-letters", LETTER)
    for command in (["tail", "dead-letters", "--until-end"], ["dead-letters", "list"]):
        assert run(command) == 0
        place = capsys.readouterr().out.splitlines()[-1].split()[0]

        assert run(["dead-letters", "show", place]) == 0
        assert capsys.readouterr().out.startswith(f"dead letter {place}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--yes"],
        ["--again", "--yes"],
        ["--all", "0/0"],
        ["--all", "--reason", "x"],
        ["--since", "yesterday"],
        ["--mended", "-", "--all"],
        ["--mended", "-", "0/0", "0/1"],
        ["--mended", "/no/such/file", "0/0"],
    ],
)
def test_nothing_is_replayed_that_was_not_asked_for(arguments: list[str], capsys: Capture) -> None:
    """Without names, filters or --all, or with what contradicts itself: wrong usage, Kafka is not asked."""
    assert run(["dead-letters", "replay", *arguments]) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 2), ("{}\n{}\n", 2), ("{", 2), ('{"tenant": "t", "tenant": "u"}', 2), ('{"tenant": "t"}', 2)],
)
def test_a_mended_file_is_one_intent(tmp_path: Path, text: str, code: int, capsys: Capture) -> None:
    """Anything else than one line with one whole intent is refused before Kafka is asked."""
    file = tmp_path / "mended.jsonl"
    file.write_text(text)

    assert run(["dead-letters", "replay", "0/0", "--mended", str(file)]) == code
    assert "internal" not in capsys.readouterr().err


def test_an_unreachable_broker_is_an_environment_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Exit code 75: nothing advanced."""
    monkeypatch.setenv("SEXTON_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    for verb in (["list"], ["show", "0/0"], ["replay", "--all", "--yes"]):
        assert run(["dead-letters", *verb, "--timeout", "0.5"]) == 75


def test_hex_counts_on_from_where_it_starts() -> None:
    """The offset column is the byte's place in the whole value."""
    assert list(hex_lines(b"A" * 17, 32))[1].startswith("  00000030  41 ")
    assert list(hex_lines(b"")) == []
