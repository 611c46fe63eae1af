"""What a replay would write: the rules alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.consumers.dead_letters import Filters, Letter, Place, instant_of, open_letter
from sexton.consumers.replays import Evidence, Step, Way, mend, plan, restrict
from sexton.schemas import events
from sexton.schemas.codec import Codec
from sexton.schemas.errors import InvalidEvent, UsageError

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIRST = events.Position("intents-id", 3, 17)
PROMISE = events.PromiseGuard("op")
KEYS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4)


def intent(*phases: Sequence[str], guards: Sequence[events.Guard] = (PROMISE,)) -> events.DeletionIntent:
    """Return an intent with these phases of keys."""
    return events.DeletionIntent("first", "t", NOW, "n", guards, events.DeleteObjects("bucket", phases))


def letter(
    content: events.DeletionIntent | bytes | None,
    *keys: str,
    offset: int = 0,
    topic: str = "sexton.intents",
    position: events.Position = FIRST,
    died: datetime = NOW,
) -> Letter:
    """Return an opened dead letter about a record with this content."""
    raw = Codec().encode(content) if isinstance(content, events.DeletionIntent) else content
    reported = content if isinstance(content, events.DeletionIntent) else None
    event = events.DeadLetter(
        topic=topic,
        position=position,
        written_at=NOW,
        reason="AccessDenied",
        detail="",
        intent_id=reported.intent_id if reported else None,
        tenant=reported.tenant if reported else None,
        bucket="bucket" if reported else None,
        keys=keys,
        raw_key=b"t",
        raw_value=raw,
        dead_at=died,
    )
    return open_letter(Codec(), Place(0, offset), event, "sexton.deferred")


def planned(*letters: Letter, again: bool = False, **replays: Sequence[str]) -> list[Step]:
    """Return the plan when all bytes stand; `replays` are by place as `at_OFFSET`."""
    known = {each.place: replays.get(f"at_{each.place.offset}", ()) for each in letters}
    evidence = Evidence(frozenset(known), known)
    ids = (f"new-{number}" for number in itertools.count(1))
    return plan(letters, evidence, again=again, now=NOW, emitter="me", new_id=lambda: next(ids))


def test_a_replay_is_a_new_intent_for_the_keys_that_failed() -> None:
    """It links to the first record, keeps its position and guards, and names no key that went well."""
    asked = intent(["meta"], ["a", "b", "c"], guards=[events.GenerationGuard("t", 8)])
    (step,) = planned(letter(asked, "c", "a"))

    assert (step.way, step.first, step.keys) == (Way.UNCHANGED, FIRST, 2)
    assert step.intent == replace(
        asked,
        intent_id="new-1",
        emitter="me",
        guards=(events.GenerationGuard("t", 8),),
        action=events.DeleteObjects("bucket", (("a", "c"),)),
        replay_of=events.ReplayOf("sexton.intents", "intents-id", 3, 17, "first"),
    )


def test_a_letter_without_keys_is_about_all_of_them() -> None:
    """No key named means that the whole intent failed."""
    (step,) = planned(letter(intent(["a"], ["b"])))

    assert step.intent is not None
    assert step.intent.action == events.DeleteObjects("bucket", [["a"], ["b"]])


@given(st.lists(KEYS, min_size=1, max_size=4), st.lists(st.sampled_from("abcdefghxy"), max_size=5))
def test_a_replay_never_asks_for_more_than_the_first(phases: list[list[str]], failed: list[str]) -> None:
    """Of each phase exactly the failed keys are left, in order; guards and bucket are those of the first."""
    conditions = [events.KeyCondition(key, "etag") for phase in phases for key in phase]
    asked = intent(*phases, guards=[PROMISE, events.UnchangedGuard(conditions)])
    cut = restrict(asked, failed)

    if not failed:
        assert cut == asked
        return
    expected = [left for phase in phases if (left := [key for key in phase if key in failed])]
    if cut is None:
        assert expected == []
        return
    assert isinstance(cut.action, events.DeleteObjects)
    assert [list(phase) for phase in cut.action.phases] == expected
    assert cut.action.bucket == "bucket"
    promise, unchanged = cut.guards
    assert promise == PROMISE
    assert isinstance(unchanged, events.UnchangedGuard)
    assert list(unchanged.conditions) == [each for each in conditions if each.key in failed]


def test_a_prefix_is_replayed_whole() -> None:
    """A prefix is listed again: what is gone is not found, so it needs no cutting."""
    asked = replace(intent(["k"]), action=events.DeletePrefix("bucket", "a/"))
    (step,) = planned(letter(asked, "a/1", "a/2"))

    assert step.intent is not None
    assert (step.way, step.intent.action) == (Way.UNCHANGED, asked.action)


def test_letters_of_one_record_are_one_step() -> None:
    """A micro-batch that was processed twice wrote its letters twice: one replay, for every key named."""
    asked = intent(["a", "b", "c"])
    later = NOW + timedelta(seconds=1)
    (step,) = planned(letter(asked, "b", offset=7, died=later), letter(asked, "a", offset=3))

    assert [str(each.place) for each in step.letters] == ["0/3", "0/7"]
    assert step.keys == 2
    (whole,) = planned(letter(asked, "b", offset=7), letter(asked, offset=3))
    assert whole.keys == 3


def test_what_was_replayed_is_skipped_unless_asked_for_again() -> None:
    """The plan names the replays that there are; `--again` makes one more."""
    one = letter(intent(["a"]))
    (skipped,) = planned(one, at_0=["replay-1"])
    (again,) = planned(one, again=True, at_0=["replay-1"])

    assert (skipped.way, skipped.writes, skipped.replays) == (Way.SKIPPED, False, ("replay-1",))
    assert (again.way, again.replays) == (Way.UNCHANGED, ("replay-1",))


def test_a_position_is_kept_only_where_the_bytes_stand() -> None:
    """I4: whoever can write dead letters cannot give an old generation's rights to other bytes."""
    ids = iter(["x"])
    (step,) = plan(
        [letter(intent(["a"]))], Evidence(), again=False, now=NOW, emitter="me", new_id=lambda: next(ids)
    )

    assert step.way is Way.IMPOSSIBLE
    assert "no longer stand at 3/17" in step.why


