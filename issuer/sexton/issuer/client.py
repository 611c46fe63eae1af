"""The issuer's HTTP client, for services and for the reaper; safe for threads and after a fork.

with IssuerClient("http://127.0.0.1:8350") as issuer:
    attachment = issuer.attach("node-7", "tenant-42")     # attachment.generation == 8
"""

from __future__ import annotations

import os
import random
import socket
import ssl
import time
import uuid
from collections.abc import Iterable
from http.cookiejar import DefaultCookiePolicy
from itertools import count
from typing import Any, TypeVar, cast
from urllib.parse import quote

import httpx
import msgspec

from sexton.issuer.answers import (
    Attachment,
    BarrierAnswer,
    NodeState,
    Registration,
    Span,
    TenantState,
    TransactionGrant,
    TransactionsState,
    TransactionState,
    Validation,
)
from sexton.issuer.api import Issuer
from sexton.issuer.operations.base import Changing, Operation
from sexton.issuer.reading import Unanswered, answer_of
from sexton.issuer.state import request_ids
from sexton.issuer.state.transactions import Status as TransactionStatus
from sexton.issuer.subjects.generation import Subject
from sexton.issuer.subjects.transaction import TransactionFact, TransactionSubject
from sexton.issuer.views import View
from sexton.issuer.wire import MAX_SUBJECTS
from sexton.schemas.errors import InvalidSettings, IssuerUnavailable, RequestRefused
from sexton.schemas.settings import Settings

__all__ = [
    "MAX_SUBJECTS",
    "Attachment",
    "BarrierAnswer",
    "Issuer",
    "IssuerClient",
    "NodeState",
    "Registration",
    "Span",
    "Subject",
    "TenantState",
    "TransactionFact",
    "TransactionGrant",
    "TransactionState",
    "TransactionStatus",
    "TransactionSubject",
    "TransactionsState",
    "Validation",
    "trusted",
]

_A = TypeVar("_A")
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 1.0
_CLOCK_IS_WRONG = ("request-expired", "request-id-ahead")  # this one's, or the issuer's
_ID_IS_OVER = ("overtaken", *_CLOCK_IS_WRONG)  # another id will do
_RANDOM = random.SystemRandom()


