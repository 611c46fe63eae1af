"""What a tenant, a bucket and a key may be called, and what is an instant.

Limits of names are S3's (a key has 1 to 1,024 bytes of UTF-8).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from sexton.schemas.errors import InvalidEvent

__all__ = [
    "DIRECTORY_BUCKET",
    "MAX_KEY_BYTES",
    "MAX_TENANT_BYTES",
    "check_bucket",
    "check_instant",
    "check_keys",
    "check_likely",
    "check_tenant",
    "is_directory_bucket",
]

MAX_KEY_BYTES = 1024
MAX_TENANT_BYTES = 512
MAX_BUCKET_LENGTH = 255  # S3 once had such names, and some stores still do
DIRECTORY_BUCKET = "directory buckets (S3 Express One Zone) are not supported"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}\Z")
_URI = re.compile(r"(?:[a-z][a-z0-9+.-]*://|(?:s3[an]?|gs|https?|file):/)(?:[^/]*/+)?", re.IGNORECASE)
_ARN = re.compile(r"arn:[^/]*?:::[^/]*/?", re.IGNORECASE)
_ALONE = "a bucket's name alone, without a scheme and without keys"
_MISTAKES = (
    (re.compile(r"arn:[^:]*:s3:::([^/:]+)"), f"{_ALONE}: give '{{0}}'"),
    (
        re.compile(r"arn:[^:]*:s3:[^:]+:[^:]*:accesspoint[:/]", re.IGNORECASE),
        "ARNs are not supported: give the access point's alias, which ends in -s3alias, or the bucket's name",
    ),
    (
        re.compile("arn:", re.IGNORECASE),
        "ARNs (of multi-Region or Object Lambda access points, Outposts) are not supported: give the bucket",
    ),
    (re.compile(r"[a-z][a-z0-9+.-]*:/{1,2}([^/]+)", re.IGNORECASE), f"{_ALONE}: give '{{0}}'"),
    (re.compile(r"/+([^/:]+)"), f"{_ALONE}: give '{{0}}'"),
    (re.compile(r"([^/:]+)/"), f"{_ALONE}: give '{{0}}'"),
    (
        re.compile(r"[^/:]*:([^/:]+)\Z"),
        "a tenant's name does not go with it: with credentials of that tenant, give '{0}'",
    ),
)
"""What was meant where a bucket's name was asked for, by what stands there."""
_ANY_KEY = "a key that is really called so: any_key=True, or --any-key"


def check_instant(instant: datetime) -> datetime:
    """Return the instant; raises InvalidEvent unless it has a time zone, and a year of 1 to 9999 in UTC.

    Avro writes every number of microseconds and reads back only what is in these years: one record with
    another instant, once in the generations log, would make that log unreadable for ever.
    """
    if instant.tzinfo is None:
        raise InvalidEvent(f"an instant needs a time zone: {instant.isoformat()}")
    try:
        instant.astimezone(UTC)
    except OverflowError as error:
        message = f"an instant before the year 1 or after 9999 in UTC: {instant.isoformat()}"
        raise InvalidEvent(message) from error
    return instant


def check_tenant(tenant: str) -> str:
    """Return the tenant's name; raises InvalidEvent unless it has 1 to 512 bytes of UTF-8."""
    if not isinstance(tenant, str):
        raise InvalidEvent(f"a tenant's name must be text, not {type(tenant).__name__}")
    if not 1 <= len(_utf8("tenant", tenant)) <= MAX_TENANT_BYTES:
        raise InvalidEvent(f"a tenant's name must have 1 to {MAX_TENANT_BYTES} bytes: {tenant[:80]!r}")
    return tenant


def check_keys(keys: Sequence[str]) -> None:
    """Raise InvalidEvent that names the first key which no object can have; every other one is carried as is.

    One pass over all keys joined: this runs for every key that is emitted or deleted.
    """
    try:
        joined = "".join(keys)
    except TypeError as error:
        raise InvalidEvent(f"a key must be text: {error}") from error
    if "" in keys:
        raise InvalidEvent("a key is empty")
    if not joined.isascii():
        _check_utf8(keys, joined)
    if len(joined) > MAX_KEY_BYTES // 4:  # else none can be too long, whatever its characters
        _check_lengths(keys)


def check_likely(keys: Sequence[str]) -> None:
    """Raise InvalidEvent that names the first key which is hardly one: a URI, an ARN, a path from the root.

    A store takes `s3://bucket/key` for a key of just that name, says that nothing is there, and the object
    that was meant stays, with a receipt. For whoever emits; who reads intents takes every key as it is.
    """
    joined = "\0" + "\0".join(keys).lower()
    if "\0/" not in joined and ":/" not in joined and "\0arn:" not in joined:
        return
    for key in keys:
        if key.startswith("/"):
            raise InvalidEvent(
                f"a key begins with a slash, as a path does and keys seldom do: {key[:80]!r}",
                hint=f"give {key.lstrip('/')[:80]!r}; {_ANY_KEY}",
            )
        for pattern, what in ((_URI, "a URI"), (_ARN, "an ARN")):
            if found := pattern.match(key):
                raise InvalidEvent(
                    f"a key is {what}: {key[:80]!r}", hint=f"give {key[found.end() :][:80]!r}; {_ANY_KEY}"
                )


def _check_utf8(keys: Sequence[str], joined: str) -> None:
    try:
        joined.encode()
    except UnicodeEncodeError:
        for key in keys:
            _utf8("a key", key)
        raise


def _check_lengths(keys: Sequence[str]) -> None:
    if max(map(len, keys)) <= MAX_KEY_BYTES // 4:
        return
    for key in keys:
        if len(key) > MAX_KEY_BYTES // 4 and len(key.encode()) > MAX_KEY_BYTES:
            raise InvalidEvent(f"a key has more than {MAX_KEY_BYTES} bytes: {key[:80]!r}...")


def check_bucket(bucket: str) -> None:
    """Raise InvalidEvent unless it may be the name of a bucket in which Sexton deletes."""
    if not isinstance(bucket, str) or not _BUCKET.match(bucket):
        raise InvalidEvent(f"not a bucket name: {bucket!r}", hint=_meant(bucket))
    if is_directory_bucket(bucket):
        raise InvalidEvent(f"{DIRECTORY_BUCKET}: {bucket!r}", hint="give a general purpose bucket")


def is_directory_bucket(bucket: str) -> bool:
    """Return whether AWS' tools take the name for that of a directory bucket, or an access point to one."""
    return bucket.endswith(("--x-s3", "--xa-s3"))


def _meant(bucket: object) -> str | None:
    """Return what to give instead of what is no bucket's name."""
    text = bucket if isinstance(bucket, str) else ""
    for mistake, hint in _MISTAKES:
        if found := mistake.match(text):
            return hint.format(*found.groups())
    if len(text) > MAX_BUCKET_LENGTH:
        return f"a bucket's name has at most {MAX_BUCKET_LENGTH} characters"
    return None


def _utf8(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidEvent(f"{what} is not UTF-8: {text[:80]!r}") from error
