"""Barrier: an event whose end offsets were read after the call began; what lies below is older."""

from __future__ import annotations

import uuid
from typing import Any

from msgspec import Struct

from sexton.issuer.access import REAPERS
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.base import VALID, Desk, Operation, Verdict, Void
from sexton.issuer.state.state import State
from sexton.issuer.wire import BarrierAnswer, Offset
from sexton.schemas import events
from sexton.schemas.errors import UsageError

__all__ = ["Barrier", "Ends", "apply_barrier", "raise_barrier"]


class Ends(Struct, forbid_unknown_fields=True):
    """One offset for each partition of a topic."""

    topic_id: str
    offsets: list[Offset]


class Barrier(Operation[BarrierAnswer], forbid_unknown_fields=True):
    """Make a barrier; `unsettled` holds the oldest positions without a final outcome."""

    unsettled: Ends | None = None

    path = "/v1/barrier"
    answer = BarrierAnswer
    roles = REAPERS
    changes = False
    folds = (events.Barrier,)

    def acts_as(self) -> str | None:
        """Return None: it is nobody's in particular."""
        return None

    def carry_out(self, desk: Desk, deadline: Deadline) -> BarrierAnswer:
        """Append a barrier; calls that carry no unsettled positions share one.

        Raises UsageError for positions of another topic.
        """
        if self.unsettled is None:
            return desk.barrier(deadline)
        with desk.timed("barrier_seconds"):
            unsettled = events.PartitionOffsets(self.unsettled.topic_id, self.unsettled.offsets)
            return raise_barrier(desk, unsettled, deadline)

    @classmethod
    def apply(cls, state: State, offset: int, event: Any) -> Verdict:
        """Count its end offsets, and forget what it says is settled."""
        return apply_barrier(state, event)


def raise_barrier(desk: Desk, unsettled: events.PartitionOffsets | None, deadline: Deadline) -> BarrierAnswer:
    """Append a barrier whose end offsets are read now."""
    # Read before the append. Read after it, they would cover intents that were written behind a superseding
    # event which the fold, as of this barrier, does not know: such an intent would pass.
    ends = desk.log.ends(deadline)
    if unsettled is not None and unsettled.topic_id != ends.topic_id:
        raise UsageError(f"unsettled positions of another topic: {unsettled.topic_id}")
    event = events.Barrier(uuid.uuid4().hex, ends, unsettled, desk.now())
    # Valid by the rule: `ends` are of the topic that Genesis names, which the reading has checked.
    offset = desk.log.write(event, deadline)
    desk.count_barrier()
    return BarrierAnswer(offset, ends.topic_id, list(ends.offsets))


def apply_barrier(state: State, event: events.Barrier) -> Verdict:
    """Raise the running maximum that later windows begin at, and cut the history below what is settled."""
    if not state._raise_high(event.ends):
        return Void("other-intents-topic")
    if event.unsettled is not None and _is_possible(event.unsettled, event.ends):
        state.cuts.settle(event.unsettled.offsets)
    return VALID


def _is_possible(unsettled: events.PartitionOffsets, ends: events.PartitionOffsets) -> bool:
    """A position that did not exist yet cannot be settled: who claims it may not cut what is still needed."""
    known = unsettled.topic_id == ends.topic_id and len(unsettled.offsets) <= len(ends.offsets)
    return known and all(0 <= at <= end for at, end in zip(unsettled.offsets, ends.offsets, strict=False))
