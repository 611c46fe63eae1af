"""The HTTP face of an issuer. Bodies are read by msgspec; the work runs in threads, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from sexton.issuer import wire
from sexton.issuer.decisions import Granted
from sexton.issuer.positions import WrongTopic
from sexton.issuer.projection import RedisUnavailable
from sexton.issuer.service import NotReady, Service
from sexton.schemas.errors import (
    EnvironmentFault,
    KafkaUnavailable,
    LogBroken,
    RequestRefused,
    SextonError,
    UsageError,
)
from sexton.schemas.events import GenerationForm

__all__ = ["create_app", "problem_of"]

_T = TypeVar("_T")
_THREADS = 64
_WAITING = 512
_MAX_BODY = 32 * 1024 * 1024
_HISTORY = 50
_PROBLEMS: tuple[tuple[type[SextonError], str, int], ...] = (  # the most specific first
    (LogBroken, "log-broken", 503),
    (WrongTopic, "wrong-topic", 503),
    (NotReady, "not-ready", 503),
    (RedisUnavailable, "redis-unavailable", 503),
    (KafkaUnavailable, "kafka-unavailable", 503),
    (EnvironmentFault, "environment-fault", 503),
    (UsageError, "invalid-request", 400),
)
_BODIES = (
    wire.Attach,
    wire.ReAttach,
    wire.Detach,
    wire.Drop,
    wire.Validate,
    wire.Barrier,
    wire.RegisterNode,
    wire.FenceTenant,
    wire.Import,
    wire.UpcallReAttach,
    wire.UpcallValidate,
)
_ANSWERS = (
    wire.Granted,
    wire.Ended,
    wire.Validation,
    wire.BarrierAnswer,
    wire.TenantView,
    wire.NodeView,
    wire.Registered,
    wire.ImportedAnswer,
    wire.Problem,
    wire.UpcallReAttachAnswer,
    wire.UpcallValidateAnswer,
)


class Overloaded(EnvironmentFault):
    """Too many calls are waiting."""


class _Workers:
    """Runs calls in threads; refuses those beyond what could still be answered in time."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="sexton-call")
        self._waiting = 0

    async def run(self, work: Callable[[], _T]) -> _T:
        if self._waiting >= _WAITING:
            raise Overloaded
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._pool.shutdown(wait=True)


def _problem(error: Exception) -> wire.Problem:
    if isinstance(error, SextonError):
        return problem_of(error)
    if isinstance(error, HTTPException):
        kind = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "invalid-request")
        return wire.Problem(kind, kind.replace("-", " "), error.status_code, str(error.detail))
    if isinstance(error, RequestValidationError):
        return wire.Problem("invalid-request", "invalid request", 400, str(error.errors()[0]["msg"]))
    return wire.Problem("internal-error", "internal error", 500, "see the issuer's log")


def problem_of(error: SextonError) -> wire.Problem:
    """Return the problem document of an error; its `type` is stable."""
    if isinstance(error, RequestRefused):
        kind, status = error.type, error.status
    elif isinstance(error, Overloaded):
        kind, status = "overloaded", 503
    else:
        kind, status = next(
            ((name, status) for cls, name, status in _PROBLEMS if isinstance(error, cls)),
            ("internal-error", 500),
        )
    title = kind.replace("-", " ")
    hint = msgspec.UNSET if error.hint is None else error.hint
    return wire.Problem(kind, title, status, str(error), hint)


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
    app.openapi = lambda: _with_schemas(build())  # type: ignore[method-assign]
    return app


def _add_calls(app: FastAPI, service: Service, workers: _Workers) -> None:
    def post(path: str, body: type[_T], answer: Any, work: Callable[[_T], Any]) -> None:
        app.post(path, **_documented(body, answer))(_endpoint(body, work, workers))

    def authority() -> Any:
        return service.authority()

    def granted(answer: Granted) -> wire.Granted:
        return _granted(answer, authority().forms(answer.generations))

    def registrar() -> Any:
        return authority().registrar

    deadline = service.deadline
    post("/v1/attach", wire.Attach, wire.Granted, lambda b: granted(authority().attach(b, deadline())))
    post(
        "/v1/re-attach", wire.ReAttach, wire.Granted, lambda b: granted(authority().re_attach(b, deadline()))
    )
    post("/v1/validate", wire.Validate, wire.Validation, lambda b: authority().validate(b, deadline()))
    post("/v1/barrier", wire.Barrier, wire.BarrierAnswer, lambda b: authority().barrier(b, deadline()))
    post("/v1/detach", wire.Detach, wire.Ended, lambda b: registrar().detach(b, deadline()))
    post("/v1/drop", wire.Drop, wire.Ended, lambda b: registrar().drop(b, deadline()))
    post("/v1/fence-tenant", wire.FenceTenant, wire.Ended, lambda b: registrar().fence_tenant(b, deadline()))
    post(
        "/v1/register-node",
        wire.RegisterNode,
        wire.Registered,
        lambda b: registrar().register_node(b, deadline()),
    )
    post("/v1/import", wire.Import, wire.ImportedAnswer, lambda b: registrar().import_tenants(b, deadline()))


