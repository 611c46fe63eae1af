"""The judge's rule, without any server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.issuer.client import Subject
from sexton.schemas import events
from sexton.schemas.events import VerdictResult
from sexton.schemas.guards import GuardRoom
from sexton.schemas.windows import Window
from sexton.streaming_jobs.reaper.judge import (
    Allowed,
    Facts,
    NotYet,
    Rules,
    judge,
    parse_allow,
    probes_under,
    subjects,
)

NOW = datetime(2026, 1, 2, tzinfo=UTC)
GUARD = events.GenerationGuard("t", 8)
PROMISE = events.PromiseGuard("drop")
DELETE = events.DeleteObjects("bucket", (("a/1", "a/2"),))


def intent(*guards: events.Guard, action: events.Action = DELETE) -> events.DeletionIntent:
    """An intent with these guards."""
    return events.DeletionIntent("id", "t", NOW, "test", guards, action)


def at(offset: int, partition: int = 0) -> events.Position:
    """A position in the intents topic."""
    return events.Position("topic", partition, offset)


def generations(asked: events.DeletionIntent) -> list[Subject]:
    """The generations that the issuer is asked about, for an intent in partition 0."""
    return [subject for subject in subjects(asked, 0) if isinstance(subject, Subject)]


def decide(
    asked: events.DeletionIntent,
    offset: int = 5,
    window: Window | None = None,
    *,
    known: bool = True,
    now: datetime = NOW,
    allow: Allowed = (),
) -> Any:
    """Judge an intent at an offset of partition 0, its generation having this window."""
    windows = dict.fromkeys(generations(asked), window) if known else {}
    rules = Rules(allow)
    return judge(asked, at(offset), Facts("topic", 77, now, windows), rules)


@pytest.mark.parametrize(
    ("offset", "window", "result", "reason"),
    [
        (5, Window(5, None), VerdictResult.PASS, "pass"),
        (4, Window(5, None), VerdictResult.NEVER, "claimed-early"),
        (9, Window(5, 10), VerdictResult.PASS, "pass"),
        (10, Window(5, 10), VerdictResult.NEVER, "superseded"),
        (5, None, VerdictResult.NEVER, "never-issued"),
    ],
)
def test_generation_guard_follows_the_window(
    offset: int, window: Window | None, result: VerdictResult, reason: str
) -> None:
    """J-8, J-11: an intent passes exactly inside its generation's window."""
    verdict = decide(intent(GUARD), offset, window)

    assert (verdict.result, verdict.reason, verdict.log_offset) == (result, reason, 77)


@pytest.mark.parametrize(
    ("offset", "ended", "reason", "reported"),
    [
        (9, None, "never-issued", "never issued in this form"),
        (9, 10, "never-issued", "never issued in this form"),
        (10, 10, "superseded", "generation 8 of 't' ended at or before offset 10"),
        (11, 0, "superseded", "generation 8 of 't' ended at or before offset 0"),
    ],
)
def test_a_forgotten_window_changes_the_reason_only(
    offset: int, ended: int | None, reason: str, reported: str
) -> None:
    """J-1: above a window that is forgotten the intent is superseded; below that nothing can be reported."""
    asked = intent(GUARD)
    (subject,) = generations(asked)
    forgotten = {} if ended is None else {subject: ended}

    verdict = judge(asked, at(offset), Facts("topic", 7, NOW, {subject: None}, forgotten))

    assert isinstance(verdict, events.Verdict)
    assert (verdict.result, verdict.reason) == (VerdictResult.NEVER, reason)
    assert reported in verdict.detail


@given(
    st.integers(0, 20),
    st.one_of(st.none(), st.builds(Window, st.integers(0, 20), st.one_of(st.none(), st.integers(0, 20)))),
    st.integers(0, 20),
)
def test_what_is_forgotten_lets_nothing_pass(offset: int, window: Window | None, ended: int) -> None:
    """I1: with what is forgotten and without it the result is the same, whatever window there is."""
    asked = intent(GUARD)
    (subject,) = generations(asked)

    without = judge(asked, at(offset), Facts("topic", 7, NOW, {subject: window}))
    verdict = judge(asked, at(offset), Facts("topic", 7, NOW, {subject: window}, {subject: ended}))

    assert isinstance(verdict, events.Verdict)
    assert isinstance(without, events.Verdict)
    assert verdict.result is without.result
    assert window is None or verdict == without


@pytest.mark.parametrize(
    ("offset", "ended", "result"),
    [(9, None, "never"), (9, 10, "pass"), (10, 10, "never"), (11, 0, "never")],
)
def test_a_recorded_pass_counts_below_the_end_of_what_is_forgotten(
    offset: int, ended: int | None, result: str
) -> None:
    """J-1: there a dead letter's pass is all that is known; elsewhere the log says that nothing passed."""
    asked = intent(GUARD)
    (subject,) = generations(asked)
    forgotten = {} if ended is None else {subject: ended}
    known = Facts("topic", 7, NOW, {subject: None}, forgotten)

    verdict = judge(asked, at(offset), known, passed=True)

    assert isinstance(verdict, events.Verdict)
    assert verdict.result.value == result
    for window in (Window(0), Window(0, offset), Window(offset + 1)):
        known = Facts("topic", 7, NOW, {subject: window}, forgotten)
        assert judge(asked, at(offset), known, passed=True) == judge(asked, at(offset), known)


