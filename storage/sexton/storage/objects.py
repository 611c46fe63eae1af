"""The plain single calls to the store, for whoever is not in a hurry: console, demo, doctor, tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ParamValidationError,
    ProxyConnectionError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError

from sexton.schemas.errors import InvalidSettings, StoreUnavailable, UsageError
from sexton.storage.errors import NoReply, StoreRefused
from sexton.storage.settings import StoreSettings

__all__ = ["ObjectStore"]

_ABSENT = ("404", "NoSuchKey", "NotFound")


class ObjectStore:
    """Single calls through boto3; one call is one request, nothing is repeated.

    A repeated conditional put would be refused because of its own first try. Every method raises StoreRefused
    for an error that the store names, NoReply when it does not answer, StoreUnavailable without credentials.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings
        config = Config(
            retries={"total_max_attempts": 1},
            connect_timeout=settings.connect_timeout_s,
            read_timeout=settings.read_timeout_s,
            max_pool_connections=settings.requests_in_flight,
        )
        try:
            self._client: Any = boto3.session.Session().client(
                "s3", region_name=settings.region, endpoint_url=settings.endpoint_url, config=config
            )
        except (BotoCoreError, ValueError) as error:
            raise InvalidSettings(f"the S3 client cannot be made: {error}") from error

    def create_bucket(self, bucket: str) -> None:
        """Create the bucket; one that is already ours is fine."""
        where = {}
        if self.settings.region != "us-east-1":
            where = {"CreateBucketConfiguration": {"LocationConstraint": self.settings.region}}
        try:
            with _typed(f"create bucket {bucket}"):
                self._client.create_bucket(Bucket=bucket, **where)
        except StoreRefused as error:
            if error.code != "BucketAlreadyOwnedByYou":
                raise

    def ping(self, bucket: str) -> None:
        """Return when the bucket is there and may be read."""
        with _typed(f"look for bucket {bucket}"):
            self._client.head_bucket(Bucket=bucket)

    def put(self, bucket: str, key: str, body: bytes, *, if_none_match: bool = False) -> str:
        """Write an object and return its ETag.

        With `if_none_match` only where no object of that key is: else StoreRefused, code PreconditionFailed.
        After a NoReply with `effect_unknown` the object may have been written.
        """
        condition = {"IfNoneMatch": "*"} if if_none_match else {}
        with _typed(f"put {bucket}/{key}"):
            return str(self._client.put_object(Bucket=bucket, Key=key, Body=body, **condition)["ETag"])

    def get(self, bucket: str, key: str) -> bytes:
        """Return the bytes of an object; StoreRefused, code NoSuchKey, when there is none."""
        with _typed(f"get {bucket}/{key}"):
            return bytes(self._client.get_object(Bucket=bucket, Key=key)["Body"].read())

    def exists(self, bucket: str, key: str) -> bool:
        """Tell whether the object is there."""
        try:
            with _typed(f"look for {bucket}/{key}"):
                self._client.head_object(Bucket=bucket, Key=key)
        except StoreRefused as error:
            if error.code in _ABSENT:
                return False
            raise
        return True

    def list_keys(self, bucket: str, prefix: str = "") -> Iterator[str]:
        """Yield all keys that start with `prefix`, page by page, in the store's order (UTF-8 bytes)."""
        more: dict[str, str] = {}
        while True:
            with _typed(f"list {bucket}/{prefix}"):
                page = self._client.list_objects_v2(Bucket=bucket, Prefix=prefix, **more)
            yield from (entry["Key"] for entry in page.get("Contents", ()))
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}


@contextmanager
def _typed(what: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        details = error.response.get("Error", {})
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        code = str(details.get("Code", ""))
        raise StoreRefused(
            f"the store refused to {what}: {code} {details.get('Message', '')}".strip(),
            code=code,
            status=status,
        ) from error
    except (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError) as error:
        raise NoReply(
            f"no connection to the store, nothing was sent: {what}: {error}",
            effect_unknown=False,
            hint="is the store up, and SEXTON_S3_ENDPOINT_URL right?",
        ) from error
    except (HTTPClientError, BotoConnectionError) as error:
        raise NoReply(
            f"no answer from the store, effect unknown: {what}: {error}", effect_unknown=True
        ) from error
    except ParamValidationError as error:
        raise UsageError(f"not a bucket or key: {what}: {error}") from error
    except BotoCoreError as error:
        raise StoreUnavailable(f"the store cannot be asked: {what}: {error}") from error