def test_undecodable_bytes_are_replayed_as_they_are() -> None:
    """What another process may be able to read keeps its bytes and its position; a null value is nothing."""
    raw, null = planned(letter(b"\xc3\x01garbage!"), letter(None, offset=1))

    assert (raw.way, raw.intent, raw.first) == (Way.RAW, None, FIRST)
    assert "unknown-schema" in raw.why
    assert (null.way, null.why) == (Way.IMPOSSIBLE, "the record has no value")
    (registered,) = planned(letter(b"\0\0\0\0\7garbage"))
    assert (registered.way, "no-registry" in registered.why) == (Way.RAW, True)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"hello", "unframed"),
        (b"", "empty"),
        (Codec().encode(intent(["a"]))[:-1], "malformed"),
        (Codec().encode(intent(["a"])) + b"x", "trailing-bytes"),
        (Codec().encode(events.Dropped("r", "n", "t", NOW)), "wrong-type"),
    ],
)
def test_bytes_that_no_reaper_reads_cannot_be_replayed(value: bytes, reason: str) -> None:
    """As they are they would only become another dead letter."""
    (step,) = planned(letter(value))

    assert (step.way, step.why) == (Way.IMPOSSIBLE, f"{reason}: it would die again, mend it")


@pytest.mark.parametrize("kept", [None, 100])
def test_what_is_too_large_cannot_be_replayed(kept: int | None) -> None:
    """Whole it is too large again; and the dead letter may hold its beginning alone."""
    whole = letter(intent(["a" * 1_000]))
    event = replace(whole.event, reason="too-large", raw_value=(whole.event.raw_value or b"")[:kept])
    (step,) = planned(open_letter(Codec(), whole.place, event, "sexton.deferred"))

    assert (step.way, step.why.partition(",")[0]) == (Way.IMPOSSIBLE, "too-large as it is")


