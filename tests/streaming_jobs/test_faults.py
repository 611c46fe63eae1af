"""Which fault stands behind the text of Spark's exception."""

from __future__ import annotations

import pytest

from sexton.schemas.errors import EnvironmentFault, IssuerUnavailable, SextonError
from sexton.streaming_jobs.reaper.faults import fault_of

TRACE = (
    "An exception was thrown from the Python worker.\nTraceback (most recent call last):\n  File ...\n{}\n"
)


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("sexton.schemas.errors.IssuerUnavailable: no answer: 503", True),
        ("sexton.schemas.errors.EnvironmentFault: not below its barrier", True),
        ("sexton.storage.errors.NoReply: no connection", True),
        ("sexton.storage.errors.UncleanReply: 1 of 2 keys", False),
        ("sexton.schemas.errors.InvalidSettings: SEXTON_X", False),
    ],
)
def test_workers_error_is_found_in_the_text(line: str, holds: bool) -> None:
    """An environment fault holds the micro-batch; anything else of ours fails it, with its own message."""
    fault = fault_of(RuntimeError(TRACE.format(line)))

    assert isinstance(fault, SextonError)
    assert isinstance(fault, EnvironmentFault) == holds
    assert str(fault) == line.split(": ", 1)[1]


def test_foreign_errors_are_not_ours() -> None:
    """An error of Spark itself is never taken for a fault that may be waited out."""
    assert (
        fault_of(RuntimeError(TRACE.format("ValueError: sexton.schemas.errors.IssuerUnavailable: x"))) is None
    )


def test_own_errors_pass_as_they_are() -> None:
    """An error raised in the driver keeps its class."""
    error = IssuerUnavailable("away")

    assert fault_of(error) is error
