"""What can go wrong between Sexton and the object store.

    UsageError
    └── InvalidBatch        empty, too many, twice the same key, or a key that XML cannot carry
    EnvironmentFault
    └── StoreUnavailable
        └── NoReply         nothing (whole) came back; `effect_unknown` says whether the store may have acted
    StoreRefused            a single call was answered with an error; `code` and `status` are the store's

`effect_unknown` is False only where the store cannot have deleted anything: whoever counts on the old state
must look again whenever it is True.
"""

from __future__ import annotations

from sexton.schemas.errors import EnvironmentFault, SextonError, StoreUnavailable, UsageError
from sexton.storage.errors_table import classify_single
from sexton.storage.states import Kind

__all__ = ["HINTS", "InvalidBatch", "NoReply", "StoreRefused"]

HINTS = {
    "SignatureDoesNotMatch": "the secret key is not the one that the store knows for this access key",
    "InvalidAccessKeyId": "the store does not know this access key",
    "AuthorizationHeaderMalformed": "the bucket is in another region: set SEXTON_S3_REGION",
    "PermanentRedirect": "the bucket is in another region: set SEXTON_S3_REGION",
    "RequestTimeTooSkewed": "the clock of this machine is wrong",
    "ExpiredToken": "the credentials have expired",
    "NoSuchBucket": "is the bucket's name right, and is it in this store? SEXTON_S3_ENDPOINT_URL says which",
    "AccessDenied": "the credentials lack a right: docs/executor.md lists those that are needed",
}
"""What to do about an error, by the store's code."""


class InvalidBatch(UsageError):
    """A list of keys that one DeleteObjects request may not carry."""


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
        super().__init__(message, hint=hint or HINTS.get(code))

    @property
    def kind(self) -> Kind:
        """The state that the answer stands for."""
        return classify_single(self.code, self.status).kind
