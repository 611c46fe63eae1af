"""What a rule matches and what it plays, as data."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from sexton.deploy.local.faults.request import S3Request
from sexton.schemas.errors import UsageError

__all__ = [
    "CODES",
    "Cut",
    "Empty",
    "Error",
    "InvalidFaults",
    "KeyFailure",
    "KeyPlay",
    "LeftOut",
    "Renamed",
    "Rule",
    "Throttle",
    "Torn",
    "When",
    "WholePlay",
    "status_of",
]


class InvalidFaults(UsageError):
    """A file of faults that cannot be played as it stands."""


class When(StrEnum):
    """Whether the store has seen the request when the fault plays."""

    BEFORE = "before"
    AFTER = "after"


CODES = {
    "AccessDenied": (403, "Access Denied"),
    "BadDigest": (
        400,
        "The Content-MD5 or checksum value that you specified did not match what was received.",
    ),
    "ExpiredToken": (400, "The provided token has expired."),
    "InternalError": (500, "We encountered an internal error. Please try again."),
    "InvalidAccessKeyId": (403, "The AWS access key ID that you provided does not exist in our records."),
    "InvalidRequest": (400, "Missing required header for this request: Content-MD5"),
    "MalformedXML": (400, "The XML that you provided was not well formed or did not validate."),
    "MethodNotAllowed": (405, "The specified method is not allowed against this resource."),
    "NoSuchBucket": (404, "The specified bucket does not exist."),
    "NoSuchKey": (404, "The specified key does not exist."),
    "OperationAborted": (
        409,
        "A conflicting conditional action is currently in progress against this resource.",
    ),
    "PermanentRedirect": (301, "The bucket must be addressed using the specified endpoint."),
    "PreconditionFailed": (412, "At least one of the preconditions that you specified did not hold."),
    "RequestTimeTooSkewed": (
        403,
        "The difference between the request time and the server's time is too large.",
    ),
    "RequestTimeout": (400, "Your socket connection to the server was not read from or written to in time."),
    "ServiceUnavailable": (503, "Service is unable to handle request."),
    "SignatureDoesNotMatch": (403, "The request signature that the server calculated does not match."),
    "SlowDown": (503, "Please reduce your request rate."),
    "TooManyRequests": (429, "Please reduce your request rate."),
}
"""Status and message that go with an S3 error code unless a rule says otherwise."""


def status_of(code: str) -> int:
    """Return the HTTP status of a code; 400 for one that is not known."""
    return CODES.get(code, (400, ""))[0]


@dataclass(frozen=True, slots=True)
class Error:
    """The whole request gets an error."""

    code: str
    status: int
    message: str = ""
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Empty:
    """A 200 without a body."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection ends without a byte of an answer."""


@dataclass(frozen=True, slots=True)
class Torn:
    """The answer's head promises its whole body, and the connection ends after `keep` bytes of it."""

    keep: int


@dataclass(frozen=True, slots=True)
class KeyFailure:
    """An error for one key, inside a 200."""

    code: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The reply does not name the key."""


@dataclass(frozen=True, slots=True)
class Renamed:
    """The reply names another key as deleted in its place."""

    key: str


@dataclass(frozen=True, slots=True)
class Throttle:
    """So many writes a second for each prefix, each key of a DeleteObjects being one.

    A prefix reaches up to the `prefix_parts`-th slash of a key (0: the whole bucket). `per_key` refuses the
    keys that are too many, else the whole request is refused.
    """

    writes_per_s: float
    burst: float
    prefix_parts: int
    per_key: bool
    error: Error


WholePlay = Error | Empty | Cut | Torn
KeyPlay = KeyFailure | LeftOut | Renamed


@dataclass(frozen=True, slots=True)
class Rule:
    """What is matched, how often, and what is played on it. Empty criteria match everything.

    For plays on keys, `times`, `after` and `probability` go by the key, else by the request.
    """

    name: str = field(compare=False)  # by default its place, which a rule before it changes
    operations: frozenset[str] = frozenset()
    buckets: tuple[str, ...] = ()
    keys: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()
    times: int | None = None
    after: int = 0
    probability: float = 1.0
    seed: int = 0
    when: When = When.BEFORE
    latency_ms: float = 0.0
    jitter_ms: float = 0.0
    play: WholePlay | KeyPlay | Throttle | None = None

    @property
    def chooses_keys(self) -> bool:
        """True when it is about some keys only."""
        return bool(self.keys or self.prefixes or self.globs)

    def matches_key(self, key: str) -> bool:
        """Return whether it is about a key."""
        if not self.chooses_keys:
            return True
        if key in self.keys or (self.prefixes and key.startswith(self.prefixes)):
            return True
        return any(_glob(pattern)(key) is not None for pattern in self.globs)

    def matches(self, request: S3Request) -> bool:
        """Return whether it is about a request, its keys left aside."""
        if self.operations and self.operations.isdisjoint((request.operation, request.method)):
            return False
        return not self.buckets or any(_glob(bucket)(request.bucket) is not None for bucket in self.buckets)


@lru_cache(maxsize=1024)
def _glob(pattern: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(fnmatch.translate(pattern)).match
