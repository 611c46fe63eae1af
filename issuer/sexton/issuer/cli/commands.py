"""`sexton issuer`: serve, rebuild, show."""

from __future__ import annotations

import json
import re
import signal
import socket
import ssl
import sys
import threading
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sexton.issuer import json_lines
from sexton.issuer.cli.migration_commands import EXPORT, IMPORT, SCAN, export, import_, scan_
from sexton.issuer.cli.snapshot_commands import SNAPSHOT, TRUNCATE, snapshot, truncate
from sexton.issuer.cli.transaction_commands import describe, json_of
from sexton.schemas.errors import EnvironmentFault, InvalidSettings, RequestRefused, SextonError
from sexton.schemas.settings import Settings, load
from sexton.schemas.text import counted

if TYPE_CHECKING:
    from sexton.issuer.answers import TenantState
    from sexton.issuer.service import Service

__all__ = ["app"]

app = typer.Typer(
    help="The generation authority: serve, rebuild Redis, look at a tenant.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
app.command("import", epilog=IMPORT, short_help="start tenants at the generations that they have")(import_)
app.command("scan", epilog=SCAN, short_help="highest generations in the keys of a bucket")(scan_)
app.command(epilog=EXPORT, short_help="the numbers of the log, as a backup")(export)
app.command(epilog=SNAPSHOT, short_help="take a snapshot of the state")(snapshot)
app.command(epilog=TRUNCATE, short_help="delete the log below verified snapshots")(truncate)
_SERVE = """\b
Examples:
  sexton issuer serve
  sexton issuer serve --bind 0.0.0.0:8350
  sexton issuer serve --port 0
"""
_REBUILD = """\b
Examples:
  sexton issuer rebuild
"""
_VERIFY = """\b
Examples:
  sexton issuer verify
  sexton issuer verify --format json
"""
_SHOW = """\b
Examples:
  sexton issuer show tenant-42
  sexton issuer show tenant-42 --format json | jq .generation
"""


class _Format(StrEnum):
    TEXT = "text"
    JSON = "json"


@app.command(epilog=_SERVE, short_help="serve over HTTP until SIGTERM or SIGINT")
def serve(
    bind: Annotated[str | None, typer.Option(help="host:port to listen on [SEXTON_ISSUER_BIND]")] = None,
    port: Annotated[int | None, typer.Option(help="port only; 0 takes a free one")] = None,
) -> None:
    """Serve the issuer over HTTP until SIGTERM or SIGINT."""
    settings = load(issuer_bind=bind)
    json_lines.start(settings.log_level)
    host, bound_port = _address(settings, port)
    with _listening(host, bound_port) as listener:
        _serve(settings, listener)


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        why = str(error.strerror).partition(" (while")[0]  # the library adds the address once more
        raise EnvironmentFault(
            f"cannot listen on {host}:{port}: {why}",
            hint="--bind or SEXTON_ISSUER_BIND names an address of this machine and a port that is free",
        ) from error


def _serve(settings: Settings, listener: socket.socket) -> None:
    import uvicorn

    from sexton.issuer.http.app import create_app
    from sexton.issuer.service import Service
    from sexton.schemas.kafka.admin import reach

    _check_tls(settings)
    # Soon, and by name: what the service asks for first would only be reported as late, half a minute later.
    service = Service(reach(settings))
    try:
        config = uvicorn.Config(
            create_app(service),
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=int(settings.issuer_timeout_s) + 1,
            ssl_certfile=settings.issuer_tls_cert,
            ssl_keyfile=settings.issuer_tls_key,
        )
        server = uvicorn.Server(config)
        refused = _announce(
            service, server, listener, "http" if settings.issuer_tls_cert is None else "https"
        )
        _run(server, listener)
        if refused:
            raise refused[0]
    finally:
        service.stop()


def _check_tls(settings: Settings) -> None:
    """Refuse a certificate or key that cannot be loaded before anything is said to be ready."""
    cert, key = settings.issuer_tls_cert, settings.issuer_tls_key
    if (cert is None) != (key is None):
        raise InvalidSettings("SEXTON_ISSUER_TLS_CERT and SEXTON_ISSUER_TLS_KEY go together")
    if cert is None or key is None:
        return
    for name, path in (("SEXTON_ISSUER_TLS_CERT", cert), ("SEXTON_ISSUER_TLS_KEY", key)):
        try:
            Path(path).read_bytes()
        except OSError as error:
            raise InvalidSettings(f"{name}: the file cannot be read: {path}: {error.strerror}") from error
    try:
        # A key with a passphrase would make the library ask for it on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=lambda: "")
    except ssl.SSLError as error:
        raise InvalidSettings(
            f"SEXTON_ISSUER_TLS_CERT and SEXTON_ISSUER_TLS_KEY are no certificate and its key: {cert}, {key}:"
            f" {error.reason or error}",
            hint="PEM files, the key without a passphrase",
        ) from error


def _run(server: Any, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT; uvicorn's own handlers would end the process by the signal."""
    from contextlib import nullcontext

    stopped_by: list[int] = []

    def stop(number: int, _: Any) -> None:
        server.force_exit = server.should_exit and number == signal.SIGINT
        server.should_exit = True
        stopped_by.append(number)

    server.capture_signals = nullcontext
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server.run(sockets=[listener])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if signal.SIGINT in stopped_by:
        raise KeyboardInterrupt


def _announce(service: Service, server: Any, listener: socket.socket, scheme: str) -> list[SextonError]:
    """Say where it is ready; a log that cannot be served ends the server, and the list holds why."""
    host, port, *_ = listener.getsockname()
    url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    refused: list[SextonError] = []

    def announce() -> None:
        try:
            if service.wait_ready():
                # One write: print makes two, and a log line of another thread can come between.
                sys.stderr.write(f"issuer ready: {url}\n")
                sys.stderr.flush()
        except SextonError as error:
            refused.append(error)
            server.should_exit = True

    threading.Thread(target=announce, name="sexton-announce", daemon=True).start()
    return refused


def _address(settings: Settings, port: int | None) -> tuple[str, int]:
    host, colon, text = settings.issuer_bind.rpartition(":")
    if not colon or not host or not re.fullmatch("[0-9]{1,5}", text) or int(text) > 65535:
        raise InvalidSettings(
            f"SEXTON_ISSUER_BIND is not host:port: {settings.issuer_bind}", hint="such as 127.0.0.1:8350"
        )
    return host.strip("[]"), int(text) if port is None else port


@app.command(epilog=_REBUILD, short_help="build Redis' projection anew from the log")
def rebuild() -> None:
    """Build Redis' projection anew from the log; the service may be running."""
    from sexton.issuer.cli.maintenance import rebuild_projection
    from sexton.schemas.kafka.admin import reach

    count = rebuild_projection(reach(load()))
    print(f"rebuilt from the log: {counted(count, 'tenant')}", file=sys.stderr)


@app.command(epilog=_VERIFY, short_help="compare Redis with the log")
def verify(
    form: Annotated[_Format, typer.Option("--format", help="text or json")] = _Format.TEXT,
) -> None:
    """Compare Redis with the log and print every difference; exits with 1 if there is one.

    The service may be running: an entry that is merely late is compared again before it counts.
    """
    from sexton.issuer.cli.maintenance import verify_projection
    from sexton.schemas.kafka.admin import reach

    found = verify_projection(reach(load()))
    for each in found:
        tenant, raw = _readable(each.tenant), _readable(each.raw)
        if form is _Format.JSON:
            print(json.dumps({"tenant": tenant, "redis": raw or None, "log": each.expected or None}))
        else:
            print(f"{tenant}  redis {raw or 'none'}  log {each.expected or 'none'}")
    print(f"differences: {len(found)}", file=sys.stderr)
    if found:
        raise typer.Exit(1)


def _readable(text: str) -> str:
    """Return what Redis holds with bytes that are no text escaped."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _as_http(found: TenantState) -> dict[str, Any]:
    """Return a tenant in the form that it has over HTTP: what is not so is absent there."""
    row = asdict(found)
    row["history"] = [
        {("from" if name == "start" else name): value for name, value in span.items() if _told(name, value)}
        for span in row["history"]
    ]
    return {name: value for name, value in row.items() if name != "imported" or value is not None}


def _told(name: str, value: Any) -> bool:
    return name != "until" or value is not None


@app.command(epilog=_SHOW, short_help="one tenant's state and history")
def show(
    tenant: Annotated[str, typer.Argument(help="name of the tenant")],
    form: Annotated[_Format, typer.Option("--format", help="text or json")] = _Format.TEXT,
) -> None:
    """Print a tenant's state and history, with the log offsets behind them."""
    from sexton.issuer.client import IssuerClient

    settings = load()
    with IssuerClient.of(settings) as issuer:
        found = issuer.tenant(tenant)
        transactions = issuer.transactions(tenant) if found and found.form == "transactions" else None
    if found is None:
        raise RequestRefused(
            "unknown-tenant",
            f"the log does not know the tenant: {tenant}",
            status=404,
            hint="is the name right? A tenant is known once it was attached, or imported"
            " (`sexton issuer import`)",
        )
    if transactions is not None:
        message = {"form": "transactions", **json_of(transactions)}
        print(json.dumps(message) if form is _Format.JSON else describe(transactions))
        return
    if form is _Format.JSON:
        print(json.dumps(_as_http(found)))
        return
    print(f"tenant      {found.tenant}")
    print(f"generation  {found.generation if found.generation is not None else 'none'}")
    print(f"form        {found.form}")
    print(f"holder      {found.holder or 'none'}{' (dropped)' if found.dropped else ''}")
    if found.imported is not None:
        print(f"imported    log offset {found.imported}")
    print(f"log offset  {found.log_offset}")
    for span in found.history:
        until = "newest" if span.until is None else f"until {list(span.until)}"
        print(
            f"  generation {span.generation}  node {span.node or 'none (fenced or imported)'}  "
            f"log offset {span.log_offset}  from {list(span.start)}  {until}"
        )
