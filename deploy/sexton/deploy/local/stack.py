"""The parts of the local stack, in the order in which they need each other."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

from sexton.deploy import java, topics
from sexton.deploy.local import faults_server, interrupts, issuer, kafka, ports, process, s3, state, valkey
from sexton.deploy.local.process import Process
from sexton.schemas import settings as settings_module
from sexton.schemas.errors import EnvironmentFault, UsageError
from sexton.schemas.settings import Settings

__all__ = ["BUCKET", "LOCAL_PARTITIONS", "PARTS", "LocalStack", "PartStatus", "parts_left_out"]

SERVERS = ("kafka", "redis", "s3", "issuer")
PARTS = (*SERVERS, "topics", "bucket")
BUCKET = "sexton-local"

_PORTS = ("kafka", "kafka-controller", "redis", "s3", "faults", "issuer")
LOCAL_PARTITIONS = 4
_WRITTEN = ("kafka", "redis", "logs", "checkpoint")
_READY_SECONDS = 120.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One server: `state` is `ready`, `starting` (runs, does not answer), `dead`, `down` or `left out`."""

    part: str
    state: str
    pid: int | None
    port: int | None
    log: Path


def parts_left_out(names: Iterable[str]) -> frozenset[str]:
    """Return the names as a set; raises UsageError for one that is no part."""
    chosen = frozenset("redis" if name == "valkey" else name for name in names)
    for name in sorted(chosen - set(PARTS)):
        raise UsageError(f"no part of the local stack: {name}", hint=f"parts: {', '.join(PARTS)}")
    return chosen


