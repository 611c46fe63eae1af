"""The HTTP face of an issuer. Bodies are read by msgspec; the work runs in threads, off the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from sexton.issuer import logs, wire
from sexton.issuer.access import Identity, permit, permit_subjects
from sexton.issuer.authority import Authority
from sexton.issuer.deadline import Deadline
from sexton.issuer.incoming import decode, node_of, read_body
from sexton.issuer.openapi import documented, with_schemas
from sexton.issuer.operations.issuing import Granted
from sexton.issuer.problems import Overloaded, headers_of, problem_of, problem_of_any
from sexton.issuer.registrar import Registrar
from sexton.issuer.service import Service
from sexton.schemas.errors import RequestRefused, SextonError
from sexton.schemas.events import GenerationForm

__all__ = ["create_app", "problem_of"]

_T = TypeVar("_T")
_THREADS = 64
_WAITING = 512
_HISTORY = 50
_GRACE_S = 0.5  # a call tells by itself why it could not be carried out in time
_CLIENT_GONE = 499


@dataclass(frozen=True, slots=True)
class _Call:
    """One call under way: who makes it, and until when it has to be answered."""

    identity: Identity | None
    deadline: Deadline


class _Workers:
    """Runs calls in threads; refuses those beyond what could still be answered in time."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="sexton-call")
        self._waiting = 0

    @asynccontextmanager
    async def admit(self) -> AsyncIterator[None]:
        """Hold one of the places that there are for calls under way, from the first byte of the body."""
        if self._waiting >= _WAITING:
            raise Overloaded("too many calls are waiting")
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def run(self, work: Callable[[], _T], deadline: Deadline) -> _T:
        """Run a call in a thread; one that finds none in its time is not carried out."""
        running = asyncio.get_running_loop().run_in_executor(self._pool, work)
        try:
            return await asyncio.wait_for(running, deadline.left() + _GRACE_S)
        except TimeoutError as error:
            raise Overloaded("no time left: too many calls, or one that takes too long") from error

    def close(self) -> None:
        self._pool.shutdown(wait=True)


