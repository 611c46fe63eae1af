"""What can go wrong between Sexton and the object store.

    UsageError
    └── InvalidBatch        empty, too many, twice the same key, or a key that XML cannot carry
    EnvironmentFault
    ├── UncleanReply        the store answered, and not every key is known to be gone
    └── StoreUnavailable
        └── NoReply         nothing (whole) came back; `effect_unknown` tells whether the store may have acted
    StoreRefused            a single call was answered with an error; `code` and `status` are the store's

`effect_unknown` is False only where the store cannot have deleted anything: whoever counts on the old state
must look again whenever it is True.
"""

from __future__ import annotations

from dataclasses import dataclass

from sexton.schemas.errors import EnvironmentFault, SextonError, StoreUnavailable, UsageError
from sexton.storage.errors_table import classify_single
from sexton.storage.states import Kind

__all__ = ["InvalidBatch", "KeyProblem", "NoReply", "StoreRefused", "UncleanReply"]


class InvalidBatch(UsageError):
    """A list of keys that one DeleteObjects request may not carry."""


@dataclass(frozen=True, slots=True)
class KeyProblem:
    """One key that the reply did not report as deleted, or that was never asked for.

    `code` is the store's own, or `MissingFromReply`, or `NotAskedFor`.
    """

    key: str
    code: str
    message: str = ""

    def __str__(self) -> str:
        return f"{self.code} {self.key!r}" + (f" ({self.message})" if self.message else "")


class UncleanReply(EnvironmentFault):
    """The store's reply to DeleteObjects is not clean in every key.

    `status` is the HTTP status, `code` the error code of the whole reply (empty when it has none), `problems`
    the first few keys with what is wrong, `problem_count` all of them. Some keys of the batch may be gone.
    """

    def __init__(
        self,
        what: str,
        *,
        bucket: str,
        status: int,
        code: str = "",
        request_id: str = "",
        problems: tuple[KeyProblem, ...] = (),
        problem_count: int = 0,
        hint: str | None = None,
    ) -> None:
        self.bucket = bucket
        self.status = status
        self.code = code
        self.request_id = request_id
        self.problems = problems
        self.problem_count = problem_count
        super().__init__(
            f"unclean reply to DeleteObjects: {what}: bucket={bucket} status={status} "
            f"request_id={request_id or '-'}",
            hint=hint,
        )

    @property
    def effect_unknown(self) -> bool:
        """True unless the store refused the whole request before it did anything."""
        return not 300 <= self.status < 500


class NoReply(StoreUnavailable):
    """The store did not answer; with `effect_unknown` it may still have done what it was asked.

    `code` is the row of the table of error classes.
    """

    def __init__(
        self, message: str, *, effect_unknown: bool, hint: str | None = None, code: str = "ConnectionBroken"
    ) -> None:
        self.effect_unknown = effect_unknown
        self.code = code
        super().__init__(message, hint=hint)


class StoreRefused(SextonError):
    """The store answered a single call with an error; with a status of 500 or more it may pass.

    `retry_after_s` is what the store asked for, `kind` what the table of error classes makes of it.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int,
        hint: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        self.code = code
        self.status = status
        self.retry_after_s = retry_after_s
        if status >= 500:
            self.exit_code = EnvironmentFault.exit_code
        super().__init__(message, hint=hint)

    @property
    def kind(self) -> Kind:
        """The state that the answer stands for."""
        return classify_single(self.code, self.status).kind
