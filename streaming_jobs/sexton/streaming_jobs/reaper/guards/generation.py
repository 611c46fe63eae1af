"""Judging generation numbers: an intent passes where it stands in the window of its generation."""

from __future__ import annotations

from collections.abc import Iterable

from sexton.issuer.client import Subject
from sexton.schemas.guards import GenerationGuard
from sexton.streaming_jobs.reaper.guards.room import MET, Case, Never, Said, of_another_topic, unknown_tenant

__all__ = ["subjects", "verdict"]


def subjects(guard: GenerationGuard, partition: int) -> Iterable[Subject]:
    """Return what the issuer has to be asked about a guard of an intent that stands in this partition."""
    return (Subject(guard.tenant, guard.generation, partition, guard.node, guard.node_generation),)


def verdict(guard: GenerationGuard, case: Case) -> Said:
    """Return whether the position lies in the window, and on which side of it if not."""
    position, facts = case.position, case.facts
    if elsewhere := of_another_topic(case):
        return elsewhere
    (subject,) = subjects(guard, position.partition)
    if subject not in facts.windows:
        return unknown_tenant(guard.tenant)
    window = facts.windows[subject]
    name = f"generation {guard.generation} of {guard.tenant!r}"
    if window is None:
        ended = facts.forgotten.get(subject)
        # A forgotten window may have held this position: a letter of before says whether it did. Behind the
        # window's end nothing has ever passed, whoever says so.
        if case.passed and ended is not None and position.offset < ended:
            return MET
        return _without_window(name, position.offset, ended)
    if window.covers(position.offset):
        return MET
    if position.offset < window.start:
        return Never("claimed-early", f"{name} was issued at offset {window.start}")
    return Never("superseded", f"{name} ended at offset {window.until}")


def _without_window(name: str, offset: int, ended: int | None) -> Never:
    """Return the reason for an intent whose generation has no window, or a forgotten one.

    Below `ended`, where only replays stand, nobody knows whether the intent lay in the window or beside it.
    """
    if ended is not None and offset >= ended:
        return Never("superseded", f"{name} ended at or before offset {ended}")
    message = f"{name} was never issued in this form, or ended before all that is not settled"
    return Never("never-issued", message)
