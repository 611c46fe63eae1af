"""The local S3 server and its bucket."""

from __future__ import annotations

import sys

import httpx

from sexton.schemas.errors import StoreUnavailable

__all__ = ["answers", "command", "create_bucket"]

# moto takes any signature, but looks for one before it treats a request as a user's.
_SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=sexton/20000101/us-east-1/s3/aws4_request"}


def command(port: int) -> list[str]:
    """Return the server's command line."""
    return [sys.executable, "-m", "sexton.deploy.local.moto_server", "--port", str(port)]


def answers(url: str) -> str | None:
    """Return None if the server lists its buckets, else what it said."""
    try:
        with _client() as client:
            reply = client.get(url, headers=_SIGNED)
    except httpx.HTTPError as error:
        return str(error)
    return None if "ListAllMyBucketsResult" in reply.text else f"HTTP {reply.status_code}"


def create_bucket(url: str, bucket: str) -> None:
    """Create a bucket on the local server unless it is there; raises StoreUnavailable."""
    try:
        with _client() as client:
            reply = client.put(f"{url}/{bucket}", headers=_SIGNED)
    except httpx.HTTPError as error:
        raise StoreUnavailable(f"the bucket cannot be created: {error}") from error
    if reply.status_code not in (200, 409):
        raise StoreUnavailable(f"the bucket cannot be created: HTTP {reply.status_code}: {reply.text[:200]}")


def _client() -> httpx.Client:
    # A proxy for the outside world has no business between two processes of this machine.
    return httpx.Client(timeout=5, trust_env=False, verify=False)
