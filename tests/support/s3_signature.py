"""The server's side of AWS Signature Version 4 and of the S3 checksums, written from the documents.

It shares nothing with a client: what a client signs wrongly is refused here, as a store would.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, unquote_to_bytes

__all__ = ["Identity", "Refused", "parse_query", "verify", "verify_checksums"]

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<date>\d{8})/(?P<region>[^/]+)/s3/aws4_request, ?"
    r"SignedHeaders=(?P<signed>[^,]+), ?Signature=(?P<signature>[0-9a-f]{64})"
)
_UNSIGNED_BODY = "UNSIGNED-PAYLOAD"
_SKEW = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who may sign, and for which region."""

    access_key: str
    secret_key: str
    session_token: str | None
    region: str


class Refused(Exception):
    """The request is answered with an S3 error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.code = code
        self.message = message
        super().__init__(code)


def parse_query(query: str) -> dict[str, str]:
    """Return the parameters of a query string, decoded; `delete` alone has an empty value."""
    pairs = (part.partition("=") for part in query.split("&") if part)
    return {unquote_to_bytes(name).decode(): unquote_to_bytes(value).decode() for name, _, value in pairs}


def verify(
    method: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
    identity: Identity,
) -> None:
    """Raise Refused unless the request is signed by the identity, now, over what has arrived."""
    match = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
    if match is None:
        raise Refused(403, "AccessDenied", "the request has no SigV4 authorization")
    if match["key"] != identity.access_key:
        raise Refused(403, "InvalidAccessKeyId", "the access key is not known here")
    if match["region"] != identity.region:
        raise Refused(
            400, "AuthorizationHeaderMalformed", f"the region is wrong; expecting {identity.region}"
        )
    _check_signed_headers(match["signed"].split(";"), headers)
    _check_token(headers, identity)
    _check_time(headers["x-amz-date"], match["date"])
    _check_body_hash(headers["x-amz-content-sha256"], body)
    canonical = _canonical_request(method, path, query, headers, match["signed"])
    expected = _signature(canonical, headers["x-amz-date"], identity)
    if not hmac.compare_digest(expected, match["signature"]):
        raise Refused(403, "SignatureDoesNotMatch", "the signature is not the one that this server computes")


def verify_checksums(headers: Mapping[str, str], body: bytes, *, required: bool) -> None:
    """Raise Refused when a checksum header is not that of the body, or when a required one is missing."""
    computed = {
        "content-md5": hashlib.md5(body, usedforsecurity=False).digest(),
        "x-amz-checksum-crc32": zlib.crc32(body).to_bytes(4, "big"),
        "x-amz-checksum-sha1": hashlib.sha1(body, usedforsecurity=False).digest(),
        "x-amz-checksum-sha256": hashlib.sha256(body).digest(),
    }
    given = [name for name in headers if name in computed]
    no_sums = {*computed, "x-amz-checksum-mode", "x-amz-checksum-algorithm"}
    unknown = [name for name in headers if name.startswith("x-amz-checksum-") and name not in no_sums]
    if unknown:
        raise Refused(501, "NotImplemented", f"checksum not known here: {unknown[0]}")
    if required and not given:
        raise Refused(400, "InvalidRequest", "Missing required header for this request: Content-MD5")
    for name in given:
        if base64.b64encode(computed[name]).decode() != headers[name]:
            raise Refused(400, "BadDigest", f"the {name} that you gave is not that of the body")


def _check_signed_headers(signed: list[str], headers: Mapping[str, str]) -> None:
    must = {"host"} | {name for name in headers if name.startswith("x-amz-") and name != "x-amzn-trace-id"}
    if signed != sorted(signed) or not must <= set(signed) or not set(signed) <= set(headers):
        raise Refused(403, "AccessDenied", "there were headers present which were not signed")
    if not {"x-amz-date", "x-amz-content-sha256"} <= set(signed):
        raise Refused(400, "InvalidRequest", "x-amz-date and x-amz-content-sha256 are required")


def _check_token(headers: Mapping[str, str], identity: Identity) -> None:
    if headers.get("x-amz-security-token") != identity.session_token:
        raise Refused(400, "InvalidToken", "the session token is not the one of this access key")


def _check_time(date: str, scope_date: str) -> None:
    signed_at = datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    if date[:8] != scope_date or abs(datetime.now(UTC) - signed_at) > _SKEW:
        raise Refused(403, "RequestTimeTooSkewed", "the difference between the clocks is too large")


def _check_body_hash(given: str, body: bytes) -> None:
    if given != _UNSIGNED_BODY and given != hashlib.sha256(body).hexdigest():
        raise Refused(400, "XAmzContentSHA256Mismatch", "the hash of the body is not x-amz-content-sha256")


def _canonical_request(
    method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], signed: str
) -> str:
    # S3 encodes the path once and normalises nothing in it.
    canonical_path = quote(unquote_to_bytes(path), safe="/~-._")
    pairs = sorted((quote(name, safe="~-._"), quote(value, safe="~-._")) for name, value in query.items())
    lines = [f"{name}:{' '.join(headers[name].split())}" for name in signed.split(";")]
    return "\n".join(
        [
            method,
            canonical_path,
            "&".join(f"{name}={value}" for name, value in pairs),
            *lines,
            "",
            signed,
            headers["x-amz-content-sha256"],
        ]
    )


def _signature(canonical: str, date: str, identity: Identity) -> str:
    scope = f"{date[:8]}/{identity.region}/s3/aws4_request"
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{identity.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashed}".encode(), "sha256").hex()