def _add_upcalls(app: FastAPI, service: Service, workers: _Workers) -> None:
    def re_attach(body: wire.UpcallReAttach) -> wire.UpcallReAttachAnswer:
        asked = wire.ReAttach(node=str(body.node_id))
        granted = service.authority().re_attach(asked, service.deadline())
        return wire.UpcallReAttachAnswer([wire.UpcallTenant(t, g) for t, g in granted.generations.items()])

    def validate(body: wire.UpcallValidate) -> wire.UpcallValidateAnswer:
        verdicts = service.authority().newest([(t.id, t.gen) for t in body.tenants], service.deadline())
        return wire.UpcallValidateAnswer([wire.UpcallValid(name, valid) for name, valid in verdicts])

    app.post("/upcall/v1/re-attach", **_documented(wire.UpcallReAttach, wire.UpcallReAttachAnswer))(
        _endpoint(wire.UpcallReAttach, re_attach, workers)
    )
    app.post("/upcall/v1/validate", **_documented(wire.UpcallValidate, wire.UpcallValidateAnswer))(
        _endpoint(wire.UpcallValidate, validate, workers)
    )


def _add_views(app: FastAPI, service: Service, workers: _Workers) -> None:
    @app.get("/v1/tenants/{tenant:path}", **_documented(None, wire.TenantView))
    async def tenant(tenant: str, history: int = _HISTORY) -> Response:
        """One tenant with its newest generations and their windows."""
        view = await workers.run(lambda: service.authority().view(tenant, history, service.deadline()))
        if view is None:
            raise RequestRefused("unknown-tenant", f"the log does not know the tenant: {tenant}", status=404)
        return _json(view)

    @app.get("/v1/nodes/{node:path}", **_documented(None, wire.NodeView))
    async def node(node: str, history: int = _HISTORY) -> Response:
        """One node of the first form with its newest node generations and their windows."""
        view = await workers.run(lambda: service.authority().node_view(node, history, service.deadline()))
        if view is None:
            raise RequestRefused("unknown-node", f"the node has not registered: {node}", status=404)
        return _json(view)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process is alive."""
        return {"status": "ok"}

    @app.get("/readyz")
    async def readyz() -> dict[str, int | str]:
        """Calls are answered: the log is folded to its end and Redis agrees with it."""
        service.authority()
        return {"status": "ready", "log_offset": service.reader.next_offset - 1}

    @app.get("/metrics")
    async def metrics() -> Response:
        """Prometheus metrics."""
        service.refresh_gauges()
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _endpoint(
    body: type[_T], work: Callable[[_T], Any], workers: _Workers
) -> Callable[[Request], Awaitable[Response]]:
    decoder = msgspec.json.Decoder(body)

    async def endpoint(request: Request) -> Response:
        raw = await request.body()
        return await workers.run(lambda: _json(work(_decode(decoder, raw))))

    endpoint.__doc__ = body.__doc__
    return endpoint


def _decode(decoder: msgspec.json.Decoder[_T], raw: bytes) -> _T:
    if len(raw) > _MAX_BODY:
        raise RequestRefused("too-large", f"a body has at most {_MAX_BODY} bytes", status=413)
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(str(error)) from error


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
        problem = _problem(error)
        service.metrics.refused.labels(problem.type).inc()
        headers = {"retry-after": "1"} if problem.status == 503 else None
        body = msgspec.json.encode(problem)
        return Response(body, problem.status, headers, media_type="application/problem+json")

    return handle


def _documented(body: Any, answer: Any) -> dict[str, Any]:
    def schema(cls: Any) -> dict[str, Any]:
        return {"schema": {"$ref": f"#/components/schemas/{cls.__name__}"}}

    documented: dict[str, Any] = {
        "response_class": Response,
        "responses": {
            200: {"content": {"application/json": schema(answer)}},
            "default": {"content": {"application/problem+json": schema(wire.Problem)}, "description": "no"},
        },
    }
    if body is not None:
        content = {"application/json": schema(body)}
        documented["openapi_extra"] = {"requestBody": {"required": True, "content": content}}
    return documented


def _with_schemas(document: dict[str, Any]) -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components(
        (*_BODIES, *_ANSWERS), ref_template="#/components/schemas/{name}"
    )
    document.setdefault("components", {}).setdefault("schemas", {}).update(schemas)
    return document
