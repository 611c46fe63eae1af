"""What every benchmark shares: the machine's description, servers, CPU and memory by part, results."""

from __future__ import annotations

import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil
from benchmarks.blackhole import VerifyResult, verify
from benchmarks.certificates import make_certificate
from rich.console import Console
from rich.table import Table

from sexton.deploy.local import LocalStack
from sexton.schemas.settings import Settings

__all__ = [
    "BUCKET",
    "RESULTS",
    "Bench",
    "BlackHole",
    "Parts",
    "Sampler",
    "Target",
    "check_sent",
    "cpu_per_key",
    "machine",
    "median",
    "missed_targets",
    "open_bench",
    "say",
    "write_results",
]

BUCKET = "bench-bucket"
RESULTS = Path(__file__).parent / "results"
_MIB = 1024 * 1024
_SAMPLE_S = 0.2


def say(text: str) -> None:
    """Print one line of progress on stderr."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def machine() -> dict[str, Any]:
    """Describe the machine and how busy it is with other work."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = info.read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        cpu = names[0] if names else cpu
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": [round(x, 2) for x in os.getloadavg()],
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


# --- servers -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class BlackHole:
    """The black-hole S3 server; `kept` holds every body that it was sent since the last reset.

    `url` is its endpoint over TLS, `plain_url` the one on plain HTTP; `authority` the PEM file that clients
    are to trust.
    """

    url: str
    plain_url: str
    kept: Path
    authority: Path
    process: subprocess.Popen[str]

    @classmethod
    def start(cls, folder: Path) -> BlackHole:
        """Start it on free ports, with a certificate made for it, its files in the folder."""
        kept, (authority, server) = folder / "kept.bin", make_certificate(folder)
        command = [sys.executable, str(Path(__file__).with_name("blackhole.py")), "--keep", str(kept)]
        command += ["--certificate", str(server)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        plain, tls = int(process.stdout.readline()), int(process.stdout.readline())
        return cls(f"https://127.0.0.1:{tls}", f"http://127.0.0.1:{plain}", kept, authority, process)

    def reset(self) -> None:
        """Forget everything it was sent."""
        self._control("reset")

    def play(self, **played: float) -> None:
        """Play this latency (`latency_ms`) and this share of keys that fail once (`transient_share`)."""
        self._control(f"set?{urlencode(played)}")

    def stats(self) -> dict[str, Any]:
        """Flush the kept bodies and return the counters."""
        found: dict[str, Any] = json.loads(self._control("stats"))
        return found

    def _control(self, what: str) -> bytes:
        # By the plain port: how it is asked is no part of what is measured.
        with urllib.request.urlopen(f"{self.plain_url}/__{what}") as reply:
            return bytes(reply.read())

    def stop(self) -> None:
        """End it."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(10)
        if self.process.stdout is not None:
            self.process.stdout.close()


def check_sent(hole: BlackHole, due: Iterable[str], who: str) -> VerifyResult:
    """Return how the keys that the black hole was sent compare; RuntimeError unless they are those due."""
    hole.stats()  # flushes what is kept
    sent = verify(hole.kept, due)
    if not sent.exact:
        raise RuntimeError(f"{who}: not the keys due: missing {sent.missing}, unexpected {sent.unexpected}")
    return sent


@dataclass(slots=True)
class Bench:
    """A running stack whose object store is a black hole."""

    directory: Path
    stack: LocalStack
    hole: BlackHole

    @property
    def settings(self) -> Settings:
        """Settings that lead to it."""
        return self.stack.settings

    def environment(self, **more: str) -> dict[str, str]:
        """Return the whole environment of a program that uses the stack."""
        return {**self.stack.environment, **more}


@contextmanager
def open_bench(name: str, partitions: int = 8) -> Iterator[Bench]:
    """Start Kafka, Valkey, the issuer and a black hole in a temporary folder; remove all afterwards.

    What uses the stack reaches the black hole over TLS, unless it is given `plain_url`.
    """
    with tempfile.TemporaryDirectory(prefix=f"sexton-bench-{name}-") as folder:
        directory = Path(folder)
        say(f"{name}: starting servers")
        hole = BlackHole.start(directory)
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("SEXTON_", "AWS_"))}
        environ |= {k: v for k, v in os.environ.items() if k == "SEXTON_CACHE_DIR"}
        environ |= {
            "SEXTON_S3_ENDPOINT_URL": hole.url,
            "AWS_CA_BUNDLE": str(hole.authority),
            "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        try:
            stack = LocalStack.start(
                directory / "stack", without={"s3", "bucket"}, environ=environ, partitions=partitions
            )
            try:
                yield Bench(directory, stack, hole)
            finally:
                stack.stop()
        finally:
            hole.stop()


# --- CPU and memory by part --------------------------------------------------------------------------------


@dataclass(slots=True)
class Parts:
    """Finds the processes of each part: the servers by pid, a program's own by what they run.

    `others` are, with all that they have started, the part `cluster`.
    """

    bench: Bench
    program: int | None = None
    name: str = "program"
    others: tuple[int, ...] = ()

    def processes(self) -> Iterator[tuple[str, psutil.Process]]:
        """Yield each live process with the part it belongs to."""
        fixed = {"broker": "kafka", "valkey": "redis", "issuer": "issuer"}
        for part, known in fixed.items():
            yield part, psutil.Process(self.bench.stack.pid(known))
        yield "black hole", psutil.Process(self.bench.hole.process.pid)
        if self.program is not None:
            yield from self._own(psutil.Process(self.program))
        for pid in self.others:
            root = psutil.Process(pid)
            yield from (("cluster", each) for each in (root, *root.children(recursive=True)))

    def _own(self, root: psutil.Process) -> Iterator[tuple[str, psutil.Process]]:
        yield self.name, root
        for child in root.children(recursive=True):
            try:
                name, java, above = child.name(), Path(child.exe()).name == "java", child.parent()
                java_above = above is not None and above.name() == "java"
            except psutil.NoSuchProcess:
                continue
            if java and java_above:
                continue  # between fork and exec: it shares the memory of the JVM, which is counted
            if java:
                yield "jvm", child
            elif name.startswith("python") and not java_above and self.name == "driver":
                yield "workers", child
            else:
                yield self.name, child

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU seconds, user and system, that each part has used so far."""
        found: dict[str, float] = {}
        for part, process in self._alive():
            times = process.cpu_times()
            found[part] = found.get(part, 0.0) + times.user + times.system
        return found

    def resident_mib(self) -> dict[str, float]:
        """Return each part's resident memory; of the workers, the largest one's."""
        found: dict[str, float] = {}
        for part, process in self._alive():
            size, before = process.memory_info().rss / _MIB, found.get(part, 0.0)
            found[part] = max(before, size) if part == "workers" else before + size
        return found

    def _alive(self) -> Iterator[tuple[str, psutil.Process]]:
        for part, process in self.processes():
            if process.is_running():
                yield part, process


@dataclass(slots=True)
class Sampler:
    """Keeps the peak of each part's resident memory while it runs."""

    parts: Parts
    peak_mib: dict[str, float] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Sampler:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            try:
                sizes = self.parts.resident_mib()
            except psutil.NoSuchProcess:
                continue  # one ended between the listing and the reading
            for part, size in sizes.items():
                self.peak_mib[part] = max(self.peak_mib.get(part, 0.0), size)


def cpu_per_key(before: Mapping[str, float], after: Mapping[str, float], keys: int) -> dict[str, float]:
    """Return the CPU microseconds per key of each part between two readings."""
    return {part: round((after[part] - before.get(part, 0.0)) * 1e6 / keys, 3) for part in after}


# --- results -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure is to reach: at least (`>=`) or at most (`<=`) a value; unit for people."""

    relation: str
    value: float
    unit: str = ""

    def met(self, figure: float) -> bool:
        """Return whether the figure reaches it."""
        return figure >= self.value if self.relation == ">=" else figure <= self.value


def write_results(
    name: str,
    runs: Sequence[Mapping[str, Any]],
    figures: Mapping[str, float],
    targets: Mapping[str, Target] | None = None,
    described: Mapping[str, Any] | None = None,
) -> int:
    """Write `results/<name>.json`, print the figures beside their targets and return the exit code.

    That is 1 when a target was missed. `described` is the machine as it was when the benchmark began, its
    load included.
    """
    RESULTS.mkdir(exist_ok=True)
    host = dict(described or machine())
    content = {"machine": host, "runs": list(runs), "figures": dict(figures)}
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    table = Table(title=f"{name} (load average before: {host['load_average'][0]})")
    for column in ("figure", "value", "target", ""):
        table.add_column(column, justify="right" if column in ("value", "target") else "left")
    for figure, value in figures.items():
        target = (targets or {}).get(figure)
        wanted = f"{target.relation} {target.value:,g} {target.unit}".strip() if target else ""
        verdict = "" if target is None else "reached" if target.met(value) else "not reached"
        table.add_row(figure, _number(value), wanted, verdict)
    Console().print(table)
    missed = missed_targets(figures, targets or {})
    if missed:
        say(f"targets not reached: {', '.join(missed)}")
    return 1 if missed else 0


def missed_targets(figures: Mapping[str, float], targets: Mapping[str, Target]) -> list[str]:
    """Return the names of figures that do not reach their target; what was not measured has missed none."""
    return [name for name, target in targets.items() if name in figures and not target.met(figures[name])]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"
