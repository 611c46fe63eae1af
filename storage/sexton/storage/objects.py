"""The plain single calls to the store, for whoever is not in a hurry: console, demo, doctor, tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from sexton.storage.calls import Calls
from sexton.storage.errors import StoreRefused
from sexton.storage.exchange import Exchange
from sexton.storage.settings import StoreSettings
from sexton.storage.signing import BucketAddress, RequestSigner
from sexton.storage.wire import Wire

__all__ = ["ObjectStore"]


class ObjectStore:
    """Single calls over the same wire as the deletes; one call is one request, nothing is repeated.

    Every method raises StoreRefused for an error that the store names, NoReply when it does not answer,
    StoreUnavailable without credentials.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings
        self._signer = RequestSigner(settings)
        self._wire = Wire(settings, self._signer.ca_bundle)
        self._calls = Calls(Exchange(self._signer, self._wire))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connections."""
        self._wire.close()

    @property
    def calls(self) -> Calls:
        """The same, one request at a time."""
        return self._calls

    def address(self, bucket: str) -> BucketAddress:
        """Return where requests about the bucket go; raises BucketUnusable, CredentialsUnavailable."""
        return self._signer.address(bucket)

    def create_bucket(self, bucket: str) -> None:
        """Create the bucket; one that is already ours is fine."""
        try:
            self._calls.create_bucket(bucket, self.settings.region)
        except StoreRefused as error:
            if error.code != "BucketAlreadyOwnedByYou":
                raise

    def ping(self, bucket: str) -> None:
        """Return when the bucket is there and may be read."""
        self._calls.check_bucket(bucket)

    def put(self, bucket: str, key: str, body: bytes) -> str:
        """Write an object, whatever stands there, and return its ETag.

        After a NoReply with `effect_unknown` it may have been written. Conditional puts are those of
        `sexton.storage.conditional`, over `calls`.
        """
        return self._calls.put(bucket, key, body).etag

    def get(self, bucket: str, key: str) -> bytes:
        """Return the bytes of an object; StoreRefused, code NoSuchKey, when there is none."""
        return self._calls.get(bucket, key)

    def exists(self, bucket: str, key: str) -> bool:
        """Return whether the object is there; StoreRefused, code NoSuchBucket, without the bucket."""
        return self._calls.exists(bucket, key)

    def list_keys(self, bucket: str, prefix: str = "") -> Iterator[str]:
        """Yield all keys that start with `prefix`, page by page, in the store's order (UTF-8 bytes)."""
        after: str | None = None
        while True:
            page = self._calls.list_slice(bucket, prefix, after)
            yield from (entry.key for entry in page.objects)
            after = page.after
            if after is None:
                return
