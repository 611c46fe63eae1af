"""Events and folds for tests of the pure rule."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sexton.issuer.state.fold import State, Verdict, apply
from sexton.schemas import events
from sexton.schemas.events import Grant, IssueOperation, PartitionOffsets

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GENESIS = events.Genesis(1, "cluster", "log", "intents", NOW)


def issued(
    request: str,
    grants: Sequence[Grant],
    ends: Sequence[int] = (0, 0),
    *,
    node: str = "n1",
    operation: IssueOperation = IssueOperation.ATTACH,
    caller: str = "c",
    part: int = 0,
    parts: int = 1,
    topic: str = "intents",
) -> events.Issued:
    """An Issued event."""
    return events.Issued(
        request, caller, operation, node, part, parts, grants, PartitionOffsets(topic, ends), NOW
    )


def barrier(ends: Sequence[int], topic: str = "intents") -> events.Barrier:
    """A Barrier event."""
    return events.Barrier("b", PartitionOffsets(topic, ends), None, NOW)


def fold(*given_events: events.GenerationEvent) -> tuple[State, list[Verdict]]:
    """Fold Genesis and these events."""
    state = State()
    verdicts = [apply(state, i, e) for i, e in enumerate((GENESIS, *given_events))]
    return state, verdicts[1:]


def facts(state: State) -> Any:
    """Everything that a void event must leave as it is."""
    return [
        (t.name, t.first, list(t.issues), t.holder, t.dropped, state.held_by(t.holder or "")) for t in state
    ]