def test_unknown_tenant_is_refused() -> None:
    """I-3: a tenant that the log does not know is refused, it does not pass and is not stale."""
    verdict = decide(intent(GUARD), known=False)

    assert (verdict.result, verdict.reason) == (VerdictResult.REFUSED, "unknown-tenant")


def test_promise_needs_no_log() -> None:
    """A promise passes by itself, and claims no log position."""
    verdict = decide(intent(PROMISE))

    assert (verdict.result, verdict.log_offset) == (VerdictResult.PASS, None)


def test_not_before_is_strict() -> None:
    """The clock must have passed the instant, strictly; until then the intent waits for that instant."""
    guard = events.NotBeforeGuard(NOW)

    assert decide(intent(guard)) == NotYet("not-before", f"until {NOW.isoformat()}", NOW)
    later = decide(intent(guard), now=NOW + timedelta(microseconds=1))
    assert later.result is VerdictResult.PASS


@dataclass(frozen=True, slots=True)
class LaterGuard(GuardRoom):
    """A guard that this reaper has no judge for."""


def test_guard_without_a_judge_never_passes() -> None:
    """I4: a guard that could not be judged has not passed, whatever stands beside it."""
    judgement = decide(intent(PROMISE, LaterGuard()))  # type: ignore[arg-type]

    assert isinstance(judgement, NotYet)
    assert judgement.reason == "guard-not-judged"


def test_action_without_an_executor_waits() -> None:
    """What nothing executes yet is not yet, never half done."""
    judgement = decide(intent(PROMISE, action=events.AdvanceHorizon("line", 1)))

    assert isinstance(judgement, NotYet)
    assert judgement.reason == "action-not-executed"


def test_what_touches_no_object_lies_in_no_allow_list() -> None:
    """X-18: an allow-list refuses no action without a place: it waits for a reaper that executes it."""
    asked = intent(PROMISE, action=events.AdvanceHorizon("line", 1))

    judgement = decide(asked, allow=parse_allow(["bucket/a/"]))

    assert isinstance(judgement, NotYet)
    assert judgement.reason == "action-not-executed"


@pytest.mark.parametrize(
    ("asks", "may", "reason"),
    [
        (True, True, "pass"),
        (True, False, "bypass-not-allowed"),
        (False, False, "pass"),
    ],
)
def test_retention_is_bypassed_where_the_reaper_may(asks: bool, may: bool, reason: str) -> None:
    """X-18: an intent that asks for it is refused for nothing but the reaper's own permission."""
    asked = intent(PROMISE, action=events.DeleteObjects("bucket", (("a",),), bypass_governance=asks))

    verdict = judge(asked, at(5), Facts("topic", 77, NOW), Rules(allow_bypass=may))

    assert isinstance(verdict, events.Verdict)
    assert verdict.reason == reason


KEY = events.DeleteObjects("bucket", (("a",),))
UNCHANGED = events.UnchangedGuard((events.KeyCondition("a", "etag"),))


@pytest.mark.parametrize(
    ("guards", "action", "reason"),
    [
        ((PROMISE,), events.DeleteObjects("bucket", (("a",),), bypass_governance=True), "bypass-not-allowed"),
        ((GUARD,), events.DeletePrefix("bucket", "a/"), "prefix-needs-promise"),
        ((PROMISE, UNCHANGED), events.DeletePrefix("bucket", "a/"), "unchanged-without-keys"),
        ((UNCHANGED,), events.DeleteObjects("bucket", (("a", "b"),)), "unguarded-key"),
        ((UNCHANGED,), KEY, "pass"),
        ((PROMISE, UNCHANGED), events.DeleteObjects("bucket", (("a", "b"),)), "pass"),
        ((PROMISE,), events.DeletePrefix("bucket", "a/"), "pass"),
    ],
)
def test_what_this_reaper_may_not_execute_is_refused(
    guards: tuple[events.Guard, ...], action: events.Action, reason: str
) -> None:
    """I4, X-18: a prefix needs its owner's promise, each key a guard, a bypass the reaper's own
    permission.
    """
    verdict = decide(intent(*guards, action=action), window=Window(0, None))

    assert verdict.reason == reason


@pytest.mark.parametrize(
    ("prefix", "depth", "reason"),
    [
        ("a/b/", 2, "pass"),
        ("a/", 2, "prefix-refused"),
        ("a//", 2, "prefix-refused"),
        ("a/", 0, "pass"),
        ("/", 0, "prefix-refused"),
        ("", 0, "prefix-refused"),
        ("a", 1, "prefix-refused"),
    ],
)
def test_x_16_a_prefix_lies_as_deep_as_the_settings_ask(prefix: str, depth: int, reason: str) -> None:
    """X-16: a prefix with fewer segments is refused, and a whole bucket whatever the settings say."""
    asked = intent(PROMISE, action=events.DeletePrefix("bucket", prefix))

    verdict = judge(asked, at(5), Facts("topic", 77, NOW), Rules(prefix_depth=depth))

    assert isinstance(verdict, events.Verdict)
    assert verdict.reason == reason