class LocalStack:
    """Servers of one folder: their data, logs, ports and processes.

    `env` holds the `SEXTON_…` and `AWS_…` variables by which other programs use them.
    """

    def __init__(
        self,
        directory: Path,
        environ: Mapping[str, str] | None = None,
        interrupted: threading.Event | None = None,
    ) -> None:
        self.directory = directory.expanduser().absolute()
        self._environ = dict(os.environ if environ is None else environ)
        self._state = state.load(self.directory)
        self._saving = threading.Lock()
        self._given_up = threading.Event()
        self._interrupted = interrupted or threading.Event()

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        without: Iterable[str] = frozenset(),
        environ: Mapping[str, str] | None = None,
        partitions: int = LOCAL_PARTITIONS,
        faults: Path | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> LocalStack:
        """Bring every part up that is not up yet and return when each answers.

        Parts that already run are left alone; those that died are started again on their old port and data.
        `faults` is a file of rules: a proxy that plays them stands before the store until the stack is ended.
        If it fails or is interrupted, what this call started is ended again. Raises EnvironmentFault with the
        last lines of its log when a part does not come up, KeyboardInterrupt after SIGINT, SIGTERM or SIGHUP.
        """
        chosen = parts_left_out(without)
        if faults is not None:
            faults = faults.expanduser().absolute()
            faults_server.check(faults)
        interrupted = threading.Event()
        with state.locked(directory.expanduser().absolute()), interrupts.deferred(interrupted):
            stack = cls(directory, environ, interrupted)
            before = dict(stack._state.processes)
            try:
                stack._bring_up(chosen, partitions, faults, say)
                stack._check_interrupted()
            except BaseException as error:
                stack._end([p for n, p in stack._state.processes.items() if before.get(n) != p])
                if interrupted.is_set():
                    raise KeyboardInterrupt from error
                raise
        return stack

    @property
    def env(self) -> dict[str, str]:
        """The variables of the parts that this stack runs."""
        address = {name: f"127.0.0.1:{port}" for name, port in self._state.ports.items()}
        without = self._state.without
        variables = {
            "SEXTON_STATE_DIR": str(self.directory),
            "SEXTON_CHECKPOINT": str(self.directory / "checkpoint"),
        }
        if "kafka" not in without:
            variables["SEXTON_KAFKA_BOOTSTRAP_SERVERS"] = address["kafka"]
        if "redis" not in without:
            variables["SEXTON_REDIS_URL"] = f"redis://{address['redis']}/0"
        if "issuer" not in without:
            variables["SEXTON_ISSUER_BIND"] = address["issuer"]
            variables["SEXTON_ISSUER_URL"] = f"http://{address['issuer']}"
        if self._state.faults is not None:
            url = f"http://{address['faults']}"
            variables |= {"SEXTON_S3_ENDPOINT_URL": url, "AWS_ENDPOINT_URL_S3": url}
        elif "s3" not in without:
            variables |= {"SEXTON_S3_ENDPOINT_URL": self.store_url, "AWS_ENDPOINT_URL_S3": self.store_url}
        if "s3" not in without:
            variables |= {
                "SEXTON_S3_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "sexton",
                "AWS_SECRET_ACCESS_KEY": "sexton-local",
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true",
            }
        return variables

    @property
    def store_url(self) -> str:
        """The address of the store itself, also where a proxy that plays faults stands before it."""
        if "s3" in self._state.without:
            return self._environ["SEXTON_S3_ENDPOINT_URL"]
        return f"http://127.0.0.1:{self._state.ports['s3']}"

    @property
    def requests_log(self) -> Path:
        """Where the proxy that plays faults logs each request to the store, as JSON lines."""
        return self.directory / "logs" / "s3-requests.jsonl"

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of a program that uses the stack: that of the caller, the stack's on top."""
        return {**self._environ, **self.env}

    @property
    def settings(self) -> Settings:
        """The settings that such a program would load."""
        return settings_module.load(self.environment)

    def log(self, part: str) -> Path:
        """Return where the output of a part goes."""
        return self.directory / "logs" / f"{part}.log"

    def pid(self, part: str) -> int:
        """Return the process id of a part; raises UsageError if it was never started."""
        return self._process(part).pid

    def status(self) -> list[PartStatus]:
        """Return how each server is, asking it."""
        rows = []
        for part in (*SERVERS, *(["faults"] if self._state.faults is not None else [])):
            known = self._state.processes.get(part)
            port = self._state.ports.get(part)
            rows.append(
                PartStatus(
                    part, self._state_of(part, known), known.pid if known else None, port, self.log(part)
                )
            )
        return rows

    def stop(self) -> None:
        """End every process of the stack and return when all are gone; the data stays."""
        with state.locked(self.directory):
            self._stop()

    def wipe(self) -> None:
        """Do what `stop` does and remove all that the stack has written; what else is in its folder stays."""
        with state.locked(self.directory):
            self._stop()
            for name in _WRITTEN:
                shutil.rmtree(self.directory / name, ignore_errors=True)
            state.forget(self.directory)
            self._state = state.State()

    def _stop(self) -> None:
        self._state = state.load(self.directory)
        self._end(self._state.processes.values())
        # What is asked for with one `up` is not played after the next.
        self._state = replace(self._state, faults=None)
        state.save(self.directory, self._state)

    def kill(self, part: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to one part; after SIGKILL, return when it is gone."""
        victim = self._process(part)
        process.send(victim, number)
        if number == signal.SIGKILL:
            process.stop([victim], term_seconds=5)

    def started(self, name: str) -> bool:
        """Return whether a process of that name was started, alive or not."""
        return name in self._state.processes

    def end(self, name: str) -> None:
        """End one process, if it was started, and forget it."""
        with self._saving:
            self._end([known for started, known in self._state.processes.items() if started == name])

    def restart(self, part: str) -> None:
        """Start one part again on its port and data, ending it first if it runs; return when it answers."""
        process.stop([p for n, p in self._state.processes.items() if n == part])
        self._serve(part, lambda line: None)

    def run(self, name: str, command: list[str], environment: Mapping[str, str]) -> Process:
        """Start one more process that ends with the stack, its output in `logs/<name>.log`."""
        log = self.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        with self._saving:
            started = self._spawn(command, log, environment)
            # Before anything else happens: a process that is in no file is one that `down` cannot end.
            self._state = replace(self._state, processes={**self._state.processes, name: started})
            state.save(self.directory, self._state)
        return started

    def _spawn(self, command: list[str], log: Path, environment: Mapping[str, str]) -> Process:
        return process.spawn(command, directory=self.directory, log=log, environment=environment)

    def wait_ready(self, name: str, started: Process, probe: Callable[[], str | None]) -> None:
        """Return when `probe` returns None; raises EnvironmentFault if the process dies or takes too long."""
        deadline = time.monotonic() + _READY_SECONDS
        while (answer := probe()) is not None:
            self._check_interrupted()
            late = time.monotonic() > deadline
            if late or not process.alive(started):
                why = (
                    f"does not answer after {_READY_SECONDS:.0f} s: {answer}"
                    if late
                    else "ended while starting"
                )
                raise EnvironmentFault(
                    f"{name} {why}\n{process.last_lines(self.log(name))}", hint=f"its log: {self.log(name)}"
                )
            time.sleep(_POLL_SECONDS)

    def _bring_up(
        self, without: frozenset[str], partitions: int, faults: Path | None, say: Callable[[str], None]
    ) -> None:
        self._check_needs(without, faults)
        self._settle_ports(without)
        self._settle_faults(faults)
        first = [part for part in ("kafka", "redis", "s3") if part not in without]
        self._together([lambda part=part: self._serve(part, say) for part in first])  # type: ignore[misc]
        if {"kafka", "topics"}.isdisjoint(without):
            self._check_interrupted()
            self._create_topics(partitions, say)
        if {"s3", "bucket"}.isdisjoint(without):
            s3.create_bucket(self.store_url, BUCKET)
            say(f"bucket: {BUCKET}")
        if self._state.faults is not None:
            self._together([lambda: self._serve("faults", say)])
        if "issuer" not in without:
            self._together([lambda: self._serve("issuer", say)])

    def _check_needs(self, without: frozenset[str], faults: Path | None) -> None:
        if faults is not None and "s3" in without and not self._environ.get("SEXTON_S3_ENDPOINT_URL"):
            raise UsageError(
                "faults need a store to stand before, and s3 is left out",
                hint="set SEXTON_S3_ENDPOINT_URL to the store that is used instead",
            )
        for part, variable in (("kafka", "SEXTON_KAFKA_BOOTSTRAP_SERVERS"), ("redis", "SEXTON_REDIS_URL")):
            if part in without and "issuer" not in without and not self._environ.get(variable):
                raise UsageError(
                    f"the issuer needs a part that is left out: {part}",
                    hint=f"set {variable}, or leave the issuer out too",
                )

    def _settle_ports(self, without: frozenset[str]) -> None:
        running = any(process.alive(known) for known in self._state.processes.values())
        # The port stays while anything runs: other programs were told it, and the issuer's settings hold it.
        known = dict(self._state.ports) if running else {}
        fresh = [name for name in _PORTS if name not in known]
        chosen = {**known, **dict(zip(fresh, ports.choose(len(fresh)), strict=True))}
        faults = self._state.faults if running else None
        self._state = replace(self._state, ports=chosen, without=without, faults=faults)
        state.save(self.directory, self._state)

    def _settle_faults(self, faults: Path | None) -> None:
        # A proxy that runs stays where it is, as ports do; another file is another proxy.
        if faults is None or str(faults) == self._state.faults:
            return
        self.end("faults")
        self._state = replace(self._state, faults=str(faults))
        state.save(self.directory, self._state)

    def _create_topics(self, partitions: int, say: Callable[[str], None]) -> None:
        created = topics.create_installation(self.settings, partitions=partitions)
        say(f"topics: {len(created)} created" if created else "topics: all there")

    def _serve(self, part: str, say: Callable[[str], None]) -> None:
        probe = self._probe(part)
        known = self._state.processes.get(part)
        if known is None or not process.alive(known):
            begun = time.monotonic()
            command = self._command(part)
            self._check_interrupted()
            known = self.run(part, command, self.environment)
            self.wait_ready(part, known, probe)
            say(f"{part}: ready on port {self._state.ports[part]} ({time.monotonic() - begun:.1f} s)")
        else:
            self.wait_ready(part, known, probe)
            say(f"{part}: found on port {self._state.ports[part]}")

    def _command(self, part: str) -> list[str]:
        port = self._state.ports[part]
        if part == "kafka":
            cache = self.settings.cache_dir.expanduser()
            controller = self._state.ports["kafka-controller"]
            return kafka.command(
                self.directory / "kafka", port, controller, java.find(cache, self._environ), cache
            )
        if part == "redis":
            return valkey.command(self.directory / "redis", port)
        if part == "faults":
            assert self._state.faults is not None
            if self.store_url == f"http://127.0.0.1:{port}":
                raise UsageError(
                    "the proxy would stand before itself", hint="set SEXTON_S3_ENDPOINT_URL to the store"
                )
            return faults_server.command(port, self.store_url, Path(self._state.faults), self.requests_log)
        return s3.command(port) if part == "s3" else issuer.command()

    def _probe(self, part: str) -> Callable[[], str | None]:
        port = self._state.ports[part]
        address = f"127.0.0.1:{port}"
        probes: dict[str, Callable[[], str | None]] = {
            "kafka": lambda: kafka.answers({"bootstrap.servers": address}),
            "redis": lambda: valkey.answers(port),
            "s3": lambda: s3.answers(f"http://{address}"),
            "faults": lambda: faults_server.answers(port),
            "issuer": lambda: issuer.answers(f"http://{address}"),
        }
        return probes[part]

    def _together(self, jobs: list[Callable[[], None]]) -> None:
        """Run jobs side by side and return when all are done; when one fails, the others stop waiting."""
        if not jobs:
            return
        with ThreadPoolExecutor(len(jobs)) as pool:
            futures: list[Future[None]] = [pool.submit(job) for job in jobs]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            failed = [error for future in done if (error := future.exception()) is not None]
            if failed:
                self._given_up.set()
        if failed:
            raise failed[0]

    def _check_interrupted(self) -> None:
        if self._interrupted.is_set() or self._given_up.is_set():
            raise EnvironmentFault("the start was given up")

    def _process(self, part: str) -> Process:
        try:
            return self._state.processes[part]
        except KeyError:
            raise UsageError(f"was never started: {part}") from None

    def _state_of(self, part: str, known: Process | None) -> str:
        if known is None:
            return "left out" if part in self._state.without else "down"
        if not process.alive(known):
            return "dead"
        return "ready" if self._probe(part)() is None else "starting"

    def _end(self, doomed: Iterable[Process]) -> None:
        gone = list(doomed)
        process.stop(gone)
        kept = {name: known for name, known in self._state.processes.items() if known not in gone}
        self._state = replace(self._state, processes=kept)
        state.save(self.directory, self._state)
