"""The parts of the local stack, in the order in which they need each other."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from sexton.deploy import java, topics
from sexton.deploy.local import faults_server, interrupts, kafka, ports, process, s3, state
from sexton.deploy.local.launch import Probe, command_of, environment_of, probe_of
from sexton.deploy.local.layout import Layout
from sexton.deploy.local.process import Process
from sexton.deploy.local.servers import PartStatus, Server, port_names, servers
from sexton.deploy.local.wanted import SERVERS, Wanted, parts_left_out
from sexton.schemas.errors import EnvironmentFault, UsageError
from sexton.schemas.settings import Settings
from sexton.schemas.text import counted

__all__ = ["BUCKET", "LOCAL_PARTITIONS", "LocalStack"]

BUCKET = "sexton-local"

_PORTS = (*SERVERS, "faults")
LOCAL_PARTITIONS = 4
_WRITTEN = ("kafka", "redis", "logs", "checkpoint")
_READY_SECONDS = 120.0
_POLL_SECONDS = 0.05


def _silent(line: str) -> None:
    """Say nothing, for a caller that shows no progress."""


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
        brokers: int | None = None,
        issuers: int | None = None,
        say: Callable[[str], None] = _silent,
    ) -> LocalStack:
        """Bring every part up that is not up yet and return when each answers.

        Parts that already run are left alone; those that died are started again on their old port and data.
        `faults` is a file of rules: a proxy that plays them stands before the store until the stack is ended.
        `brokers` and `issuers` are how many there are to be; without, as many as the stack has, or one.
        If it fails or is interrupted, what this call started is ended again. Raises EnvironmentFault with the
        last lines of its log when a part does not come up, KeyboardInterrupt after SIGINT, SIGTERM or SIGHUP.
        """
        if faults is not None:
            faults = faults.expanduser().absolute()
            faults_server.check(faults)
        wanted = Wanted(parts_left_out(without), faults, brokers, issuers)
        interrupted = threading.Event()
        with state.locked(directory.expanduser().absolute(), say), interrupts.deferred(interrupted):
            stack = cls(directory, environ, interrupted)
            before = dict(stack._state.processes)
            try:
                stack._bring_up(wanted, partitions, say)
                stack._check_interrupted()
            except BaseException as error:
                stack._end([p for n, p in stack._state.processes.items() if before.get(n) != p])
                if interrupted.is_set():
                    raise KeyboardInterrupt from error
                raise
        return stack

    @property
    def _layout(self) -> Layout:
        return Layout(self.directory, self._state, self._environ)

    @property
    def env(self) -> dict[str, str]:
        """The variables of the parts that this stack runs."""
        return self._layout.env

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of a program that uses the stack: that of the caller, the stack's on top."""
        return self._layout.environment

    @property
    def settings(self) -> Settings:
        """The settings that such a program would load."""
        return self._layout.settings

    @property
    def store_url(self) -> str:
        """The address of the store itself, also where a proxy that plays faults stands before it."""
        return self._layout.store_url

    @property
    def requests_log(self) -> Path:
        """Where the proxy that plays faults logs each request to the store, as JSON lines."""
        return self._layout.requests_log

    def log(self, name: str) -> Path:
        """Return where the output of a server goes."""
        return self._layout.log(name)

    def pid(self, name: str) -> int:
        """Return the process id of a server; raises UsageError if it was never started."""
        return self._process(name).pid

    def status(self) -> list[PartStatus]:
        """Return how each server is, asking it."""
        rows = []
        for server in self._servers(*SERVERS, *(["faults"] if self._state.faults is not None else [])):
            name = server.name
            known = self._state.processes.get(name)
            state, pid = self._state_of(server, known), known.pid if known else None
            rows.append(PartStatus(name, state, pid, self._state.ports.get(name), self.log(name)))
        return rows

    def stop(self, say: Callable[[str], None] = _silent) -> None:
        """End every process of the stack and return when all are gone; the data stays."""
        with state.locked(self.directory, say):
            self._stop()

    def wipe(self, say: Callable[[str], None] = _silent) -> None:
        """Do what `stop` does and remove all that the stack has written; what else is in its folder stays."""
        with state.locked(self.directory, say):
            # Nothing is written: who wipes may have no room left.
            process.stop([*state.load(self.directory).processes.values()])
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

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to one server; after SIGKILL, return when it is gone."""
        victim = self._process(name)
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

    def restart(self, name: str) -> None:
        """Start one server again on its port and data, ending it first if it runs; return when it answers."""
        process.stop([p for n, p in self._state.processes.items() if n == name])
        for server in self._servers(*_PORTS):
            if server.name == name:
                self._serve(server, _silent)

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

    def wait_ready(self, name: str, started: Process, probe: Probe) -> None:
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

    def _bring_up(self, wanted: Wanted, partitions: int, say: Callable[[str], None]) -> None:
        wanted.check(self._environ)
        self._settle(wanted)
        without = wanted.without
        if "kafka" not in without:
            self._give_storage(say)
        self._serve_together([part for part in ("kafka", "redis", "s3") if part not in without], say)
        if {"kafka", "topics"}.isdisjoint(without):
            self._create_topics(partitions, say)
        if {"s3", "bucket"}.isdisjoint(without):
            s3.create_bucket(self.store_url, BUCKET)
            say(f"bucket: {BUCKET}")
        if self._state.faults is not None:
            self._serve_together(["faults"], say)
        if "issuer" not in without:
            self._serve_together(["issuer"], say)

    def _settle(self, wanted: Wanted) -> None:
        """Note what is to run, and where, before anything of it is started."""
        counts = wanted.counts(self._state.servers, formatted=kafka.formatted(self._layout.kafka_folder))
        faults = str(wanted.faults) if wanted.faults is not None else None
        running = any(process.alive(known) for known in self._state.processes.values())
        if faults is None and running:
            faults = self._state.faults
        kept = {server.name for server in servers(_PORTS, counts)}
        surplus = {server.name for server in self._servers(*_PORTS)} - kept
        # A proxy that runs stays where it is, as ports do; another file is another proxy.
        for name in (*surplus, *(["faults"] if faults != self._state.faults else [])):
            self.end(name)
        self._state = replace(
            self._state,
            ports=ports.assign(port_names(_PORTS, counts), self._state.ports, running=running),
            without=wanted.without,
            faults=faults,
            servers=counts,
        )
        state.save(self.directory, self._state)

    def _give_storage(self, say: Callable[[str], None]) -> None:
        """Format the storage of brokers that have none, before the first starts: it needs most of them."""
        folder, brokers = self._layout.kafka_folder, self._layout.brokers
        kafka.prepare(folder, brokers)
        bare = [broker for broker in brokers if not kafka.formatted(folder, broker)]
        if bare:
            say(f"kafka: formats its storage, {counted(len(bare), 'broker')}")
        self._together([partial(self._format, broker) for broker in bare])

    def _format(self, broker: kafka.Broker) -> None:
        name = f"{Server('kafka', broker.number).name}-format"
        self.end(name)  # of an `up` that was killed
        layout = self._layout
        command = kafka.format_command(layout.kafka_folder, broker, self._java, layout.cache)
        self._check_interrupted()
        started = self.run(name, command, self.environment)
        deadline = time.monotonic() + _READY_SECONDS
        while process.alive(started) and time.monotonic() < deadline:
            self._check_interrupted()
            time.sleep(_POLL_SECONDS)
        self.end(name)
        if not kafka.formatted(layout.kafka_folder, broker):
            log = self.log(name)
            raise EnvironmentFault(
                f"Kafka's storage was not formatted\n{process.last_lines(log)}", hint=f"its log: {log}"
            )

    def _create_topics(self, partitions: int, say: Callable[[str], None]) -> None:
        self._check_interrupted()
        # Topics get as many copies as their maker sees brokers: with one unseen it may be a single copy.
        listed = [broker.port for broker in self._layout.brokers]
        for server in self._servers("kafka"):
            address = {"bootstrap.servers": self._layout.address(server)}
            probe = partial(kafka.answers, address, listed=listed)
            self.wait_ready(server.name, self._process(server.name), probe)
        created = topics.create_installation(self.settings, partitions=partitions)
        say(f"topics: {len(created)} created" if created else "topics: all there")

    def _serve_together(self, parts: list[str], say: Callable[[str], None]) -> None:
        self._together([partial(self._serve, server, say) for server in self._servers(*parts)])

    def _serve(self, server: Server, say: Callable[[str], None]) -> None:
        name, probe = server.name, probe_of(server, self._layout)
        known = self._state.processes.get(name)
        if known is None or not process.alive(known):
            begun = time.monotonic()
            layout = self._layout
            command = command_of(server, layout, lambda: self._java)
            self._check_interrupted()
            known = self.run(name, command, environment_of(server, layout))
            self.wait_ready(name, known, probe)
            say(f"{name}: ready on port {self._layout.port(server)} ({time.monotonic() - begun:.1f} s)")
        else:
            self.wait_ready(name, known, probe)
            say(f"{name}: found on port {self._layout.port(server)}")

    @cached_property
    def _java(self) -> java.Java:
        return java.find(self._layout.cache, self._environ)

    def _servers(self, *parts: str) -> list[Server]:
        return self._layout.servers(*parts)

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

    def _process(self, name: str) -> Process:
        try:
            return self._state.processes[name]
        except KeyError:
            raise UsageError(f"was never started: {name}") from None

    def _state_of(self, server: Server, known: Process | None) -> str:
        if known is None:
            return "left out" if server.part in self._state.without else "down"
        if not process.alive(known):
            return "dead"
        return "ready" if probe_of(server, self._layout)() is None else "starting"

    def _end(self, doomed: Iterable[Process]) -> None:
        gone = list(doomed)
        process.stop(gone)
        kept = {name: known for name, known in self._state.processes.items() if known not in gone}
        self._state = replace(self._state, processes=kept)
        state.save(self.directory, self._state)
