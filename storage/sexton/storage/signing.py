"""Signed requests: botocore decides address, region and credentials.

The path is encoded here, once, and nothing in it is normalised: `a/../b`, `//` and a leading `/` are keys
like any other.
"""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

import botocore.session
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.exceptions import BotoCoreError, NoCredentialsError, ParamValidationError
from botocore.loaders import Loader, create_loader

from sexton.schemas.checks import DIRECTORY_BUCKET, is_directory_bucket
from sexton.schemas.errors import InvalidSettings, StoreUnavailable
from sexton.schemas.memo import cache
from sexton.storage.errors import BucketUnusable
from sexton.storage.settings import StoreSettings
from sexton.storage.sigv4 import Signing, signed_headers

__all__ = [
    "CREDENTIAL_CODES",
    "BucketAddress",
    "CredentialsUnavailable",
    "RequestSigner",
    "checksum_headers",
    "md5_headers",
]

_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]+/\d{8}/([^/]+)/([^/]+)/aws4_request")
_NO_CREDENTIALS = "no AWS credentials can be found"
_CREDENTIALS_HINT = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or any other source that AWS tools know"
CREDENTIAL_CODES = ("ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "TokenRefreshRequired")
"""Codes by which a store says that these credentials are no longer, or not, good."""

_RESOLVE_EVERY_S = 2.0
_REQUESTER_PAYS = {"x-amz-request-payer": "requester"}
_WITH_BODY = ("PUT", "POST")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class CredentialsUnavailable(StoreUnavailable):
    """No valid AWS credentials can be had now."""


@cache
def _models(data_path: str | None) -> Loader:
    # botocore's descriptions of AWS are a megabyte of JSON: read once in a process, not for each client.
    return create_loader(data_path)


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """Where the requests of one bucket go, and the scope of their signatures.

    `url` is that of DeleteObjects; `origin` and `path` are what comes before a key's own slash.
    """

    url: str
    region: str
    service: str
    user_agent: str
    origin: str
    path: str
    host: str


class RequestSigner:
    """Makes signed requests; safe for use by several threads."""

    def __init__(self, settings: StoreSettings) -> None:
        self._lock = threading.Lock()
        self._settings = settings
        self._addresses: dict[str, BucketAddress] = {}
        self._clients: dict[str, Any] = {}
        self._captured: AWSPreparedRequest | None = None
        try:
            self._session = botocore.session.Session()
            models = _models(self._session.get_config_variable("data_path"))
            self._session.register_component("data_loader", models)
            self._client(settings.region)
            self._credentials = self._session.get_credentials()
            self._resolved_at = time.monotonic()
            self.ca_bundle: str | None = self._session.get_config_variable("ca_bundle")
        except (BotoCoreError, ValueError) as error:
            raise InvalidSettings(f"the S3 client cannot be made: {error}") from error

    def forget_credentials(self) -> None:
        """Look for credentials anew: the store refused these, and a file may hold newer ones by now.

        At most every few seconds; what is looked up is what botocore finds for a new session.
        """
        with self._lock:
            now = time.monotonic()
            if now - self._resolved_at >= _RESOLVE_EVERY_S:
                self._resolved_at = now
                self._credentials = botocore.session.Session().get_credentials()

    def address(self, bucket: str) -> BucketAddress:
        """Return the bucket's address, asked of botocore once.

        Raises BucketUnusable for a bucket that botocore leads nowhere, CredentialsUnavailable without
        credentials.
        """
        found = self._addresses.get(bucket)
        if found is None:
            with self._lock:
                found = self._addresses.get(bucket) or self._ask_botocore(bucket, self._settings.region)
                self._addresses[bucket] = found
        return found

    def move(self, bucket: str, region: str) -> BucketAddress | None:
        """Return the bucket's address in the region that its store names, from now on; None without one."""
        with self._lock:
            found = self._addresses.get(bucket)
            if found is None or found.region != region:
                try:
                    found = self._ask_botocore(bucket, region)
                except (StoreUnavailable, BucketUnusable):
                    return None
                self._addresses[bucket] = found
            return found

    def signed(
        self,
        address: BucketAddress,
        method: str,
        key: str = "",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> AWSPreparedRequest:
        """Return a request about one key of a bucket that is at this address (the bucket when it is empty).

        The key's bytes are percent-encoded, once. Raises CredentialsUnavailable.
        """
        try:
            # Asked anew each time: refreshable credentials change while the process lives.
            frozen: Any = self._credentials.get_frozen_credentials() if self._credentials else None
        except BotoCoreError as error:
            raise CredentialsUnavailable(
                f"no valid AWS credentials: {error}", hint=_CREDENTIALS_HINT
            ) from error
        if frozen is None:
            raise CredentialsUnavailable(_NO_CREDENTIALS, hint=_CREDENTIALS_HINT)
        path = address.path + ("/" + quote(key, safe="/~") if key or not address.path else "")
        pairs = "&".join(
            sorted(
                [f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in (query or {}).items()]
            )
        )
        signing = Signing(frozen.access_key, frozen.secret_key, frozen.token, address.region, address.service)
        own = {**(headers or {}), **(_REQUESTER_PAYS if self._settings.requester_pays else {})}
        sent: Any = signed_headers(method, address.host, path, pairs, own, body, signing, datetime.now(UTC))
        sent["Host"], sent["User-Agent"] = address.host, address.user_agent
        if body or method in _WITH_BODY:
            sent["Content-Length"] = str(len(body))
        url = f"{address.origin}{path}"
        return AWSPreparedRequest(method, f"{url}?{pairs}" if pairs else url, sent, body, False)

    def _client(self, region: str) -> Any:
        if region not in self._clients:
            client: Any = self._session.create_client(
                "s3",
                region_name=region,
                endpoint_url=self._settings.endpoint_url,
                config=Config(retries={"total_max_attempts": 1}),
            )
            client.meta.events.register("before-send.s3.DeleteObjects", self._capture)
            self._clients[region] = client
        return self._clients[region]

    def _ask_botocore(self, bucket: str, region: str) -> BucketAddress:
        if is_directory_bucket(bucket):
            # Not asked of botocore: it would open a session at AWS, to sign for this one bucket.
            hint = "give a general purpose bucket"
            raise BucketUnusable(f"{DIRECTORY_BUCKET}: {bucket}", code="UnsupportedBucket", hint=hint)
        try:
            return self._led_to(bucket, region)
        except ParamValidationError as error:
            raise BucketUnusable(f"not a bucket name: {bucket!r}", code="NotABucketName") from error
        except Exception as error:
            # Whatever botocore raises for one bucket is that bucket's, unless it raises it for any.
            self._check_client(region)
            raise BucketUnusable(
                f"there is no way to the bucket: {bucket}: {error}", code="UnsupportedBucket"
            ) from error

    def _check_client(self, region: str) -> None:
        try:
            self._led_to("sexton", region)
        except NoCredentialsError as error:
            raise CredentialsUnavailable(_NO_CREDENTIALS, hint=_CREDENTIALS_HINT) from error
        except Exception as error:
            raise CredentialsUnavailable(
                f"the addresses of buckets cannot be determined: {error}", hint=_CREDENTIALS_HINT
            ) from error

    def _led_to(self, bucket: str, region: str) -> BucketAddress:
        # A real call with a dummy key, taken off the line just before it is sent: so path or virtual-host
        # addressing, dual-stack, FIPS, access points and endpoint variables are what botocore makes of them.
        self._captured = None
        self._client(region).delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "address"}]})
        captured, self._captured = self._captured, None
        if captured is None:
            raise StoreUnavailable("botocore has sent nothing")
        return _address(captured)

    def _capture(self, request: AWSPreparedRequest, **_: object) -> Any:
        self._captured = request
        return AWSResponse(request.url, 200, HTTPHeaders(), _NothingSent())


