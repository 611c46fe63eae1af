"""What executors on a cluster need, looked at by tasks there before the reaper is ready, told in one error.

They are processes of their own, often on machines of their own: credentials, certificates and packages that
the driver has they need not have. Found out by the first micro-batch, that is a fault without a cause, tried
over and over. In local mode driver and executor are one, and the driver's own checks have told.
"""

from __future__ import annotations

import importlib
import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

from sexton.issuer.client import IssuerClient
from sexton.schemas.errors import EnvironmentFault, SextonError
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.registry import Registry
from sexton.schemas.settings import Settings
from sexton.storage import Kind, ObjectStore, StoreRefused, StoreSettings
from sexton.streaming_jobs.reaper.availability import ExecutorWatch
from sexton.streaming_jobs.reaper.judge import parse_allow
from sexton.streaming_jobs.reaper.stop import StopRequested

__all__ = ["ExecutorsUnfit", "Lack", "cause_of", "check_executors", "lacks"]

_HINT = "executors have an environment of their own: docs/operating.md, 'Executors'"
_CAUSES = (
    r"ModuleNotFoundError: .*",
    r"ImportError: .*",
    r"Cannot run program .*",
    r".*PYTHON_VERSION_MISMATCH.*",
    r"\w*(?:Error|Exception): .*",
)
_NOWHERE = "sexton-preflight"
_POLL_S = 0.5


class ExecutorsUnfit(SextonError):
    """Executors cannot run the reaper's tasks, and will not by themselves: a person has to give them what is
    missing.
    """

    usual_hint = _HINT


@dataclass(frozen=True, slots=True)
class Lack:
    """What a task could not do on an executor; `passes`: a new try may find it mended."""

    host: str
    what: str
    hint: str | None
    passes: bool


def check_executors(
    settings: Settings, watch: ExecutorWatch, is_stopped: Callable[[], bool] = lambda: False
) -> None:
    """Return when a task on each core has what the reaper's tasks need; a cluster without a free core is
    waited for.

    Raises ExecutorsUnfit where no task can run, or a version differs; EnvironmentFault where something is
    away or refuses; both name the host and all that was found. StopRequested at a stop.
    """
    if not watch.is_needed:
        return
    try:
        found = _look_there(settings, watch, is_stopped)
    except Exception as error:  # Py4J's, with the worker's traceback as text
        if is_stopped():
            raise StopRequested from error
        raise ExecutorsUnfit(f"an executor cannot run a task: {cause_of(str(error))}") from error
    if not found:
        return
    each = dict.fromkeys(f"{lack.host}: {lack.what}" for lack in found)
    message = f"executors lack what the reaper's tasks need: {'; '.join(each)}"
    if all(lack.passes for lack in found):
        hint = next((lack.hint for lack in found if lack.hint), None)
        raise EnvironmentFault(message, hint=f"{_HINT}; {hint}" if hint else _HINT)
    raise ExecutorsUnfit(message)


def cause_of(text: str) -> str:
    """Return the line of a worker's failure that says why, of a text that is a screen of two tracebacks."""
    for pattern in _CAUSES:
        if found := re.search(pattern, text):
            return found[0].strip()[:300]
    return text.partition("\n")[0][:300]


def lacks(settings: Settings, ours: str, host: str) -> Iterator[Lack]:
    """Yield what this process cannot do of what tasks do; `ours` is the driver's version of Sexton."""
    if (here := version("sexton")) != ours:
        yield Lack(host, f"sexton {here} is installed, the driver has {ours}", None, passes=False)
    checks: tuple[Callable[[Settings], Any], ...] = (_later, _store, _kafka, _issuer, _registry)
    for check in checks:
        try:
            check(settings)
        except ImportError as error:
            yield Lack(host, f"{type(error).__name__}: {error}", None, passes=False)
        except SextonError as error:
            yield Lack(host, str(error), error.hint, passes=isinstance(error, EnvironmentFault))


def _look_there(settings: Settings, watch: ExecutorWatch, is_stopped: Callable[[], bool]) -> list[Lack]:
    """Return what tasks on executors have found; raises what has ended them, a stop among it."""
    context = watch.spark.sparkContext
    tasks = max(1, context.defaultParallelism)
    look = partial(_look, settings, version("sexton"))
    # In another thread: the call waits for a free core, however long that takes, and hears no signal.
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(context.parallelize(range(tasks), tasks).mapPartitions(look).collect)
        try:
            while not wait([found], _POLL_S).done:
                if is_stopped():
                    context.cancelAllJobs()  # each time: the first may have come before the job
                else:
                    watch.look_for_answer()
        except BaseException:  # Ctrl-C: else the pool would wait for the job
            context.cancelAllJobs()
            raise
    return found.result()


def _look(settings: Settings, ours: str, numbers: Iterator[int]) -> Iterator[Lack]:
    return lacks(settings, ours, socket.gethostname())


def _later(settings: Settings) -> None:
    """Import what tasks import when they first need it: in the middle of a micro-batch that is too late."""
    importlib.import_module("sexton.streaming_jobs.budget.shared")


def _store(settings: Settings) -> None:
    """Ask about each bucket that may be touched; one that refuses itself is held later, and by itself."""
    with ObjectStore(StoreSettings.of(settings)) as store:
        for bucket in dict.fromkeys(name for name, _ in parse_allow(settings.allow)) or (_NOWHERE,):
            try:
                store.ping(bucket)
            except StoreRefused as refused:
                if refused.kind is Kind.ENVIRONMENT:
                    raise EnvironmentFault(str(refused)) from refused


def _kafka(settings: Settings) -> None:
    Cluster(settings).topic_names()


def _issuer(settings: Settings) -> None:
    with IssuerClient.of(settings) as issuer:
        issuer.validate([])


def _registry(settings: Settings) -> None:
    if settings.schema_registry_url:
        Registry(settings.schema_registry_url, settings.schema_registry_extra).schema(1)
