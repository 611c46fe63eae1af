"""Errors as RFC 9457 problem documents with stable types."""

from __future__ import annotations

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from sexton.issuer import wire
from sexton.issuer.log.positions import WrongTopic
from sexton.issuer.redis.connection import RedisUnavailable
from sexton.issuer.service import NotReady
from sexton.schemas.errors import (
    EnvironmentFault,
    KafkaUnavailable,
    LogBroken,
    RequestRefused,
    SextonError,
    UsageError,
)
from sexton.schemas.settings_checks import in_words

__all__ = ["Overloaded", "headers_of", "problem_of", "problem_of_any"]

_PROBLEMS: tuple[tuple[type[SextonError], str, int], ...] = (  # the most specific first
    (LogBroken, "log-broken", 503),
    (WrongTopic, "wrong-topic", 503),
    (NotReady, "not-ready", 503),
    (RedisUnavailable, "redis-unavailable", 503),
    (KafkaUnavailable, "kafka-unavailable", 503),
    (EnvironmentFault, "environment-fault", 503),
    (UsageError, "invalid-request", 400),
)


class Overloaded(EnvironmentFault):
    """Too many calls are waiting."""


def problem_of(error: SextonError) -> wire.Problem:
    """Return the problem document of an error; its `type` is stable."""
    if isinstance(error, RequestRefused):
        kind, status = error.type, error.status
    elif isinstance(error, Overloaded):
        kind, status = "overloaded", 503
    else:
        kind, status = next(
            ((name, status) for cls, name, status in _PROBLEMS if isinstance(error, cls)),
            ("internal-error", 500),
        )
    title = kind.replace("-", " ")
    hint = msgspec.UNSET if error.hint is None else error.hint
    return wire.Problem(kind, title, status, str(error), hint)


def problem_of_any(error: Exception) -> wire.Problem:
    """Return the problem document of whatever a call ended with."""
    if isinstance(error, SextonError):
        return problem_of(error)
    if isinstance(error, HTTPException):
        kind = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "invalid-request")
        return wire.Problem(kind, kind.replace("-", " "), error.status_code, str(error.detail))
    if isinstance(error, RequestValidationError):
        message = in_words(error.errors()[0], secret=False)
        return wire.Problem("invalid-request", "invalid request", 400, message)
    return wire.Problem("internal-error", "internal error", 500, "see the issuer's log")


def headers_of(problem: wire.Problem, error: Exception | None = None) -> dict[str, str]:
    """Return what the client needs besides the document; what is left of a refused body is not read."""
    given = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    return {**given, **_HEADERS.get(problem.status, {})}


_HEADERS = {
    401: {"www-authenticate": "Bearer"},
    408: {"connection": "close"},
    413: {"connection": "close"},
    503: {"retry-after": "1"},
}