class _NothingSent:
    """The body of the reply to a request that never left."""

    def stream(self, **_: object) -> list[bytes]:
        return [b'<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></DeleteResult>']


def checksum_headers(body: bytes) -> dict[str, str]:
    """Return the integrity headers of a DeleteObjects body: CRC32 (the SDKs' default since 2025).

    The API wants one checksum. Content-MD5 would do as well and costs eight times as much (0.13 us a key).
    """
    crc = zlib.crc32(body).to_bytes(4, "big")
    return {
        "x-amz-checksum-crc32": base64.b64encode(crc).decode(),
        "x-amz-sdk-checksum-algorithm": "CRC32",
    }


def md5_headers(body: bytes) -> dict[str, str]:
    """Return the integrity header of older stores, which know no other."""
    return {"Content-MD5": base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()}


def _address(request: AWSPreparedRequest) -> BucketAddress:
    scope = _SCOPE.match(_header(request, "Authorization"))
    if scope is None:
        raise ValueError("it wants another signature than SigV4")
    if scope[2] != "s3":
        raise ValueError(f"it belongs to the service {scope[2]}")
    url = urlsplit(request.url)
    path = url.path.rstrip("/")
    return BucketAddress(
        request.url,
        scope[1],
        scope[2],
        _header(request, "User-Agent"),
        f"{url.scheme}://{url.netloc}",
        path,
        url.netloc.removesuffix(_DEFAULT_PORTS.get(url.scheme, "-")),
    )


def _header(request: AWSPreparedRequest, name: str) -> str:
    value = request.headers.get(name, "")
    return value.decode() if isinstance(value, bytes) else str(value)