class IssuerClient(Issuer):
    """Asks an issuer over HTTP, one of those at `url`: a base URL, or several with commas between.

    All of them serve the same log, so that any will do: it stays with the one that answered last, and turns
    to the next where that one does not answer, or cannot now. In the time that a call may take (default
    `timeout_s`, seconds) those that change something ask again for a lost answer, under the same request id,
    so that nothing happens twice; one that hangs leaves time for the others. `token` is sent as a bearer
    token; `ca` is a PEM file to trust for https.
    """

    def __init__(
        self,
        url: str,
        timeout_s: float = 10.0,
        caller: str | None = None,
        *,
        token: str | None = None,
        ca: str | os.PathLike[str] | None = None,
    ) -> None:
        self._urls = [each.strip().rstrip("/") for each in url.split(",")]
        self._at = 0  # of the one that is asked; threads may turn it both, as any will do
        self._headers = {"content-type": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._ca = ca
        self._timeout_s = timeout_s
        self._caller = caller or f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex}"
        # By process: connections must not be shared with a forked child.
        self._clients: dict[int, httpx.Client] = {}

    @classmethod
    def of(cls, settings: Settings, caller: str | None = None) -> IssuerClient:
        """Return a client of the issuer that the settings name, with their token and CA."""
        token = settings.issuer_token.get_secret_value() if settings.issuer_token else None
        return cls(settings.issuer_url, settings.issuer_timeout_s, caller, token=token, ca=settings.issuer_ca)

    def ready(self) -> bool:
        """Return whether the issuer answers calls now."""
        try:
            self._ask("GET", "/readyz", None, Any, self._end(None))
        except (IssuerUnavailable, RequestRefused):
            return False
        return True

    def close(self) -> None:
        """Close the connections."""
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.close()

    def _call(self, asked: Operation[_A], end: float) -> _A:
        if isinstance(asked, Changing):
            return cast(_A, self._issue(asked, end))
        return cast(_A, self._ask("POST", asked.path, _encoded(asked), asked.answer, end))

    def _look(self, view: View[_A], name: str, end: float) -> _A | None:
        path = view.path + quote(name, safe="").replace(".", "%2E")
        try:
            return cast(_A, self._ask("GET", path, None, view.answer, end))
        except RequestRefused as error:
            if error.type == view.unknown:
                return None
            raise

    def _issue(self, asked: Changing[_A], end: float) -> _A:
        # One id for all tries of this call: the issuer answers a retry with what the first one was given.
        given, new_id = asked.request_id, request_ids.new_id
        asked.caller = self._caller
        while True:
            asked.request_id = given or new_id()
            try:
                body = _encoded(asked)
                return cast(_A, self._ask("POST", asked.path, body, asked.answer, end, retry=True))
            except RequestRefused as refusal:
                # An id that was made here is nobody's: what it may have led to costs a number at most.
                is_ours = given is None and refusal.type in _ID_IS_OVER
                if not is_ours or time.monotonic() + _FIRST_WAIT_S >= end:
                    raise
                if refusal.type in _CLOCK_IS_WRONG:
                    new_id = request_ids.timeless_id
            time.sleep(_FIRST_WAIT_S)

    def _ask(
        self, method: str, path: str, body: bytes | None, answers: Any, end: float, *, retry: bool = False
    ) -> Any:
        """Ask each address once, and once more when a connection that was kept for reuse was closed.

        With `retry` until there is an answer or no time is left, which is for what cannot count twice.
        """
        wait_s = _FIRST_WAIT_S
        for tries in count(1):
            answer = self._once(method, path, body, answers, end, tries)
            if not isinstance(answer, Unanswered):
                return answer
            if tries < len(self._urls) + answer.closed:
                continue  # the next one has not said anything yet
            pause_s = wait_s * _RANDOM.uniform(0.5, 1.0)
            if not retry or answer.hopeless or time.monotonic() + pause_s >= end:
                break
            time.sleep(pause_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
        raise answer.error()

    def _once(
        self, method: str, path: str, body: bytes | None, answers: Any, end: float, tries: int
    ) -> Any | Unanswered:
        """Ask the address whose turn it is; without an answer it is the next one's turn."""
        left = end - time.monotonic()
        if left <= 0:
            raise IssuerUnavailable("no time left for a call to the issuer")
        at = self._at
        url, others = self._urls[at], len(self._urls) - tries
        answer = self._request(method, url, path, body, answers, left / (1 + max(0, others)))
        if isinstance(answer, Unanswered):
            self._at = (at + 1) % len(self._urls)
        return answer

    def _request(
        self, method: str, url: str, path: str, body: bytes | None, answers: Any, timeout_s: float
    ) -> Any | Unanswered:
        try:
            response = self._http().request(method, url + path, content=body, timeout=timeout_s)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            message = f"the issuer does not answer: {url}: {error or type(error).__name__}"
            return Unanswered(message, _AWAY_HINT, isinstance(error, httpx.RemoteProtocolError))
        return answer_of(response, answers)

    def _http(self) -> httpx.Client:
        """Return this process's client."""
        here = os.getpid()
        if (client := self._clients.get(here)) is not None:
            return client
        made = httpx.Client(
            trust_env=False, limits=_LIMITS, headers=self._headers, verify=trusted(self._urls, self._ca)
        )
        # A proxy's cookies are not kept: they might be new ones with every answer.
        made.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))
        # Without a lock, which a fork may catch: of several threads' clients the first one stays.
        kept = self._clients.setdefault(here, made)
        if kept is not made:
            made.close()
        return kept


def trusted(urls: Iterable[str], ca: str | os.PathLike[str] | None) -> ssl.SSLContext | bool:
    """Return who vouches for an issuer: the given CA, else SSL_CERT_FILE, else the usual ones.

    Raises InvalidSettings for a file that cannot be read.
    """
    if not any(url.startswith("https:") for url in urls):
        return False  # nothing to verify, and reading the usual ones takes a while
    ca = ca or os.environ.get("SSL_CERT_FILE")
    try:
        return True if not ca else ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidSettings(f"the issuer's CA cannot be read: {ca}: {error}") from error


def _encoded(asked: Operation[Any]) -> bytes:
    try:
        return msgspec.json.encode(asked)
    except UnicodeEncodeError as error:
        raise RequestRefused("invalid-request", f"no text: {error}", status=400) from error


_LIMITS = httpx.Limits(max_connections=64, max_keepalive_connections=16, keepalive_expiry=4.0)
_AWAY_HINT = "is it running, and SEXTON_ISSUER_URL right? `sexton issuer serve`, `sexton local status`"