def create_app(service: Service) -> FastAPI:
    """Return the application that serves an issuer."""
    app = FastAPI(title="Sexton issuer", version="1", redirect_slashes=False, docs_url=None, redoc_url=None)
    workers = _Workers()
    app.router.add_event_handler("shutdown", workers.close)
    for cls in (SextonError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(cls, _problem_handler(service))
    _add_calls(app, service, workers)
    _add_upcalls(app, service, workers)
    _add_views(app, service, workers)
    build = app.openapi
    app.openapi = lambda: with_schemas(build())  # type: ignore[method-assign]
    return app


def _add_calls(app: FastAPI, service: Service, workers: _Workers) -> None:
    def post(path: str, body: type[_T], answer: Any, work: Callable[[_T, _Call], Any]) -> None:
        app.post(path, **documented(body, answer))(_endpoint(body, work, service, workers))

    def authority() -> Authority:
        return service.authority()

    def registrar() -> Registrar:
        return authority().registrar

    def attach(body: wire.Attach, call: _Call) -> wire.Granted:
        return granted(authority().attach(body, call.deadline))

    def re_attach(body: wire.ReAttach, call: _Call) -> wire.Granted:
        return granted(authority().re_attach(body, call.deadline))

    def granted(answer: Granted) -> wire.Granted:
        return _granted(answer, authority().forms(answer.generations))

    def validate(body: wire.Validate, call: _Call) -> wire.Validation:
        answer = authority().validate(body, call.deadline)
        if call.identity is not None:
            permit_subjects(call.identity, [subject.node for subject in body.subjects])
            asked = [(subject.tenant, subject.generation) for subject in body.subjects]
            permit_subjects(call.identity, authority().issued_to(asked))
        return answer

    post("/v1/attach", wire.Attach, wire.Granted, attach)
    post("/v1/re-attach", wire.ReAttach, wire.Granted, re_attach)
    post("/v1/validate", wire.Validate, wire.Validation, validate)
    post("/v1/barrier", wire.Barrier, wire.BarrierAnswer, lambda b, c: authority().barrier(b, c.deadline))
    post("/v1/detach", wire.Detach, wire.Ended, lambda b, c: registrar().detach(b, c.deadline))
    post("/v1/drop", wire.Drop, wire.Ended, lambda b, c: registrar().drop(b, c.deadline))
    post(
        "/v1/fence-tenant",
        wire.FenceTenant,
        wire.Ended,
        lambda b, c: registrar().fence_tenant(b, c.deadline),
    )
    post(
        "/v1/register-node",
        wire.RegisterNode,
        wire.Registered,
        lambda b, c: registrar().register_node(b, c.deadline),
    )
    post(
        "/v1/import",
        wire.Import,
        wire.ImportedAnswer,
        lambda b, c: registrar().import_tenants(b, c.deadline),
    )


def _add_upcalls(app: FastAPI, service: Service, workers: _Workers) -> None:
    def re_attach(body: wire.UpcallReAttach, call: _Call) -> wire.UpcallReAttachAnswer:
        asked = wire.ReAttach(node=node_of(body.node_id))
        granted = service.authority().re_attach(asked, call.deadline, GenerationForm.FINAL)
        return wire.UpcallReAttachAnswer([wire.UpcallTenant(t, g) for t, g in granted.generations.items()])

    def validate(body: wire.UpcallValidate, call: _Call) -> wire.UpcallValidateAnswer:
        asked = [(tenant.id, tenant.gen) for tenant in body.tenants]
        verdicts = service.authority().newest(asked, call.deadline)
        if call.identity is not None:
            permit_subjects(call.identity, service.authority().issued_to(asked))
        return wire.UpcallValidateAnswer([wire.UpcallValid(name, valid) for name, valid in verdicts])

    app.post("/upcall/v1/re-attach", **documented(wire.UpcallReAttach, wire.UpcallReAttachAnswer))(
        _endpoint(wire.UpcallReAttach, re_attach, service, workers)
    )
    app.post("/upcall/v1/validate", **documented(wire.UpcallValidate, wire.UpcallValidateAnswer))(
        _endpoint(wire.UpcallValidate, validate, service, workers)
    )


def _add_views(app: FastAPI, service: Service, workers: _Workers) -> None:
    @app.get("/v1/tenants/{tenant:sexton_name}", **documented(None, wire.TenantView))
    async def tenant(request: Request, tenant: str, history: int = _HISTORY) -> Response:
        """One tenant with its newest generations and their windows."""
        call = _begin(request, service)
        async with workers.admit():
            view = await workers.run(
                lambda: service.authority().view(tenant, history, call.deadline), call.deadline
            )
        if view is None:
            raise RequestRefused("unknown-tenant", f"the log does not know the tenant: {tenant}", status=404)
        return _json(view)

    @app.get("/v1/nodes/{node:sexton_name}", **documented(None, wire.NodeView))
    async def node(request: Request, node: str, history: int = _HISTORY) -> Response:
        """One node of the first form with its newest node generations and their windows."""
        call = _begin(request, service)
        async with workers.admit():
            view = await workers.run(
                lambda: service.authority().node_view(node, history, call.deadline), call.deadline
            )
        if view is None:
            raise RequestRefused("unknown-node", f"the node has not registered: {node}", status=404)
        return _json(view)

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process is alive."""
        return {"status": "ok"}

    @app.head("/readyz", include_in_schema=False)
    @app.get("/readyz")
    async def readyz() -> dict[str, int | str]:
        """Calls are answered: the log is folded to its end and Redis agrees with it."""
        service.check_ready()
        return {"status": "ready", "log_offset": service.reader.next_offset - 1}

    @app.head("/metrics", include_in_schema=False)
    @app.get("/metrics")
    async def metrics() -> Response:
        """Prometheus metrics."""
        service.refresh_gauges()
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _begin(request: Request, service: Service) -> _Call:
    """Note when the call came in, so that the time it waits for a thread counts, and who makes it."""
    identity = service.access.identify(request.headers.get("authorization"))
    return _Call(identity, service.deadline())


def _endpoint(
    body: type[_T], work: Callable[[_T, _Call], Any], service: Service, workers: _Workers
) -> Callable[[Request], Awaitable[Response]]:
    decoder = msgspec.json.Decoder(body)
    changes = body not in (wire.Validate, wire.UpcallValidate, wire.Barrier)

    def carry_out(raw: bytes, call: _Call) -> Response:
        if call.deadline.left() == 0:
            raise Overloaded("no time left: too many calls")
        asked = decode(decoder, raw)
        permit(call.identity, asked)
        return _json(work(asked, call))

    async def endpoint(request: Request) -> Response:
        begun, who, problem = time.monotonic(), "-", None
        try:
            call = _begin(request, service)
            who = str(call.identity.node or call.identity.role) if call.identity else "-"
            async with workers.admit():
                raw = await read_body(request, call.deadline)
                return await workers.run(lambda: carry_out(raw, call), call.deadline)
        except ClientDisconnect:
            problem = "client-gone"
            return Response(status_code=_CLIENT_GONE)  # nobody reads it
        except Exception as error:
            problem = problem_of_any(error).type
            raise
        finally:
            took = time.monotonic() - begun
            service.metrics.calls.labels(request.url.path).observe(took)
            logs.call_ended(request.url.path, took, caller=who, problem=problem, changes=changes)

    endpoint.__doc__ = body.__doc__
    return endpoint


def _granted(granted: Granted, forms: Mapping[str, GenerationForm]) -> wire.Granted:
    tenants = [wire.GrantedTenant(tenant, g) for tenant, g in granted.generations.items()]
    for each in tenants:
        if forms.get(each.tenant) is GenerationForm.FIRST:
            each.form = GenerationForm.FIRST.value
    answer = wire.Granted(granted.log_offset, granted.request_id, tenants)
    if len(tenants) == 1:
        answer.tenant, answer.generation = tenants[0].tenant, tenants[0].generation
    return answer


def _json(answer: Any) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")


def _problem_handler(service: Service) -> Any:
    async def handle(request: Request, error: Exception) -> Response:
        problem = problem_of_any(error)
        service.metrics.refused.labels(problem.type).inc()
        body = msgspec.json.encode(problem)
        return Response(
            body, problem.status, headers_of(problem, error), media_type="application/problem+json"
        )

    return handle
