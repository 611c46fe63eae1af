"""What a writer of sequenced metadata needs of a bucket, and how a service's boto3 client gives it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from sexton.producers._errors import SequencedNotWritten
from sexton.schemas.errors import StoreUnavailable, UsageError

__all__ = ["NONCE", "NoObject", "SequencedStore", "StoredObject", "store_of"]

NONCE = "sexton-nonce"
"""The name of the nonce in an object's metadata: `x-amz-meta-sexton-nonce`."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as it was read: all of its bytes, its ETag, and the nonce in its metadata, if any."""

    body: bytes
    etag: str
    nonce: str | None = None


class NoObject(enum.Enum):
    """A read without a body."""

    ABSENT = "absent"
    UNCHANGED = "unchanged"


@runtime_checkable
class SequencedStore(Protocol):
    """The three calls on a bucket; a service may bring its own. What cannot be answered is raised.

    None of them may answer from a cache.
    """

    def put_if_absent(self, bucket: str, key: str, body: bytes, nonce: str | None) -> bool:
        """Write an object if there is none: PUT with `If-None-Match: *`, the nonce kept with the object.

        Returns True if it was written, False if one was there (412). Raises SequencedNotWritten for what was
        certainly refused; every other exception means that nobody knows.
        """

    def get_if_changed(
        self, bucket: str, key: str, etag: str | None
    ) -> StoredObject | Literal[NoObject.ABSENT, NoObject.UNCHANGED]:
        """Read an object; with an ETag only if it has another one: GET with `If-None-Match`.

        ABSENT is for the store's own word that there is no such key, and for nothing else.
        """

    def list_after(self, bucket: str, prefix: str, after: str) -> Iterable[str]:
        """Return all keys under a prefix that come after `after`, to the last page."""


def store_of(s3: Any) -> SequencedStore:
    """Return the store behind what a service has given; raises UsageError for what is none."""
    if isinstance(s3, SequencedStore):
        return s3
    if not all(hasattr(s3, name) for name in ("put_object", "get_object", "list_objects_v2")):
        raise UsageError(
            f"neither an S3 client nor a store: {type(s3).__name__}",
            hint='give boto3.client("s3"), or an object with the calls of SequencedStore',
        )
    if "IfNoneMatch" not in s3.meta.service_model.operation_model("PutObject").input_shape.members:
        raise UsageError("this boto3 has no conditional writes", hint="boto3 1.35 or later")
    return _Boto3Store(s3)


class _Boto3Store:
    """A service's boto3 client; this module knows its errors by their shape, and imports nothing of it."""

    def __init__(self, s3: Any) -> None:
        self._s3 = s3

    def put_if_absent(self, bucket: str, key: str, body: bytes, nonce: str | None) -> bool:
        metadata = {} if nonce is None else {NONCE: nonce}
        try:
            reply = self._s3.put_object(Bucket=bucket, Key=key, Body=body, IfNoneMatch="*", Metadata=metadata)
        except Exception as error:
            refusal = _Refusal.of(error)
            if refusal is not None and refusal.status == _TAKEN:
                return False
            if refusal is not None and refusal.is_definite:
                raise SequencedNotWritten(f"the store refused {key}: {error}") from error
            raise
        return bool(reply["ResponseMetadata"]["HTTPStatusCode"] == 200)

    def get_if_changed(
        self, bucket: str, key: str, etag: str | None
    ) -> StoredObject | Literal[NoObject.ABSENT, NoObject.UNCHANGED]:
        condition = {} if etag is None else {"IfNoneMatch": etag}
        try:
            reply = self._s3.get_object(Bucket=bucket, Key=key, **condition)
        except Exception as error:
            refusal = _Refusal.of(error)
            if refusal is not None and refusal.status == 304:
                return NoObject.UNCHANGED
            # NoSuchBucket is a 404 as well, and 403 is what a missing key is without the right to list.
            if refusal is not None and (refusal.status, refusal.code) == (404, "NoSuchKey"):
                return NoObject.ABSENT
            raise
        with closing(reply["Body"]) as body:
            return StoredObject(body.read(), reply["ETag"], _nonce_in(reply["Metadata"]))

    def list_after(self, bucket: str, prefix: str, after: str) -> Iterator[str]:
        page: dict[str, str] = {}
        while True:
            reply = self._s3.list_objects_v2(Bucket=bucket, Prefix=prefix, StartAfter=after, **page)
            yield from (entry["Key"] for entry in reply.get("Contents", ()))
            if not reply["IsTruncated"]:
                return
            if not reply.get("NextContinuationToken"):
                message = f"a listing that is not whole, without a way to go on: {prefix}"
                raise StoreUnavailable(message, hint="call again")
            page = {"ContinuationToken": reply["NextContinuationToken"]}


def _nonce_in(metadata: Mapping[str, str]) -> str | None:
    # Some stores give names back with capitals.
    return next((value for name, value in metadata.items() if name.lower() == NONCE), None)


_TAKEN = 412
_DEFINITE = frozenset({400, 401, 403, 404, 405, 411, 413, 501})
_BY_CHANCE = frozenset({"RequestTimeout", "IncompleteBody"})  # 400s of a connection, not of the request


@dataclass(frozen=True, slots=True)
class _Refusal:
    """An error that a store has answered with; `retries` is how often the client had sent it before."""

    status: int
    code: str
    retries: int

    @classmethod
    def of(cls, error: Exception) -> _Refusal | None:
        """Return what stands in a client's error, None where no answer came."""
        reply = getattr(error, "response", None)
        if not isinstance(reply, Mapping):
            return None
        about = reply.get("ResponseMetadata", {})
        code = str(reply.get("Error", {}).get("Code", ""))
        return cls(int(about.get("HTTPStatusCode", 0)), code, int(about.get("RetryAttempts", 0)))

    @property
    def is_definite(self) -> bool:
        """Return whether there was certainly no effect: refused at once, and not at a second try.

        A 409 (another conditional write is under way), a 429 and every 5xx but 501 are not.
        """
        return self.status in _DEFINITE and self.code not in _BY_CHANCE and self.retries == 0
