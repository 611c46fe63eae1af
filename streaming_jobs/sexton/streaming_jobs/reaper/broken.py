"""Trouble that is one record's own: whatever a stage raises for it ends that record, and harms no neighbour.

No stage is meant to raise for a record: each has typed answers. Where one does all the same, it is a fault
of this program that the record has brought to light. Were it let through it would end the job for everybody,
and again at each start, as the record would be read again. So the record becomes a dead letter with its raw
bytes and the reason `internal`, which is counted and reported as a fault (P-1). What is about everything is
let through: nothing of the micro-batch is settled then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sexton.schemas.errors import EnvironmentFault

__all__ = ["INTERNAL", "Broken", "alone"]

T = TypeVar("T")

INTERNAL = "internal"
"""The reason of dead letters that are a fault of this program."""

_ABOUT_EVERYTHING = (EnvironmentFault, MemoryError, OSError, ImportError)
_LONGEST = 400
_log = logging.getLogger("sexton.streaming_jobs.reaper")


@dataclass(frozen=True, slots=True)
class Broken:
    """Why a record could not be processed: which stage failed for it, and how."""

    detail: str


def alone(stage: str, step: Callable[[], T]) -> T | Broken:
    """Take a step that is about one record alone; what it raises is what has become of that record.

    Raises what is about everything: a fault of the environment, or of the machine.
    """
    try:
        return step()
    except _ABOUT_EVERYTHING:
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, it is this record's
        _log.exception("the stage %s failed for one record, which becomes a dead letter", stage)
        return Broken(f"the stage {stage} failed for it: {type(error).__name__}: {str(error)[:_LONGEST]}")
