"""Every error that Sexton raises on purpose, under one base class.

    SextonError
    ├── UsageError              the caller must change the call
    │   ├── InvalidEvent        an event that may not be written: unknown field, wrong type, empty key ...
    │   ├── InvalidFormat       text that is not a generation, a suffix, a topic id ...
    │   └── InvalidSettings     a setting is unknown, misspelt or out of range
    ├── UndecodableRecord       bytes that are not one whole record of a known schema: a dead letter
    ├── EnvironmentFault        an outside system is away or wrongly set up: nothing advanced, try again
    │   ├── IssuerUnavailable
    │   ├── KafkaUnavailable
    │   │   └── NoSuchTopic
    │   ├── StoreUnavailable
    │   └── ToolMissing         a program or package that has to be installed first
    ├── RequestRefused          the issuer said no; `type` is the stable problem type
    └── LogBroken               the generations log cannot be folded: nothing may be issued or judged

A new error picks its parent by what the caller can do about it.
"""

from __future__ import annotations

from typing import ClassVar

from sexton.schemas.masking import masked

__all__ = [
    "EnvironmentFault",
    "InvalidEvent",
    "InvalidFormat",
    "InvalidSettings",
    "IssuerUnavailable",
    "KafkaUnavailable",
    "LogBroken",
    "NoSuchTopic",
    "RequestRefused",
    "SextonError",
    "StoreUnavailable",
    "ToolMissing",
    "UndecodableRecord",
    "UsageError",
]


class SextonError(Exception):
    """Something went wrong in Sexton, or in the use of it.

    `hint` says what to do; `usual_hint` is the class' own, for an error that was raised without one.
    What stands in the message in a secret's place, such as a password in a URL, is masked.
    """

    exit_code = 1
    usual_hint: ClassVar[str | None] = None

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        self.hint = hint or self.usual_hint
        super().__init__(masked(message or (type(self).__doc__ or "").strip().splitlines()[0].rstrip(".")))

    @property
    def with_hint(self) -> str:
        """The message and the hint as one text, for where only text is carried on."""
        return f"{self}; {self.hint}" if self.hint else str(self)


class UsageError(SextonError):
    """The call cannot be right as it stands."""

    exit_code = 2


class InvalidEvent(UsageError):
    """An event that may not be written."""


class InvalidFormat(UsageError):
    """Text that does not have the required form."""


class InvalidSettings(UsageError):
    """A setting is unknown, misspelt or out of range."""


class UndecodableRecord(SextonError):
    """Bytes that are not exactly one record of a known schema.

    `reason` is a stable code for dead letters and metrics; the message is for people.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class EnvironmentFault(SextonError):
    """An outside system is away or wrongly set up: nothing advanced, try again."""

    exit_code = 75


class IssuerUnavailable(EnvironmentFault):
    """The issuer does not answer, or answers that it cannot judge now."""

    usual_hint = "is the issuer up, and SEXTON_ISSUER_URL right? `sexton doctor` looks"


class KafkaUnavailable(EnvironmentFault):
    """Kafka does not answer in time."""

    usual_hint = "are the brokers up, and SEXTON_KAFKA_BOOTSTRAP_SERVERS right? `sexton doctor` looks"


class NoSuchTopic(KafkaUnavailable):
    """The brokers know no such topic, or not yet."""

    usual_hint = "`sexton topics create` makes those that are absent"


class StoreUnavailable(EnvironmentFault):
    """The object store does not answer in time."""

    usual_hint = "is the store up, and SEXTON_S3_ENDPOINT_URL right? `sexton doctor --bucket BUCKET` looks"


class ToolMissing(EnvironmentFault):
    """A program or package is missing on this machine."""


class RequestRefused(SextonError):
    """The issuer understood the request and refused it.

    `type` is the stable problem type of the answer (RFC 9457), `status` its HTTP status.
    """

    def __init__(self, type: str, message: str, *, status: int = 409, hint: str | None = None) -> None:
        self.type = type
        self.status = status
        super().__init__(message, hint=hint)


class LogBroken(SextonError):
    """The generations log cannot be folded any further: nothing may be issued or judged."""
