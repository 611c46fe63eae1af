"""What can go wrong between Sexton and the object store.

    UsageError
    └── InvalidBatch        empty, too many, twice the same key, or a key that XML cannot carry
    EnvironmentFault
    └── StoreUnavailable
        └── NoReply         nothing (whole) came back; `effect_unknown` says whether the store may have acted
    StoreRefused            a single call was answered with an error; `code` and `status` are the store's
    └── BucketUnusable      nothing can be asked of this bucket, now or later: its name or kind is the reason

`effect_unknown` is False only where the store cannot have deleted anything: whoever counts on the old state
must look again whenever it is True.
"""

from __future__ import annotations

from sexton.schemas.errors import EnvironmentFault, SextonError, StoreUnavailable, UsageError
from sexton.storage.errors_table import classify_single
from sexton.storage.states import Kind

__all__ = ["HINTS", "BucketUnusable", "InvalidBatch", "NoReply", "StoreRefused"]

HINTS = {
    "SignatureDoesNotMatch": "the secret key is not the one that the store knows for this access key",
    "InvalidAccessKeyId": "the store does not know this access key",
    "AuthorizationHeaderMalformed": "the bucket is in another region: set SEXTON_S3_REGION",
    "PermanentRedirect": "the bucket is where SEXTON_S3_ENDPOINT_URL and SEXTON_S3_REGION do not lead",
    "IllegalLocationConstraintException": "the bucket is in another region than SEXTON_S3_ENDPOINT_URL",
    "InvalidBucketName": "the store has no buckets of such a name: is it the name that was meant?",
    "RequestTimeTooSkewed": "the clock of this machine is wrong",
    "ExpiredToken": "the credentials have expired",
    "SlowDown": "the store asks for fewer requests: try again later",
    "ServiceUnavailable": "the store is overloaded: try again later",
    "MissingFromReply": "the store does not name what it has deleted: each key is looked for, which is slow",
    "NoSuchBucket": "is the bucket's name right, and is it in this store? SEXTON_S3_ENDPOINT_URL says which",
    "AccessDenied": "the credentials lack a right: docs/executor.md lists those that are needed; for another"
    " account's requester-pays bucket SEXTON_S3_REQUESTER_PAYS has to be on",
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


class BucketUnusable(StoreRefused):
    """Nothing can be asked of this bucket, now or later; nothing was sent."""

    def __init__(self, message: str, *, code: str, hint: str | None = None) -> None:
        super().__init__(message, code=code, status=0, hint=hint)
