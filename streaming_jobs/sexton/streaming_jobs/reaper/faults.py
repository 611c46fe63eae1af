"""Which fault ended a micro-batch: a worker's error arrives as text inside Spark's own exception."""

from __future__ import annotations

from collections.abc import Iterator

from py4j.protocol import Py4JError, Py4JNetworkError

from sexton.schemas.errors import EnvironmentFault, SextonError

__all__ = ["QueryFailed", "fault_of", "query_failed"]

_LONGEST = 500
_WORKER_DIED = "Python worker exited unexpectedly"  # Spark's words; its last cause is an end of file
_HINT = "docs/operating.md, 'When it stops, or waits'"


class QueryFailed(SextonError):
    """Spark ended the query for a reason of its own."""


def query_failed(error: BaseException, *, stopping: bool) -> SextonError:
    """Return one line for what ended the query; its cause, with Java's whole trace, is chained.

    With a stop under way a JVM that is gone is what was asked for: nothing of the micro-batch is committed.
    """
    text = _text(error)
    gone = text is None or isinstance(error, OSError | Py4JNetworkError) or type(error) is Py4JError
    if stopping and gone:
        return EnvironmentFault("spark was ended in the middle of a micro-batch; nothing of it is committed")
    if _WORKER_DIED in (text or ""):
        return QueryFailed("a Python worker was killed, or crashed", hint=f"had it enough memory? {_HINT}")
    lines = [line.strip() for line in (text or "").splitlines()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    message = (causes[-1].removeprefix("Caused by: ") if causes else next(filter(None, lines), ""))[:_LONGEST]
    return QueryFailed(f"the query ended: {message or type(error).__name__}", hint=_HINT)


def fault_of(error: BaseException) -> SextonError | None:
    """Return our own error behind an exception of Spark, None when there is none.

    The last line of a worker's traceback is `module.Class: message`. It is searched for line by line: a
    regular expression over a long traceback overflows the stack of the stream's thread. A fault of the
    environment is returned as EnvironmentFault, anything else of ours as SextonError.
    """
    if isinstance(error, SextonError):
        return error
    # Whatever a worker may raise, the driver has imported, too: it made the task.
    ours = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in _kinds(SextonError)}
    for line in reversed((_text(error) or "").splitlines()):
        path, _, message = line.strip().partition(": ")
        found = ours.get(path)
        if found is not None:
            kind = EnvironmentFault if issubclass(found, EnvironmentFault) else SextonError
            return kind(message, hint=found.usual_hint)
    return None


def _text(error: BaseException) -> str | None:
    """Return an exception's text; of a Java one the JVM is asked for it, None when that is gone."""
    try:
        return str(error)
    except (OSError, Py4JError):
        return None


def _kinds(base: type[SextonError]) -> Iterator[type[SextonError]]:
    yield base
    for kind in base.__subclasses__():
        yield from _kinds(kind)
