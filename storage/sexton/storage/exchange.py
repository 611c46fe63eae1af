"""Signed requests over the one wire: each is signed by its sender, just before it leaves, and sent once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sexton.storage.reply import child_text, code_of, local_name, parsed
from sexton.storage.signing import CREDENTIAL_CODES, RequestSigner
from sexton.storage.wire import RawReply, Wire

__all__ = ["Exchange", "Refusal", "refusal_of", "region_named"]

_NOTHING_DONE = (301, 302, 307, 400)
_ELSEWHERE = ("AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect")
_EXPECTED = re.compile(r"expecting '([^']+)'")
_REGION = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a reply says that is an error as a whole; all empty for any other."""

    code: str = ""
    message: str = ""
    region: str = ""


class Exchange:
    """Requests about buckets over one signer and one wire; safe for several threads."""

    def __init__(self, signer: RequestSigner, wire: Wire) -> None:
        self._signer = signer
        self._wire = wire

    def send(
        self,
        method: str,
        bucket: str,
        key: str = "",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> RawReply:
        """Send one request about a key (the bucket when it is empty) and return its reply, whatever it says.

        A store that has done nothing, and names another region as the bucket's, is asked there, from then on.
        Raises NoReply, CredentialsUnavailable, BucketUnusable.
        """
        address = self._signer.address(bucket)
        # Signed by the sender, not by the caller: a signature that waits for a connection grows old.
        request = self._signer.signed(address, method, key, query, headers, body)
        reply = self._wire.exchange(bucket, request)
        refusal = refusal_of(reply)
        if refusal.code in CREDENTIAL_CODES:
            self._signer.forget_credentials()
        region = region_named(reply, refusal)
        if region is None or region == address.region:
            return reply
        moved = self._signer.move(bucket, region)
        if moved is None:
            return reply
        return self._wire.exchange(bucket, self._signer.signed(moved, method, key, query, headers, body))

    def folds_paths(self, bucket: str) -> bool:
        """Return whether a proxy reads the paths of a bucket's requests, and may normalise them."""
        return self._wire.folds_paths(self._signer.address(bucket).url)


def refusal_of(reply: RawReply) -> Refusal:
    """Return the error that a reply is as a whole; one of single keys is none."""
    start = reply.body[:400]
    if b"<Error" not in start or b"DeleteResult" in start:
        return Refusal()
    root = parsed(reply.body)
    if root is None or local_name(root) != "Error":
        return Refusal()
    return Refusal(code_of(root), child_text(root, "Message"), child_text(root, "Region"))


def region_named(reply: RawReply, refusal: Refusal) -> str | None:
    """Return the region in which a store says that the bucket is, where it has therefore done nothing.

    The header goes with every such answer of AWS, also to a HEAD, which has no body (botocore's
    S3RegionRedirectorv2 goes by the same signs); other stores say it in the error or in its message.
    """
    if reply.status not in _NOTHING_DONE:
        return None
    named = reply.headers.get("x-amz-bucket-region", "")
    if not named and refusal.code in _ELSEWHERE:
        expected = _EXPECTED.search(refusal.message)
        named = refusal.region or (expected[1] if expected else "")
    return named if _REGION.fullmatch(named) else None
