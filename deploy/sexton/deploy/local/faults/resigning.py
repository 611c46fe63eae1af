"""A batch without some of its keys is another request: signed anew, where there are credentials to do so."""

from __future__ import annotations

import base64
import hashlib
import threading
import zlib

from sexton.deploy.local.faults.http import Request
from sexton.schemas.errors import EnvironmentFault, InvalidSettings
from sexton.storage import InvalidBatch, StoreSettings
from sexton.storage.signing import RequestSigner

__all__ = ["Resigner"]

_KEPT = (b"x-amz-bypass-governance-retention", b"x-amz-mfa", b"x-amz-expected-bucket-owner")


class Resigner:
    """Fits signature and checksum of a DeleteObjects request to a changed body."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._signer: RequestSigner | None = None
        self._looked = False
        self._lock = threading.Lock()

    def fitting(self, request: Request, bucket: str) -> Request:
        """Return the request as a client would have sent it with this body.

        Signed by the credentials of this process; without any only the checksum is put right, which is
        enough for stores that believe every signature. The first call takes the better part of a second, so
        it belongs on a thread.
        """
        signer = self._found()
        if signer is None or not any(name.lower() == b"authorization" for name, _ in request.headers):
            return _checksummed(request)
        kept = {n.decode(): v.decode("latin-1") for n, v in request.headers if n.lower() in _KEPT}
        try:
            signed = signer.request(
                bucket, request.body, {**kept, "Content-MD5": _md5(request.body).decode()}
            )
        except (EnvironmentFault, InvalidBatch):
            return _checksummed(request)
        headers = [(name.encode(), _bytes(value)) for name, value in signed.headers.items()]
        return Request(request.method, signed.url.removeprefix(self._store).encode(), headers, request.body)

    def _found(self) -> RequestSigner | None:
        with self._lock:
            if not self._looked:
                self._looked = True
                try:
                    self._signer = RequestSigner(StoreSettings(self._store))
                except InvalidSettings:
                    self._signer = None
        return self._signer


def _checksummed(request: Request) -> Request:
    """Return the request with its checksums right again; those that cannot be made here are dropped."""
    made = {
        b"content-md5": _md5(request.body),
        b"x-amz-checksum-crc32": base64.b64encode(zlib.crc32(request.body).to_bytes(4, "big")),
        b"x-amz-content-sha256": hashlib.sha256(request.body).hexdigest().encode(),
    }
    headers = []
    for name, value in request.headers:
        low = name.lower()
        if low in made and not (low == b"x-amz-content-sha256" and len(value) != 64):
            headers.append((name, made[low]))
        elif not low.startswith(b"x-amz-checksum-"):
            headers.append((name, value))
    return Request(request.method, request.target, headers, request.body, request.trailers)


def _md5(body: bytes) -> bytes:
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest())


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("latin-1")
