"""An issuer process with a planted bug, for runs that must find it.

python -m tests.chaos.launcher --plant NAME serve
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET

from sexton.issuer import wire
from sexton.issuer.cli import commands
from sexton.issuer.log import journal
from sexton.issuer.log import reader as log
from sexton.issuer.log.positions import Ends
from sexton.issuer.operations import attach, issuing, re_attach
from sexton.issuer.operations.issuing import Granted, Part, issued_event
from sexton.issuer.state import state
from sexton.issuer.state import transaction_rules as rules
from sexton.issuer.state.request_ids import new_id
from sexton.issuer.subjects import generation
from sexton.schemas import events

__all__ = ["PLANTS"]


def answer_before_read_back() -> None:
    """An event that was appended counts as issued."""

    def issue(desk: Any, call: Any, deadline: Any) -> wire.Granted:
        ends = desk.log.read_ends(deadline)
        step = issuing._step(desk, call)
        if isinstance(step, Part):
            grants = desk.witness.propose(step.tenants, deadline)
            event = issued_event(call, step, grants, ends, datetime.now(UTC))
            offset = desk.log._writer.append(event, deadline)
            step = Granted(call.request_id, offset, {g.tenant: g.generation for g in grants})
        return issuing._answer(desk, step)

    attach.issue = re_attach.issue = issue  # type: ignore[attr-defined]


def no_compare_and_set() -> None:
    """An event is valid whatever it supersedes."""
    issuing.grant_fault = lambda tenant, generation, supersedes: (  # type: ignore[attr-defined]
        "dropped" if tenant.dropped else None
    )


def request_id_ignored() -> None:
    """Every try of a call is a call of its own."""
    issuing.identity = lambda request_id, caller, node: (new_id(), caller or node)  # type: ignore[attr-defined]


def ends_read_late() -> None:
    """End offsets take in what is written after the event could be read."""
    read = journal.Journal.positions

    def positions(self: Any, deadline: Any) -> Ends:
        ends = read(self, deadline)
        later = [offset + 1000 for offset in ends.intents.offsets]
        return replace(ends, intents=replace(ends.intents, offsets=later))

    journal.Journal.positions = positions  # type: ignore[method-assign]


def ends_read_early() -> None:
    """End offsets are those of the first reading, for ever."""
    read, first = journal.Journal.positions, []

    def positions(self: Any, deadline: Any) -> Ends:
        ends = read(self, deadline)
        first.append(ends.intents)
        return replace(ends, intents=first[0])

    journal.Journal.positions = positions  # type: ignore[method-assign]


def windows_stay_open() -> None:
    """A superseded generation is still said to be the newest."""
    answer = generation.Subject.answer

    def opened(subject: Any, state: Any) -> Any:
        reported = answer(subject, state)
        if reported is not None and isinstance(reported.start, int):
            reported.newest, reported.until = True, UNSET
        return reported

    generation.Subject.answer = opened  # type: ignore[method-assign,assignment]


def windows_end_a_record_early() -> None:
    """The fold itself is wrong: whoever folds the log by it, the issuer or a test, agrees."""
    issue = state.Issue
    state.Issue = lambda offset, node, high: issue(offset, node, [max(0, end - 1) for end in high])  # type: ignore[misc,assignment]


def _append_late() -> None:
    """Take a while between decision and event: no bug, but others come in between more often."""
    append = journal.Journal.append

    def late(self: Any, event: Any, part: int, deadline: Any) -> bool:
        time.sleep(0.03)
        return append(self, event, part, deadline)

    journal.Journal.append = late  # type: ignore[method-assign]


def last_committed_not_compared() -> None:
    """A start counts on top of whatever was the last committed one when it was proposed."""
    _append_late()
    fault = rules.start_fault
    rules.start_fault = lambda state, event: (
        None if (found := fault(state, event)) == "not-last-committed" else found
    )


def not_open_ignored() -> None:
    """The newest transaction is committed, whatever has become of it."""
    _append_late()
    rules._not_open = lambda state, name, transaction: None


def start_rejects_nobody() -> None:
    """Whoever was open before a start stays open."""
    rules.reject = lambda owner, offset, but: None


def deadlist_not_waited_for() -> None:
    """A commit does not look where its deadlist is."""
    rules.covers = lambda ends, deadlist: True


PLANTS = {
    plant.__name__: plant
    for plant in (
        answer_before_read_back,
        no_compare_and_set,
        request_id_ignored,
        ends_read_late,
        ends_read_early,
        windows_stay_open,
        windows_end_a_record_early,
        last_committed_not_compared,
        not_open_ignored,
        start_rejects_nobody,
        deadlist_not_waited_for,
    )
}


def older_without_fences() -> None:
    """No bug but a version: one that does not know how a tenant is fenced."""
    log._EVENTS = tuple(event for event in log._EVENTS if event is not events.Fenced)


if __name__ == "__main__":
    {**PLANTS, "older_without_fences": older_without_fences}[sys.argv[sys.argv.index("--plant") + 1]]()
    commands.app(["serve"])
