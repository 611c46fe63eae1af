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
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import httpx

from sexton.issuer import request_ids
from sexton.issuer.answers import (
    Attachment,
    BarrierAnswer,
    Gathered,
    Issuer,
    NodeState,
    Registration,
    Span,
    Subject,
    TenantState,
    Validation,
)
from sexton.issuer.reading import (
    Unanswered,
    answer_of,
    attachments_of,
    gather,
    registered,
    span_of,
    subject_body,
)
from sexton.schemas.errors import InvalidSettings, IssuerUnavailable, RequestRefused
from sexton.schemas.events import GenerationForm, ImportedNode, ImportedTenant, PartitionOffsets
from sexton.schemas.forms import to_json
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
    "Validation",
]

MAX_SUBJECTS = 10_000
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 1.0
_CLOCK_IS_WRONG = ("request-expired", "request-id-ahead")  # this one's, or the issuer's
_ID_IS_OVER = ("overtaken", *_CLOCK_IS_WRONG)  # another id will do
_RANDOM = random.SystemRandom()


class IssuerClient:
    """Asks one issuer over HTTP.

    Every method raises IssuerUnavailable when no answer came in time (nothing is known then, a later call
    with the same request id finds out) and RequestRefused with the stable problem type when the answer is no.
    `deadline` is the time a call may take, seconds (default `timeout_s`). In that time attach, re-attach,
    detach and drop ask again for a lost answer, under the same request id, so that nothing happens twice.
    `token` is sent as a bearer token; `ca` is a PEM file to trust for https.
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
        self._url = url.rstrip("/")
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._ca = ca
        self._timeout_s = timeout_s
        self._caller = caller or f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex}"
        self._pid = -1
        self._client: httpx.Client | None = None

    @classmethod
    def of(cls, settings: Settings, caller: str | None = None) -> IssuerClient:
        """Return a client of the issuer that the settings name, with their token and CA."""
        token = settings.issuer_token.get_secret_value() if settings.issuer_token else None
        return cls(settings.issuer_url, settings.issuer_timeout_s, caller, token=token, ca=settings.issuer_ca)

    def __enter__(self) -> IssuerClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def attach(
        self,
        node: str,
        tenant: str,
        request_id: str | None = None,
        deadline: float | None = None,
        *,
        generation: int | None = None,
        registration: Registration | None = None,
    ) -> Attachment:
        """Give a node a tenant under a new generation.

        `generation`, when given, is the one that the caller expects to be the newest: refused if it is not.
        With a `registration` a tenant that is new takes the first form. May raise RequestRefused:
        `tenant-dropped`, `generation-not-newest`, `request-id-conflict`, `stale-node`: the node must stop.
        """
        body = {"node": node, "tenant": tenant, "generation": generation, **registered(registration)}
        answer = self._issue("/v1/attach", body, request_id, deadline)
        return attachments_of(answer, registration)[0]

    def re_attach(
        self,
        node: str,
        request_id: str | None = None,
        deadline: float | None = None,
        *,
        registration: Registration | None = None,
    ) -> dict[str, int]:
        """Give a node new generations of all that it holds: tenant -> generation.

        A tenant that is missing from the answer is one that the node no longer holds.
        """
        attached = self.re_attach_all(node, request_id, deadline, registration=registration)
        return {each.tenant: each.generation for each in attached}

    def re_attach_all(
        self,
        node: str,
        request_id: str | None = None,
        deadline: float | None = None,
        *,
        registration: Registration | None = None,
    ) -> list[Attachment]:
        """Do what `re_attach` does and return whole attachments: with a registration, packed ones too.

        May raise RequestRefused: `request-id-conflict`, `stale-node`: the node must stop.
        """
        body = {"node": node, **registered(registration)}
        return attachments_of(self._issue("/v1/re-attach", body, request_id, deadline), registration)

    def register_node(
        self,
        node: str,
        number: int | None = None,
        request_id: str | None = None,
        deadline: float | None = None,
    ) -> Registration:
        """Give a node of the first form its next node generation; what it asked for before stays covered.

        `number` (0 to 65535) is fixed by the first call; without one that call takes the lowest that is free.
        May raise RequestRefused: `node-number-fixed`, `node-number-taken`, `generations-exhausted`.
        """
        answer = self._issue("/v1/register-node", {"node": node, "number": number}, request_id, deadline)
        return Registration(node, answer["number"], answer["node_generation"], answer["log_offset"])

    def fence_tenant(self, tenant: str, request_id: str | None = None, deadline: float | None = None) -> int:
        """Supersede a tenant's generation by one that no node holds, and return that one.

        May raise RequestRefused: `unknown-tenant`, `tenant-dropped`, `request-id-conflict`.
        """
        return int(self._issue("/v1/fence-tenant", {"tenant": tenant}, request_id, deadline)["generation"])

    def import_tenants(
        self,
        tenants: Sequence[ImportedTenant],
        nodes: Sequence[ImportedNode] = (),
        request_id: str | None = None,
        deadline: float | None = None,
    ) -> int:
        """Start tenants and nodes, up to 10,000 each, at the numbers that they have; return the log offset.

        All of them or none. May raise RequestRefused: `tenant-known`, `node-known`, `node-not-registered`.
        """
        rows = [{"node": row.node, "number": row.number, "node_generation": row.generation} for row in nodes]
        body = {"tenants": [to_json(row) for row in tenants], "nodes": rows}
        return int(self._issue("/v1/import", body, request_id, deadline)["log_offset"])

    def detach(
        self,
        node: str,
        tenant: str,
        request_id: str | None = None,
        deadline: float | None = None,
        *,
        registration: Registration | None = None,
    ) -> int:
        """Take a tenant from the node that holds it; its generation, returned, stays the newest.

        May raise RequestRefused: `not-held`, `request-id-conflict`, `stale-node`: the node must stop.
        """
        body = {"node": node, "tenant": tenant, **registered(registration)}
        answer = self._issue("/v1/detach", body, request_id, deadline)
        return int(answer["generation"])

    def drop(self, tenant: str, request_id: str | None = None, deadline: float | None = None) -> int:
        """End a tenant for good and return the log offset that says so.

        May raise RequestRefused: `tenant-dropped`, `request-id-conflict`.
        """
        return int(self._issue("/v1/drop", {"tenant": tenant}, request_id, deadline)["log_offset"])

    def validate(
        self, subjects: Sequence[Subject], at_least: int | None = None, deadline: float | None = None
    ) -> Validation:
        """Return the windows of generations, as of a log offset of at least `at_least`.

        Without `at_least` the answer is as of the log's end. More than 10,000 subjects take several calls.
        """
        end = self._end(deadline)
        found = Gathered()
        log_offset, topic_id = None, None
        for start in range(0, max(1, len(subjects)), MAX_SUBJECTS):
            asked = subjects[start : start + MAX_SUBJECTS]
            body = {"subjects": [subject_body(s) for s in asked], "at_least": at_least}
            answer = self._call("POST", "/v1/validate", body, end)
            gather(found, answer["answers"], asked)
            if topic_id not in (None, answer["topic_id"]):
                raise IssuerUnavailable("the intents topic changed between two calls")
            topic_id = answer["topic_id"]
            log_offset = min(log_offset or answer["log_offset"], answer["log_offset"])
        assert log_offset is not None
        assert topic_id is not None
        return found.validation(log_offset, topic_id)

    def barrier(
        self, unsettled: PartitionOffsets | None = None, deadline: float | None = None
    ) -> BarrierAnswer:
        """Make a barrier: its end offsets are read after this call began.

        `unsettled` holds the oldest positions without a final outcome: history above them is kept.
        """
        body: dict[str, Any] = {}
        if unsettled is not None:
            body["unsettled"] = {"topic_id": unsettled.topic_id, "offsets": list(unsettled.offsets)}
        answer = self._call("POST", "/v1/barrier", body, self._end(deadline))
        return BarrierAnswer(answer["log_offset"], answer["topic_id"], tuple(answer["ends"]))

    def tenant(self, name: str, deadline: float | None = None) -> TenantState | None:
        """Return a tenant and its newest generations, None when the log does not know it."""
        path = "/v1/tenants/" + quote(name, safe="").replace(".", "%2E")
        try:
            answer = self._call("GET", path, None, self._end(deadline))
        except RequestRefused as error:
            if error.type == "unknown-tenant":
                return None
            raise
        return TenantState(
            answer["log_offset"],
            answer["tenant"],
            answer["generation"],
            answer["holder"],
            answer["dropped"],
            tuple(span_of(span) for span in answer["history"]),
            GenerationForm(answer["form"]),
            answer.get("imported"),
        )

    def node(self, name: str, deadline: float | None = None) -> NodeState | None:
        """Return a node of the first form and its newest generations, None if it never registered."""
        path = "/v1/nodes/" + quote(name, safe="").replace(".", "%2E")
        try:
            answer = self._call("GET", path, None, self._end(deadline))
        except RequestRefused as error:
            if error.type == "unknown-node":
                return None
            raise
        history = tuple(span_of(span) for span in answer["history"])
        return NodeState(answer["log_offset"], name, answer["number"], answer["node_generation"], history)

    def ready(self) -> bool:
        """Return whether the issuer answers calls now."""
        try:
            self._call("GET", "/readyz", None, self._end(None))
        except (IssuerUnavailable, RequestRefused):
            return False
        return True

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None and self._pid == os.getpid():
            self._client.close()
        self._client = None

    def _end(self, deadline: float | None) -> float:
        return time.monotonic() + (self._timeout_s if deadline is None else deadline)

    def _issue(
        self, path: str, body: dict[str, Any], request_id: str | None, deadline: float | None
    ) -> dict[str, Any]:
        # One id for all tries of this call: the issuer answers a retry with what the first one was given.
        body = {name: value for name, value in body.items() if value is not None}
        end = self._end(deadline)
        new_id = request_ids.new_id
        while True:
            identity = {"request_id": request_id or new_id(), "caller": self._caller}
            try:
                return self._retry(path, {**body, **identity}, end)
            except RequestRefused as refusal:
                # An id that was made here is nobody's: what it may have led to costs a number at most.
                is_ours = request_id is None and refusal.type in _ID_IS_OVER
                if not is_ours or time.monotonic() + _FIRST_WAIT_S >= end:
                    raise
                if refusal.type in _CLOCK_IS_WRONG:
                    new_id = request_ids.timeless_id
            time.sleep(_FIRST_WAIT_S)

    def _retry(self, path: str, body: Any, end: float) -> dict[str, Any]:
        """Ask until there is an answer or no time is left: with one request id that cannot count twice."""
        wait_s = _FIRST_WAIT_S
        while True:
            answer = self._once("POST", path, body, end)
            if not isinstance(answer, Unanswered):
                return answer
            pause_s = wait_s * _RANDOM.uniform(0.5, 1.0)
            if time.monotonic() + pause_s >= end:
                raise answer.error()
            time.sleep(pause_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    def _call(self, method: str, path: str, body: Any, end: float) -> dict[str, Any]:
        """Ask once, or twice when the server closed a connection that was kept for reuse."""
        answer = self._once(method, path, body, end)
        if isinstance(answer, Unanswered) and answer.closed:
            answer = self._once(method, path, body, end)
        if isinstance(answer, Unanswered):
            raise answer.error()
        return answer

    def _once(self, method: str, path: str, body: Any, end: float) -> dict[str, Any] | Unanswered:
        left = end - time.monotonic()
        if left <= 0:
            raise IssuerUnavailable("no time left for a call to the issuer")
        try:
            response = self._http().request(method, self._url + path, json=body, timeout=left)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            message = f"the issuer does not answer: {self._url}: {error or type(error).__name__}"
            return Unanswered(message, _AWAY_HINT, isinstance(error, httpx.RemoteProtocolError))
        return answer_of(response)

    def _http(self) -> httpx.Client:
        """Return this process's client: connections must not be shared with a forked child."""
        if self._client is None or self._pid != os.getpid():
            self._client = httpx.Client(
                trust_env=False, limits=_LIMITS, headers=self._headers, verify=self._trusted()
            )
            self._pid = os.getpid()
        return self._client

    def _trusted(self) -> ssl.SSLContext | bool:
        """Return who vouches for the issuer: the given CA, else SSL_CERT_FILE, else the usual ones."""
        if not self._url.startswith("https:"):
            return False  # nothing to verify, and reading the usual ones takes a while
        ca = self._ca or os.environ.get("SSL_CERT_FILE")
        try:
            return True if not ca else ssl.create_default_context(cafile=ca)
        except (OSError, ssl.SSLError) as error:
            raise InvalidSettings(f"the issuer's CA cannot be read: {ca}: {error}") from error


_LIMITS = httpx.Limits(max_connections=64, max_keepalive_connections=16, keepalive_expiry=4.0)
_AWAY_HINT = "is it running, and SEXTON_ISSUER_URL right? `sexton issuer serve`, `sexton local status`"