def test_a_position_of_another_topic_proves_nothing() -> None:
    """J-13: windows are offsets of the topic that is there now."""
    verdict = judge(
        intent(GUARD),
        events.Position("old", 0, 5),
        Facts("topic", 7, NOW, dict.fromkeys(generations(intent(GUARD)), Window(0, None))),
    )

    assert isinstance(verdict, events.Verdict)
    assert (verdict.result, verdict.reason) == (VerdictResult.NEVER, "another-topic")


def test_never_beats_not_yet() -> None:
    """A stale intent is settled at once: what is never true needs no waiting."""
    verdict = decide(intent(events.NotBeforeGuard(NOW), GUARD), 4, Window(5, None))

    assert verdict.result is VerdictResult.NEVER


def test_never_of_any_guard_wins_and_names_what_else_can_never_hold() -> None:
    """J-4: what can never hold comes before who is not known, which comes before what is not yet."""
    unknown, superseded = events.GenerationGuard("nobody", 1), GUARD
    asked = intent(unknown, events.NotBeforeGuard(NOW), superseded)
    windows = {generations(intent(superseded))[0]: Window(0, 3)}

    verdict = judge(asked, at(5), Facts("topic", 77, NOW, windows))

    assert isinstance(verdict, events.Verdict)
    assert (verdict.result, verdict.reason, verdict.log_offset) == (VerdictResult.NEVER, "superseded", 77)
    assert "ended at offset 3" in verdict.detail
    assert "does not know tenant 'nobody'" in verdict.detail


def test_of_several_guards_that_wait_the_latest_instant_counts() -> None:
    """Before it not all of them can hold; the text names each that is not met."""
    soon, late = NOW + timedelta(hours=1), NOW + timedelta(hours=2)
    first, last = events.NotBeforeGuard(soon), events.NotBeforeGuard(late)
    guards: list[Any] = [first, LaterGuard(), last]

    waits = decide(intent(*guards, events.NotBeforeGuard(NOW - timedelta(hours=1))))

    assert isinstance(waits, NotYet)
    assert (waits.reason, waits.retry_at) == ("not-before", late)
    for part in (soon.isoformat(), late.isoformat(), "no judge for LaterGuard"):
        assert part in waits.detail


def test_subject_carries_the_parts_of_the_first_form() -> None:
    """A guard with node parts is asked for with them, so that the issuer can refuse a wrong form."""
    guard = events.GenerationGuard("t", 8, "node", 3)

    assert subjects(intent(guard), 4) == [Subject("t", 8, 4, "node", 3)]


@pytest.mark.parametrize(
    ("allow", "allowed"),
    [
        ([], True),
        (["bucket"], True),
        (["bucket/a/"], True),
        (["bucket/a/1"], False),
        (["other"], False),
        (["bucket/b", "bucket/a/"], True),
    ],
)
def test_allow_list_covers_every_key_or_refuses(allow: list[str], allowed: bool) -> None:
    """An intent with one key outside the allow-list is refused whole; an empty list allows all."""
    verdict = decide(intent(PROMISE), allow=parse_allow(allow))

    assert (verdict.result is VerdictResult.PASS) == allowed
    assert allowed or verdict.reason == "not-allowed"


@pytest.mark.parametrize(
    ("tombstone", "allowed"), [(None, True), ("a/tombstone", True), ("b/tombstone", False)]
)
def test_x_18_a_tombstone_lies_in_the_allow_list(tombstone: str | None, allowed: bool) -> None:
    """X-18: the tombstone of a prefix is a key that goes, too."""
    asked = intent(PROMISE, action=events.DeletePrefix("bucket", "a/1/", tombstone=tombstone))

    verdict = decide(asked, allow=parse_allow(["bucket/a/"]))

    assert (verdict.result is VerdictResult.PASS) == allowed


def test_x_18_probes_keep_to_the_allow_list() -> None:
    """X-18: the keys of a probe begin with what is allowed there; nothing is asked of them elsewhere."""
    allow = parse_allow(["one/a/", "one/b/", "whole/a/", "whole", "whole/b/"])

    assert probes_under(allow) == {"one": "a/", "whole": ""}
    assert probes_under(()) == {}


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_a_pass_stays_a_pass(offset: int, start: int, barrier_end: int, later_end: int) -> None:
    """Once an intent below a barrier has passed, superseding its generation later changes nothing."""
    if offset >= barrier_end:
        return
    before = decide(intent(GUARD), offset, Window(start, None))
    after = decide(intent(GUARD), offset, Window(start, max(barrier_end, later_end)))

    assert before == after or after.reason == before.reason
