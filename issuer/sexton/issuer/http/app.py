"""The HTTP face of an issuer. Bodies are read by msgspec; the work runs in threads, off the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from sexton.issuer import json_lines
from sexton.issuer.access import Identity, permit, permit_subjects
from sexton.issuer.deadline import Deadline
from sexton.issuer.http.incoming import read_body
from sexton.issuer.http.openapi import documented, with_schemas
from sexton.issuer.http.problems import Overloaded, headers_of, problem_of, problem_of_any
from sexton.issuer.operations import OPERATIONS
from sexton.issuer.operations.base import Operation
from sexton.issuer.service import Service
from sexton.issuer.views import NODE, TENANT, TRANSACTIONS, View
from sexton.issuer.wire import decode
from sexton.schemas.errors import SextonError

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
    for operation in OPERATIONS:
        documents = documented(operation, operation.answer)
        app.post(operation.path, **documents)(_endpoint(operation, service, workers))
    _add_views(app, service, workers)
    _add_probes(app, service)
    build = app.openapi
    app.openapi = lambda: with_schemas(build())  # type: ignore[method-assign]
    return app


def _add_views(app: FastAPI, service: Service, workers: _Workers) -> None:
    async def look(view: View[Any], request: Request, name: str, history: int) -> Response:
        call = _begin(request, service)
        async with workers.admit():
            return _json(
                await workers.run(
                    lambda: service.authority().look(view, name, history, call.deadline), call.deadline
                )
            )

    @app.get(f"{TENANT.path}{{tenant:sexton_name}}", **documented(None, TENANT.answer))
    async def tenant(request: Request, tenant: str, history: int = _HISTORY) -> Response:
        """One tenant with its newest generations and their windows."""
        return await look(TENANT, request, tenant, history)

    @app.get(f"{TRANSACTIONS.path}{{tenant:sexton_name}}", **documented(None, TRANSACTIONS.answer))
    async def transactions(request: Request, tenant: str, history: int = _HISTORY) -> Response:
        """One tenant's newest transactions that are still known, with their status and windows."""
        return await look(TRANSACTIONS, request, tenant, history)

    @app.get(f"{NODE.path}{{node:sexton_name}}", **documented(None, NODE.answer))
    async def node(request: Request, node: str, history: int = _HISTORY) -> Response:
        """One node of the first form with its newest node generations and their windows."""
        return await look(NODE, request, node, history)


def _add_probes(app: FastAPI, service: Service) -> None:
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
    operation: type[Operation[Any]], service: Service, workers: _Workers
) -> Callable[[Request], Awaitable[Response]]:
    decoder = msgspec.json.Decoder(operation)

    def carry_out(raw: bytes, call: _Call) -> Response:
        if call.deadline.left() == 0:
            raise Overloaded("no time left: too many calls")
        asked = decode(decoder, raw)
        permit(call.identity, asked)
        answer = service.authority().answer(asked, call.deadline)
        if call.identity is not None and call.identity.node is not None:
            permit_subjects(call.identity, service.authority().asked_about(asked))
        return _json(answer)

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
            json_lines.call_ended(
                request.url.path, took, caller=who, problem=problem, changes=operation.changes
            )

    endpoint.__doc__ = operation.__doc__
    return endpoint


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