def test_what_breaks_a_rule_cannot_be_replayed_unchanged() -> None:
    """It would only die again; cut down to keys that are sound it can be."""
    (bad,) = planned(letter(intent([""], ["a"])))
    (sound,) = planned(letter(intent([""], ["a"]), "a"))
    (foreign,) = planned(letter(intent(["a"]), "z"))

    assert (bad.way, sound.way, foreign.way) == (Way.IMPOSSIBLE, Way.UNCHANGED, Way.IMPOSSIBLE)
    assert "a key is empty" in bad.why


def test_the_position_inside_a_deferred_copy_counts_where_it_stood_in_deferred() -> None:
    """A copy that stood in `intents` was written by anybody: the position inside it is not believed."""
    inner = Codec().encode(intent(["a"]))
    copy = events.DeferredIntent(FIRST, NOW, "held", "", 2, None, b"t", inner, effect_unknown=True, gone=4)
    there = events.Position("deferred-id", 0, 5)
    raw = Codec().encode(copy)
    expected = letter(raw, topic="sexton.deferred", position=there)
    forged = letter(raw, topic="sexton.intents", position=there)

    assert (expected.first, expected.intent_id, expected.waited) == (FIRST, "first", copy)
    assert (forged.first, forged.intent_id, forged.waited) == (there, None, None)
    unreadable = letter(b"\xff", topic="sexton.deferred", position=there)
    assert planned(unreadable)[0].way is Way.IMPOSSIBLE


def test_mended_content_has_no_position() -> None:
    """It is a new intent under another id, with a link; a rule that it breaks is reported."""
    one = letter(intent(["a"]))
    ids = iter(["new"])
    step = mend(one, intent(["b"]), Evidence(), again=False, new_id=lambda: next(ids))

    assert (step.way, step.first) == (Way.MENDED, None)
    assert step.intent is not None
    assert (step.intent.intent_id, step.intent.replay_of) == ("new", one.source)
    named = replace(intent(["b"]), intent_id="mine")
    mine = mend(one, named, Evidence(), again=False, new_id=lambda: "no").intent
    assert mine is not None
    assert mine.intent_id == "mine"
    with pytest.raises(InvalidEvent, match="guard"):
        mend(one, intent(["b"], guards=[]), Evidence(), again=False, new_id=lambda: "x")
    done = Evidence(replays={one.place: ["r"]})
    assert mend(one, intent(["b"]), done, again=False, new_id=lambda: "x").way is Way.SKIPPED
    assert mend(one, intent(["b"]), done, again=True, new_id=lambda: "x").way is Way.MENDED


def test_filters_must_all_agree() -> None:
    """Reason, tenant, bucket and time of death; the tenant of what is unreadable is that of its key."""
    one, unreadable = letter(intent(["a"])), letter(b"\xff")

    assert not Filters()
    assert Filters().take(one)
    assert Filters(frozenset(["AccessDenied", "x"]), frozenset("t"), frozenset(["bucket"])).take(one)
    assert not Filters(frozenset(["AccessDenied"]), frozenset("u")).take(one)
    assert Filters(tenants=frozenset("t")).take(unreadable)
    assert not Filters(buckets=frozenset(["bucket"])).take(unreadable)
    assert Filters(since=NOW).take(one)
    assert not Filters(until=NOW).take(one)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2h", NOW - timedelta(hours=2)),
        ("90s", NOW - timedelta(seconds=90)),
        ("1w", NOW - timedelta(weeks=1)),
        ("2026-02-28T12:00:00Z", NOW - timedelta(days=1)),
        ("2026-03-01T13:00:00+01:00", NOW),
    ],
)
def test_an_instant_is_absolute_or_so_long_ago(text: str, instant: datetime) -> None:
    """ISO 8601 with a zone, or a number with a unit."""
    assert instant_of(text, NOW) == instant


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-03-01", "2026-03-01T12:00:00", "2y", "-2h", "999999999w"]
)
def test_what_is_no_instant_is_wrong_usage(text: str) -> None:
    """A local time could mean any hour of a day, so it is refused too."""
    with pytest.raises(UsageError):
        instant_of(text, NOW)
