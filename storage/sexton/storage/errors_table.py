"""The table of error classes: what each answer of a store means for the keys that it is about.

One row per code or HTTP status, as data: the code uses it, the documents print it, a test walks it. A code
that names one key in a reply and the same code for a whole request are different facts, so each has its row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from sexton.storage.states import Effect, Kind

__all__ = ["TABLE", "Row", "Scope", "classify", "classify_single", "table_markdown"]


class Scope(StrEnum):
    """What an answer is about."""

    KEY = "one key"
    REQUEST = "the whole request"


@dataclass(frozen=True, slots=True)
class Row:
    """One row: an S3 error code (or, where the body names none, an HTTP status) and what it means.

    `effect` says whether the store may have acted; `content` that the request's own content was refused, so
    that a part of it may pass.
    """

    scope: Scope
    code: str
    kind: Kind
    effect: Effect
    meaning: str
    content: bool = False


def _key(kind: Kind, effect: Effect, meaning: str, *codes: str) -> Iterator[Row]:
    return (Row(Scope.KEY, code, kind, effect, meaning) for code in codes)


def _request(kind: Kind, effect: Effect, meaning: str, *codes: str, content: bool = False) -> Iterator[Row]:
    return (Row(Scope.REQUEST, code, kind, effect, meaning, content) for code in codes)


_NONE, _UNKNOWN = Effect.NONE, Effect.UNKNOWN

TABLE: tuple[Row, ...] = (
    *_key(Kind.ABSENT, _NONE, "nothing of that name is there", "NoSuchKey", "NoSuchVersion"),
    *_key(Kind.CHANGED, _NONE, "the object is not the one of the condition", "PreconditionFailed", "412"),
    *_key(
        Kind.TRANSIENT,
        _UNKNOWN,
        "the store failed on this key; its neighbours are done",
        "InternalError", "InternalServerError", "500", "502", "504",
    ),
    *_key(
        Kind.TRANSIENT,
        _NONE,
        "the store is busy: this key again, later",
        "SlowDown", "ServiceUnavailable", "RequestTimeout", "Throttling", "ThrottlingException",
        "RequestLimitExceeded", "TooManyRequests", "BandwidthLimitExceeded", "503", "429",
    ),
    *_key(
        Kind.TRANSIENT,
        _NONE,
        "another call on this key was under way",
        "OperationAborted", "ConditionalRequestConflict", "409",
    ),
    *_key(
        Kind.FINAL,
        _NONE,
        "this key may not be deleted: policy, retention or legal hold",
        "AccessDenied", "ObjectLocked", "InvalidRetentionPeriod", "403",
    ),
    *_key(
        Kind.FINAL,
        _NONE,
        "the store cannot do it with this key, ever",
        "InvalidArgument", "InvalidRequest", "KeyTooLongError", "KeyTooLong", "InvalidObjectName",
        "XMinioInvalidObjectName", "InvalidVersionId", "InvalidURI", "MethodNotAllowed", "NotImplemented",
        "InvalidObjectState", "NotSupported", "MFARequired", "400", "405", "414", "501",
    ),
    *_request(
        Kind.BUCKET,
        _NONE,
        "throttled: the whole bucket waits, other buckets continue",
        "SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests",
        "BandwidthLimitExceeded", "429",
    ),
    *_request(
        Kind.BUCKET,
        _UNKNOWN,
        "the bucket's store is overloaded; a part may be done",
        "ServiceUnavailable", "503",
    ),
    *_request(
        Kind.BUCKET,
        _NONE,
        "the bucket is missing, or not to be used by us",
        "NoSuchBucket", "AccessDenied", "AllAccessDisabled", "InvalidBucketState",
        "MethodNotAllowed", "NotImplemented", "OperationAborted", "UserKeyMustBeSpecified", "403", "404",
        "405", "501",
    ),
    *_request(
        Kind.UNUSABLE,
        _NONE,
        "there can be no such bucket, or no way leads to it: waiting does not mend that",
        "InvalidBucketName", "PermanentRedirect", "IllegalLocationConstraintException",
    ),
    *_request(
        Kind.UNUSABLE,
        _NONE,
        "not sent: the name is no bucket's, or it is a kind of bucket that Sexton does not delete in",
        "NotABucketName", "UnsupportedBucket",
    ),
    *_request(
        Kind.BUCKET,
        _NONE,
        "the bucket is elsewhere: region or endpoint is wrong for it",
        "TemporaryRedirect", "AuthorizationHeaderMalformed", "BucketHostUnreachable", "301", "302", "303",
        "307", "308",
    ),
    *_request(
        Kind.ENVIRONMENT,
        _NONE,
        "the credentials are wrong, missing or expired",
        "SignatureDoesNotMatch", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken", "TokenRefreshRequired",
        "InvalidSecurity", "NotSignedUp", "AccountProblem", "CredentialsUnavailable", "401",
    ),
    *_request(
        Kind.ENVIRONMENT, _NONE, "the clock of this machine is wrong", "RequestTimeTooSkewed",
        "RequestExpired"
    ),
    *_request(
        Kind.BUCKET,
        _NONE,
        "the certificate of the bucket's own host is not accepted; nothing was sent",
        "BucketCertificateRejected",
    ),
    *_request(
        Kind.ENVIRONMENT,
        _NONE,
        "the store or a proxy on the way to it is away",
        "EndpointUnreachable", "ProxyFailed", "407",
    ),
    *_request(
        Kind.ENVIRONMENT,
        _NONE,
        "the store's certificate is not accepted (expired, unknown CA, another host); nothing was sent",
        "CertificateRejected",
    ),
    *_request(
        Kind.ENVIRONMENT,
        _NONE,
        "not sent: this process does not hold the lock on its checkpoint, or nobody knows",
        "Fenced",
    ),
    *_request(
        Kind.TRANSIENT,
        _NONE,
        "the request was damaged or cut on its way to the store",
        "BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody", "RequestTimeout", "InvalidDigest", "408",
    ),
    *_request(
        Kind.FINAL,
        _NONE,
        "the content of the request was refused: it is halved until the key that spoils it stands alone",
        "MalformedXML", "InvalidRequest", "InvalidArgument", "KeyTooLongError", "InvalidURI",
        "InvalidObjectName", "XMinioInvalidObjectName", "MalformedPOSTRequest", "MaxMessageLengthExceeded",
        "EntityTooLarge", "MissingContentMD5", "400", "413", "414",
        content=True,
    ),
    *_request(
        Kind.UNKNOWN,
        _UNKNOWN,
        "the store failed in the middle; a part may be done",
        "InternalError", "InternalServerError", "500", "502", "504",
    ),
    *_request(
        Kind.UNKNOWN,
        _UNKNOWN,
        "no whole answer came: time-out, cut connection, torn reply, or one that cannot be read",
        "ReadTimeout", "ConnectionBroken", "TornReply", "UnreadableReply",
    ),
    *_request(
        Kind.UNACCOUNTED,
        _UNKNOWN,
        "an answer that accounts for no key: empty, or not a DeleteResult",
        "EmptyReply", "NotADeleteResult", "200", "204",
    ),
    *_key(
        Kind.UNACCOUNTED,
        _UNKNOWN,
        "the reply does not account for the key: left out, or named more often than it was sent",
        "MissingFromReply", "NotAskedFor", "AmbiguousReply",
    ),
    *_key(
        Kind.FINAL,
        _UNKNOWN,
        "the version that was named was not erased: a delete marker was made instead",
        "MarkerInstead",
    ),
    *_key(
        Kind.REFUSED,
        _NONE,
        "not sent: the store would fold this key into another key, or was not seen to keep it apart",
        "FoldedKey",
    ),
    *_key(
        Kind.REFUSED,
        _NONE,
        "not sent: the store does not check, or was not seen to check, the condition",
        "ConditionNotChecked",
    ),
    *_key(
        Kind.REFUSED,
        _NONE,
        "not sent: the store's listing does not tell the bytes of the key, so that its versions are unknown",
        "UnreadableKey",
    ),
    *_key(Kind.REFUSED, _NONE, "not sent: no object of S3 can have this key", "EmptyKey", "NotUnicode"),
)  # fmt: skip

_ROWS = {(row.scope, row.code): row for row in TABLE}
_OTHER_KEY = Row(Scope.KEY, "any other", Kind.TRANSIENT, _UNKNOWN, "not known: again, until the age limit")
_OTHER_4XX = Row(Scope.REQUEST, "any other 4xx or 3xx", Kind.BUCKET, _NONE, "not known: the bucket waits")
_AFTER_200 = Row(
    Scope.REQUEST,
    "any error after a 200",
    Kind.UNKNOWN,
    _UNKNOWN,
    "failed after the 200 was sent; a part may be done",
)
_OTHER = Row(Scope.REQUEST, "any other", Kind.UNKNOWN, _UNKNOWN, "not known: look, then decide")


def classify(scope: Scope, code: str, status: int) -> Row:
    """Return the row of an answer: by its code, else by its HTTP status, else the row of what is not known.

    A code that came under a success status (an error in the body of a 200) tells nothing about the effect.
    """
    found = _ROWS.get((scope, code)) or _ROWS.get((scope, str(status)))
    if scope is Scope.KEY:
        return found or _OTHER_KEY
    if found is None:
        found = _OTHER_4XX if 300 <= status < 500 else _OTHER
    if 200 <= status < 300 and found.kind is not Kind.UNACCOUNTED:
        return _AFTER_200
    return found


def classify_single(code: str, status: int) -> Row:
    """Return the row of the answer to a call about one key: the key's rows go before those of a request.

    An error without a code of S3 is a proxy's page: a bare 404 does not show that the key is absent.
    """
    for scope, name in (
        (Scope.KEY, code),
        (Scope.REQUEST, code),
        (Scope.KEY, str(status)),
        (Scope.REQUEST, str(status)),
    ):
        if (scope, name) in _ROWS:
            return _ROWS[scope, name]
    return _OTHER_KEY


def table_markdown() -> str:
    """Return the table as Markdown, rows of one meaning together."""
    lines = ["| about | code or status | class | state | effect | meaning |", "|---|---|---|---|---|---|"]
    grouped: dict[tuple[Scope, Kind, Effect, str], list[str]] = {}
    for row in (*TABLE, _OTHER_KEY, _OTHER_4XX, _AFTER_200, _OTHER):
        grouped.setdefault((row.scope, row.kind, row.effect, row.meaning), []).append(row.code)
    for (scope, kind, effect, meaning), codes in grouped.items():
        shown = ", ".join(f"`{code}`" if " " not in code else code for code in codes)
        lines.append(f"| {scope} | {shown} | {kind.error_class or '-'} | {kind} | {effect} | {meaning} |")
    return "\n".join(lines) + "\n"
