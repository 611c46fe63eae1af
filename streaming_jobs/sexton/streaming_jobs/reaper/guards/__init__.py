"""How each guard is judged: one room for each, and `ROOMS` names them all.

A guard without a room here is *not yet*: a newer reaper may know it. To add one, write its module and its
line.
"""

from __future__ import annotations

from collections.abc import Mapping

from sexton.schemas.guards import (
    BoundaryGuard,
    GenerationGuard,
    GuardRoom,
    NotBeforeGuard,
    PromiseGuard,
    TransactionGuard,
    UnchangedGuard,
)
from sexton.streaming_jobs.reaper.execute.boundaries import advance
from sexton.streaming_jobs.reaper.guards import boundary, generation, not_before, transaction
from sexton.streaming_jobs.reaper.guards.room import Asked, Case, Facts, Judging, Met, Never, NotYet, always

__all__ = ["ROOMS", "Asked", "Case", "Facts", "Judging", "Met", "Never", "NotYet"]

ROOMS: Mapping[type[GuardRoom], Judging] = {
    GenerationGuard: Judging(generation.verdict, generation.subjects),
    TransactionGuard: Judging(transaction.verdict, transaction.subjects),
    NotBeforeGuard: Judging(not_before.verdict),
    BoundaryGuard: Judging(boundary.verdict, make_true=advance),
    PromiseGuard: Judging(always),
    UnchangedGuard: Judging(always),  # the store checks it, in the delete itself
}
