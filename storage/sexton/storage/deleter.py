"""DeleteObjects, the hot path: hand-built bodies, botocore's signer and pool, replies read in full.

One request is sent once. What failed, or may have failed, is raised to the caller, who alone knows whether it
may be repeated.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import (
    BotoCoreError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ProxyConnectionError,
    ReadTimeoutError,
)
from botocore.httpsession import URLLib3Session
from botocore.utils import get_environ_proxies

from sexton.storage.errors import NoReply
from sexton.storage.reply import RawReply, check_reply
from sexton.storage.settings import StoreSettings
from sexton.storage.signing import RequestSigner
from sexton.storage.xml_body import DeleteBody, build_body

__all__ = ["BatchDeleter", "BatchReply", "open_deleter"]

_NEVER_SENT = (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError)


@dataclass(frozen=True, slots=True)
class BatchReply:
    """A reply that was clean in every key: `keys` of them are gone from `bucket`.

    `request_id` is the store's (empty when it gives none), `seconds` the time from signing to the last byte.
    """

    bucket: str
    keys: int
    request_id: str
    seconds: float


class BatchDeleter:
    """Sends DeleteObjects requests, at most `requests_in_flight` at a time; safe for several threads."""

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings
        self._signer = RequestSigner(settings)
        self._wires: dict[str, URLLib3Session] = {}
        self._free = threading.BoundedSemaphore(settings.requests_in_flight)
        self._senders = ThreadPoolExecutor(settings.requests_in_flight, thread_name_prefix="sexton-delete")

    def submit(self, bucket: str, keys: Sequence[str]) -> Future[BatchReply]:
        """Delete 1 to 1000 distinct keys of a bucket; wait while as many requests are out as may be.

        Raises InvalidBatch at once. The future raises UncleanReply when not every key is known to be gone,
        NoReply or StoreUnavailable when there was no answer; `effect_unknown` tells what must be looked at.
        """
        body = build_body(keys)
        self._free.acquire()
        try:
            future = self._senders.submit(self._send, bucket, body)
        except BaseException:
            self._free.release()
            raise
        future.add_done_callback(lambda _: self._free.release())
        return future

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchReply:
        """Delete 1 to 1000 distinct keys and return the clean reply; raises what `submit` does."""
        return self.submit(bucket, keys).result()

    def close(self) -> None:
        """Wait for what is out, then drop the connections."""
        self._senders.shutdown(wait=True)
        for wire in self._wires.values():
            wire.close()

    def __enter__(self) -> BatchDeleter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, bucket: str, body: DeleteBody) -> BatchReply:
        # Signed by the sender, not by the caller: a signature that waits for a free connection grows old.
        started = time.monotonic()
        request = self._signer.request(bucket, body.data)
        reply = self._exchange(bucket, request)
        check_reply(bucket, body, reply)
        return BatchReply(bucket, body.count, reply.request_id, time.monotonic() - started)

    def _exchange(self, bucket: str, request: AWSPreparedRequest) -> RawReply:
        try:
            response: AWSResponse = self._wire(request.url).send(request)
        except BotoCoreError as error:
            raise self._no_reply(bucket, request.url, error) from error
        # botocore's pool does not compare the two, and a reply cut short may end where it looks whole.
        promised = response.headers.get("content-length")
        if promised is not None and int(promised) != len(response.content):
            raise NoReply(
                f"the reply broke off after {len(response.content)} of {promised} bytes, effect unknown: "
                f"bucket={bucket}",
                effect_unknown=True,
            )
        request_id = response.headers.get("x-amz-request-id", "")
        return RawReply(response.status_code, request_id, response.content)

    def _wire(self, url: str) -> URLLib3Session:
        address = urlsplit(url)
        origin = f"{address.scheme}://{address.netloc}"
        wire = self._wires.get(origin)
        if wire is None:
            # botocore's own pool rather than a bare urllib3 one: a sixth more CPU for the send, and in return
            # certificate bundles and proxies are what every AWS tool makes of them. It repeats nothing.
            options: dict[str, Any] = {
                "verify": self._signer.ca_bundle or True,
                "proxies": get_environ_proxies(url),
                "timeout": (self.settings.connect_timeout_s, self.settings.read_timeout_s),
                "max_pool_connections": self.settings.requests_in_flight,
            }
            wire = self._wires.setdefault(origin, URLLib3Session(**options))
        return wire

    def _no_reply(self, bucket: str, url: str, error: BotoCoreError) -> NoReply:
        address = urlsplit(url)
        where = f"bucket={bucket} store={address.scheme}://{address.netloc}"
        if isinstance(error, _NEVER_SENT):
            return NoReply(
                f"no connection to the store, nothing was sent: {where}: {error}",
                effect_unknown=False,
                hint="is the store up, and SEXTON_S3_ENDPOINT_URL right?",
            )
        if isinstance(error, ReadTimeoutError):
            seconds = self.settings.read_timeout_s
            return NoReply(
                f"the store did not answer within {seconds:g} s, effect unknown: {where}", effect_unknown=True
            )
        return NoReply(f"the connection broke, effect unknown: {where}: {error}", effect_unknown=True)


_open: dict[StoreSettings, BatchDeleter] = {}
_open_lock = threading.Lock()


def open_deleter(settings: StoreSettings) -> BatchDeleter:
    """Return this process' deleter for these settings; it stays open for the next caller.

    A client made anew for each task halves the speed: Spark's Python workers are reused, and so is this.
    """
    with _open_lock:
        if settings not in _open:
            _open[settings] = BatchDeleter(settings)
        return _open[settings]


def _forget_after_fork() -> None:
    # A child must not write into its parent's connections, and has none of its threads.
    global _open_lock
    _open_lock = threading.Lock()
    _open.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
