"""Signed DeleteObjects requests: botocore decides address, region and credentials, and signs them."""

from __future__ import annotations

import base64
import re
import threading
import zlib
from dataclasses import dataclass
from typing import Any

import botocore.session
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ParamValidationError

from sexton.schemas.errors import InvalidSettings, StoreUnavailable
from sexton.storage.errors import InvalidBatch
from sexton.storage.settings import StoreSettings

__all__ = ["BucketAddress", "RequestSigner", "checksum_headers"]

_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]+/\d{8}/([^/]+)/([^/]+)/aws4_request")
_CREDENTIALS_HINT = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or any other source that AWS tools know"


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """Where the DeleteObjects requests of one bucket go, and the scope of their signatures."""

    url: str
    region: str
    service: str
    user_agent: str


class RequestSigner:
    """Makes signed requests; safe for use by several threads."""

    def __init__(self, settings: StoreSettings) -> None:
        self._lock = threading.Lock()
        self._addresses: dict[str, BucketAddress] = {}
        self._captured: AWSPreparedRequest | None = None
        try:
            session = botocore.session.Session()
            self._client: Any = session.create_client(
                "s3",
                region_name=settings.region,
                endpoint_url=settings.endpoint_url,
                config=Config(retries={"total_max_attempts": 1}),
            )
            self._credentials = session.get_credentials()
            self.ca_bundle: str | None = session.get_config_variable("ca_bundle")
        except (BotoCoreError, ValueError) as error:
            raise InvalidSettings(f"the S3 client cannot be made: {error}") from error
        self._client.meta.events.register("before-send.s3.DeleteObjects", self._capture)

    def address(self, bucket: str) -> BucketAddress:
        """Return the bucket's address, asked of botocore once.

        Raises InvalidBatch for what is no bucket name, StoreUnavailable without credentials.
        """
        found = self._addresses.get(bucket)
        if found is None:
            with self._lock:
                found = self._addresses.get(bucket) or self._ask_botocore(bucket)
                self._addresses[bucket] = found
        return found

    def request(self, bucket: str, body: bytes) -> AWSPreparedRequest:
        """Return a DeleteObjects request, signed now with the credentials that are valid now."""
        address = self.address(bucket)
        headers = {
            "Content-Type": "application/xml",
            "User-Agent": address.user_agent,
            **checksum_headers(body),
        }
        request = AWSRequest(method="POST", url=address.url, headers=headers, data=body)
        try:
            # Asked anew each time: refreshable credentials change while the process lives.
            frozen: Any = self._credentials.get_frozen_credentials() if self._credentials else None
            S3SigV4Auth(frozen, address.service, address.region).add_auth(request)
        except BotoCoreError as error:
            raise StoreUnavailable(f"no valid AWS credentials: {error}", hint=_CREDENTIALS_HINT) from error
        return request.prepare()

    def _ask_botocore(self, bucket: str) -> BucketAddress:
        # A real call with a dummy key, taken off the line just before it is sent: so path or virtual-host
        # addressing, dual-stack, FIPS, access points and endpoint variables are what botocore makes of them.
        try:
            self._client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "address"}]})
        except ParamValidationError as error:
            raise InvalidBatch(f"not a bucket name: {bucket!r}") from error
        except BotoCoreError as error:
            raise StoreUnavailable(
                f"the bucket's address cannot be told: {bucket}: {error}", hint=_CREDENTIALS_HINT
            ) from error
        captured, self._captured = self._captured, None
        if captured is None:
            raise StoreUnavailable(f"the bucket's address cannot be told: {bucket}")
        return _address(bucket, captured)

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


def _address(bucket: str, request: AWSPreparedRequest) -> BucketAddress:
    scope = _SCOPE.match(_header(request, "Authorization"))
    if scope is None:
        raise InvalidSettings(
            f"the bucket wants another signature than SigV4: {bucket}",
            hint="directory buckets and multi-region access points are not supported",
        )
    return BucketAddress(request.url, scope[1], scope[2], _header(request, "User-Agent"))


def _header(request: AWSPreparedRequest, name: str) -> str:
    value = request.headers.get(name, "")
    return value.decode() if isinstance(value, bytes) else str(value)
