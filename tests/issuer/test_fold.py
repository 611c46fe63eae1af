"""The pure rule of the log."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.folding import GENESIS, NOW, barrier, fold, issued

from sexton.issuer.state.fold import VALID, State, Void, apply
from sexton.schemas import events
from sexton.schemas.errors import LogBroken
from sexton.schemas.events import Grant, IssueOperation
from sexton.schemas.generations import MAX_GENERATION
from sexton.schemas.windows import Window


class TestLog:
    def test_gap_stops_the_fold(self) -> None:
        """A gap in the offsets is an error: what is missing may have issued a number."""
        state, _ = fold()

        with pytest.raises(LogBroken, match="gap"):
            apply(state, 2, barrier([0]))

    def test_repeated_offset_stops_the_fold(self) -> None:
        """An offset that was applied is not applied again."""
        state, _ = fold(barrier([0]))

        with pytest.raises(LogBroken, match="expected offset 2, found 1"):
            apply(state, 1, barrier([0]))

    def test_first_event_is_genesis(self) -> None:
        """A log that starts with anything but Genesis is not folded."""
        with pytest.raises(LogBroken, match="starts with Barrier"):
            apply(State(), 0, barrier([0]))

    def test_unknown_format_stops_the_fold(self) -> None:
        """A format of the future is refused, not guessed."""
        with pytest.raises(LogBroken, match="format"):
            apply(State(), 0, events.Genesis(2, "cluster", "log", "intents", NOW))

    def test_unknown_event_stops_the_fold(self) -> None:
        """An event of a kind that this version does not know is not skipped."""
        state, _ = fold()

        with pytest.raises(LogBroken, match="does not know: int"):
            apply(state, 1, 5)  # type: ignore[arg-type]

    def test_second_genesis_is_void(self) -> None:
        """Only the first Genesis counts."""
        _, verdicts = fold(GENESIS)

        assert verdicts == [Void("second-genesis")]


class TestIssue:
    def test_first_generation_is_one(self) -> None:
        """A tenant starts with generation 1, which supersedes nothing."""
        state, verdicts = fold(issued("r", [Grant("t", 1, None)]))

        assert verdicts == [VALID]
        assert (state.newest("t"), state.held_by("n1")) == (1, ["t"])

    @pytest.mark.parametrize(
        ("grant", "reason"),
        [
            (Grant("t", 2, None), "not-newest"),
            (Grant("t", 1, None), "not-newest"),
            (Grant("t", 3, 2), "not-newest"),
            (Grant("t", 3, 1), "not-next"),
            (Grant("t", 1, 1), "not-next"),
            (Grant("new", 2, None), "not-next"),
            (Grant("new", 0, None), "not-next"),
            (Grant("new", 1, 0), "not-newest"),
        ],
    )
    def test_compare_and_set(self, grant: Grant, reason: str) -> None:
        """A grant must name the newest generation and be exactly one above it."""
        _, verdicts = fold(issued("r1", [Grant("t", 1, None)]), issued("r2", [grant]))

        assert verdicts[1] == Void(reason)

    def test_void_with_all_grants(self) -> None:
        """One grant that does not fit makes the whole event void."""
        state, verdicts = fold(issued("r", [Grant("a", 1, None), Grant("b", 2, 1)]))

        assert verdicts == [Void("not-newest")]
        assert not state.known("a")

    def test_tenant_twice(self) -> None:
        """A tenant that one event grants twice makes it void."""
        _, verdicts = fold(issued("r", [Grant("a", 1, None), Grant("a", 2, 1)]))

        assert verdicts == [Void("tenant-twice")]

    def test_largest_generation(self) -> None:
        """Generations end at the largest u32."""
        state, _ = fold(issued("r", [Grant("t", 1, None)]))
        tenant = state.tenant("t")
        assert tenant is not None
        tenant.first = MAX_GENERATION

        verdict = apply(state, 2, issued("r2", [Grant("t", MAX_GENERATION + 1, MAX_GENERATION)]))

        assert verdict == Void("not-next")

    def test_i_16_re_attach_of_a_tenant_that_moved(self) -> None:
        """I-16: a re-attach is void for a node that does not hold the tenant any more."""
        state, verdicts = fold(
            issued("r1", [Grant("t", 1, None)], node="7"),
            issued("r2", [Grant("t", 2, 1)], node="8"),
            issued("r3", [Grant("t", 3, 2)], node="7", operation=IssueOperation.RE_ATTACH),
        )

        assert verdicts[2] == Void("not-held")
        assert (state.held_by("7"), state.held_by("8"), state.newest("t")) == ([], ["t"], 2)

    def test_dropped_tenant(self) -> None:
        """Nothing is issued for a dropped tenant, and it is dropped once."""
        _, verdicts = fold(
            issued("r1", [Grant("t", 1, None)]),
            events.Dropped("d1", "c", "t", NOW),
            issued("r2", [Grant("t", 2, 1)]),
            events.Dropped("d2", "c", "t", NOW),
        )

        assert verdicts[2:] == [Void("dropped"), Void("dropped")]

    def test_drop_of_an_unknown_tenant(self) -> None:
        """A tenant that never had a generation can be dropped, and then has none."""
        state, verdicts = fold(events.Dropped("d", "c", "t", NOW), issued("r", [Grant("t", 1, None)]))

        assert verdicts == [VALID, Void("dropped")]
        assert state.known("t")
        assert state.window("t", 1, 0) is None


class TestDetach:
    def test_keeps_the_generation_newest(self) -> None:
        """A detached tenant has no holder, and its generation stays the newest."""
        state, verdicts = fold(
            issued("r", [Grant("t", 1, None)], [5, 5]), events.Detached("d", "c", "n1", "t", 1, NOW)
        )

        assert verdicts[1] == VALID
        assert (state.newest("t"), state.held_by("n1")) == (1, [])
        assert state.window("t", 1, 0) == Window(5)

    @pytest.mark.parametrize(
        ("node", "generation", "reason"), [("n2", 2, "not-held"), ("n1", 1, "not-newest")]
    )
    def test_only_the_holder_of_the_newest(self, node: str, generation: int, reason: str) -> None:
        """Only the holder detaches, and only at the newest generation."""
        _, verdicts = fold(
            issued("r1", [Grant("t", 1, None)]),
            issued("r2", [Grant("t", 2, 1)]),
            events.Detached("d", "c", node, "t", generation, NOW),
        )

        assert verdicts[2] == Void(reason)


class TestRequests:
    def test_second_event_of_a_request_is_void(self) -> None:
        """A request id that has a valid event makes the next one void, even one that would fit."""
        state, verdicts = fold(issued("r", [Grant("t", 1, None)]), issued("r", [Grant("t", 2, 1)]))

        assert verdicts[1] == Void("request-answered")
        assert state.newest("t") == 1

    def test_void_event_does_not_use_up_its_request(self) -> None:
        """After a void event the same request id may still succeed."""
        _, verdicts = fold(issued("r", [Grant("t", 2, 1)]), issued("r", [Grant("t", 1, None)]))

        assert verdicts == [Void("not-newest"), VALID]

    def test_parts(self) -> None:
        """Each part of a request has one valid event; the request is complete with all of them."""
        state, verdicts = fold(
            issued("r", [Grant("a", 1, None)], parts=2),
            issued("r", [Grant("a", 2, 1)], parts=2),
            issued("r", [Grant("b", 1, None)], part=1, parts=2),
        )
        request = state.request("r")

        assert verdicts == [VALID, Void("request-answered"), VALID]
        assert request is not None
        assert (request.complete, request.granted) == (True, {"a": 1, "b": 1})

    @pytest.mark.parametrize("part", [-1, 2, 3])
    def test_part_out_of_range(self, part: int) -> None:
        """A part beyond the number of parts is void."""
        _, verdicts = fold(issued("r", [Grant("a", 1, None)], part=part, parts=2))

        assert verdicts == [Void("no-such-part")]

    @pytest.mark.parametrize("other", [{"caller": "d"}, {"node": "n2"}, {"parts": 3}])
    def test_request_is_bound(self, other: dict[str, Any]) -> None:
        """A request id belongs to one caller, node and call."""
        _, verdicts = fold(
            issued("r", [Grant("a", 1, None)], parts=2),
            issued("r", [Grant("b", 1, None)], **{"part": 1, "parts": 2, **other}),
        )

        assert verdicts[1] == Void("request-bound")

    def test_detach_and_drop_share_the_rule(self) -> None:
        """A request id that issued cannot detach or drop."""
        _, verdicts = fold(
            issued("r", [Grant("t", 1, None)]),
            events.Detached("r", "c", "n1", "t", 1, NOW),
            events.Dropped("r", "c", "t", NOW),
        )

        assert verdicts[1:] == [Void("request-answered")] * 2


class TestWindows:
    def test_closes_at_the_superseding_event(self) -> None:
        """A window goes from the end offset at its own event to that at the superseding one."""
        state, _ = fold(issued("r1", [Grant("t", 1, None)], [3, 4]), issued("r2", [Grant("t", 2, 1)], [7, 4]))

        assert [state.window("t", 1, p) for p in (0, 1)] == [Window(3, 7), Window(4, 4)]
        assert [state.window("t", 2, p) for p in (0, 1)] == [Window(7), Window(4)]

    def test_void_events_raise_the_maximum(self) -> None:
        """End offsets of void events and of barriers count: they were read before the successor's answer."""
        state, verdicts = fold(
            issued("r1", [Grant("t", 1, None)], [3, 0]),
            issued("r2", [Grant("t", 9, 8)], [50, 0]),
            barrier([10, 60]),
            issued("r3", [Grant("t", 2, 1)], [7, 0]),
        )

        assert isinstance(verdicts[1], Void)
        assert [state.window("t", 1, p) for p in (0, 1)] == [Window(3, 50), Window(0, 60)]

    def test_events_after_the_superseding_one_change_nothing(self) -> None:
        """A closed window stays as it is."""
        state, _ = fold(
            issued("r1", [Grant("t", 1, None)], [3]), issued("r2", [Grant("t", 2, 1)], [7]), barrier([99])
        )

        assert state.window("t", 1, 0) == Window(3, 7)

    def test_late_end_offsets_open_no_gap_to_the_past(self) -> None:
        """A window never opens below an end offset that an earlier event carries."""
        state, _ = fold(barrier([100]), issued("r", [Grant("t", 1, None)], [90]))

        assert state.window("t", 1, 0) == Window(100)

    @pytest.mark.parametrize(
        "event", [barrier([99], "other"), issued("x", [Grant("t", 2, 1)], [99], topic="o")]
    )
    def test_other_topic_never_touches_windows(self, event: events.GenerationEvent) -> None:
        """J-13: an event with another intents topic's offsets is void and raises nothing."""
        state, verdicts = fold(
            issued("r1", [Grant("t", 1, None)], [3]), event, issued("r2", [Grant("t", 2, 1)], [7])
        )

        assert verdicts[1] == Void("other-intents-topic")
        assert state.window("t", 1, 0) == Window(3, 7)

    def test_partitions_that_were_added(self) -> None:
        """A partition that an event did not have starts at 0 and is closed where a later event saw it."""
        state, _ = fold(
            issued("r1", [Grant("t", 1, None)], [3]),
            issued("r2", [Grant("t", 2, 1)], [4]),
            issued("r3", [Grant("t", 3, 2)], [4, 9]),
        )

        assert [state.window("t", g, 1) for g in (1, 2, 3)] == [Window(0, 0), Window(0, 9), Window(9)]

    @pytest.mark.parametrize(("generation", "partition"), [(0, 0), (2, 0), (-1, 0), (1, -1)])
    def test_never_issued(self, generation: int, partition: int) -> None:
        """J-11: what was never issued has no window."""
        state, _ = fold(issued("r1", [Grant("t", 1, None)], [3]))

        assert state.window("t", generation, partition) is None
