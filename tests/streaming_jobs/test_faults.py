"""Which fault stands behind the text of Spark's exception."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError

from sexton.schemas.errors import EnvironmentFault, InvalidSettings, IssuerUnavailable, SextonError
from sexton.storage import CredentialsUnavailable, NoReply, StoreRefused
from sexton.streaming_jobs.reaper.faults import QueryFailed, fault_of, query_failed

TRACE = (
    "An exception was thrown from the Python worker.\nTraceback (most recent call last):\n  File ...\n{}\n"
)


@pytest.mark.parametrize(
    ("kind", "holds"),
    [
        (IssuerUnavailable, True),
        (EnvironmentFault, True),
        (NoReply, True),
        (CredentialsUnavailable, True),
        (StoreRefused, False),
        (InvalidSettings, False),
    ],
)
def test_workers_error_is_found_in_the_text(kind: type[SextonError], holds: bool) -> None:
    """An environment fault holds the micro-batch; other errors of ours fail it; message and hint stay."""
    line = f"{kind.__module__}.{kind.__qualname__}: no answer: 503"

    fault = fault_of(RuntimeError(TRACE.format(line)))

    assert isinstance(fault, SextonError)
    assert isinstance(fault, EnvironmentFault) == holds
    assert (str(fault), fault.hint) == ("no answer: 503", kind.usual_hint)


def test_foreign_errors_are_not_ours() -> None:
    """An error of Spark itself is never taken for a fault that may be waited out."""
    assert (
        fault_of(RuntimeError(TRACE.format("ValueError: sexton.schemas.errors.IssuerUnavailable: x"))) is None
    )


def test_own_errors_pass_as_they_are() -> None:
    """An error raised in the driver keeps its class."""
    error = IssuerUnavailable("away")

    assert fault_of(error) is error


def test_a_worker_that_was_killed_is_named() -> None:
    """Spark's last cause is the end of a stream: that a process died stands further up."""
    died = "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n"
    trace = f"Job aborted\n{died}"

    reported = query_failed(RuntimeError(trace + "Caused by: java.io.EOFException\n"), stopping=False)

    assert "a Python worker was killed, or crashed" in str(reported)
    assert "enough memory" in str(reported.hint)


def test_what_ended_the_query_is_told_in_one_line() -> None:
    """Of Java's long trace the innermost cause is reported; the rest is chained."""
    trace = "An error occurred while calling o91.save.\n: org.apache.SparkException: aborted\n\tat a.b.c\n"
    trace += "Caused by: java.lang.IllegalStateException: Some data may have been lost\n\tat d.e.f\n"

    reported = query_failed(RuntimeError(trace), stopping=False)

    assert isinstance(reported, QueryFailed)
    assert str(reported) == "the query ended: java.lang.IllegalStateException: Some data may have been lost"
    assert reported.exit_code == 1


def test_a_jvm_that_is_gone_while_stopping_is_not_an_internal_error() -> None:
    """With a stop under way a lost JVM is an environment fault: nothing advanced."""
    gone = ConnectionRefusedError(111, "refused")

    assert isinstance(query_failed(gone, stopping=True), EnvironmentFault)
    assert isinstance(query_failed(gone, stopping=False), QueryFailed)


class _OfAJvmThatIsGone(Exception):
    def __str__(self) -> str:
        raise ConnectionRefusedError


@pytest.mark.parametrize("error", [_OfAJvmThatIsGone(), Py4JError("An error occurred while calling o1.x")])
def test_a_jvm_that_was_ended_with_the_reaper_is_told(error: Exception) -> None:
    """A signal to the process group ends the JVM first: that is a stop, and no internal error."""
    assert fault_of(error) is None
    assert isinstance(query_failed(error, stopping=True), EnvironmentFault)
    assert isinstance(query_failed(error, stopping=False), QueryFailed)
