"""One run: issuers on one log, clients, faults while calls are in flight, and the replay at its end."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.chaos.clients import PARTITIONS, Client, Intents
from tests.chaos.faults import KINDS, Faults
from tests.chaos.journal import Call, Journal
from tests.chaos.replay import violations
from tests.chaos.transacting import Roster

from sexton.deploy import topics
from sexton.deploy.local import LocalStack, issuer, ports
from sexton.schemas import settings as settings_module

__all__ = ["Report", "run"]

_ISSUERS = 3  # two do where a bug is planted
_CLIENTS = 6
_TIMEOUT_S = 2.0
_runs = itertools.count(1)


@dataclass
class Report:
    """What a run did and found."""

    seed: int
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    numbers: int = 0
    requests: int = 0
    transactions: int = 0
    committed: int = 0
    steps: int = 0
    steps_refused: int = 0
    barriers: int = 0
    verdicts: int = 0
    lost: int = 0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        return (
            f"seed {self.seed}: {self.faults.total()} faults ({kinds}) in {self.seconds:.0f} s; "
            f"{self.numbers} numbers in {self.requests} answers, "
            f"{self.transactions} transactions ({self.committed} committed) in {self.steps} answers "
            f"({self.steps_refused} refusals), {self.barriers} barriers, "
            f"{self.verdicts} verdicts, {self.lost} calls without an answer; "
            f"{len(self.violations)} violations"
        )


class _Place:
    """Topics and issuer processes of one run."""

    def __init__(self, stack: LocalStack, plant: str | None) -> None:
        addresses = [f"127.0.0.1:{port}" for port in ports.choose(_ISSUERS if plant is None else 2)]
        prefix = {"SEXTON_TOPIC_PREFIX": f"chaos-{next(_runs)}.", "SEXTON_ISSUER_TIMEOUT_S": str(_TIMEOUT_S)}
        self._environment = {**stack.environment, **prefix}
        self.settings = settings_module.load(self._environment)
        self._command = issuer.command()
        if plant is not None:
            self._command = [sys.executable, "-m", "tests.chaos.launcher", "--plant", plant]
        self._addresses = addresses
        self.urls = [f"http://{address}" for address in addresses]
        self._log = (stack.directory / "logs" / "chaos.log").open("ab")
        topics.create_installation(self.settings, partitions=PARTITIONS)
        self.issuers = [self.start(number) for number in range(len(addresses))]

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """Start one issuer on its port."""
        env = {**self._environment, "SEXTON_ISSUER_BIND": self._addresses[number]}
        return subprocess.Popen(self._command, env=env, stdout=self._log, stderr=self._log)

    def supervise(self) -> None:
        """Start again what ended by itself: an issuer that finds Redis away, or evicting, does not start."""
        for number, process in enumerate(self.issuers):
            if process.poll() is not None:
                self.issuers[number] = self.start(number)

    def wait_ready(self) -> None:
        """Return when every issuer answers."""
        for url in self.urls:
            until = time.monotonic() + 60
            while (said := issuer.answers(url)) is not None:
                self.supervise()
                assert time.monotonic() < until, said
                time.sleep(0.05)

    def stop(self) -> None:
        """End the issuers."""
        for process in self.issuers:
            process.kill()
            process.wait()
        self._log.close()


def run(
    stack: LocalStack,
    seed: int,
    count: int,
    *,
    plant: str | None = None,
    most_s: float = 3600.0,
    kinds: Sequence[str] = tuple(KINDS),
    transacting: float = 0.25,
) -> Report:
    """Inject so many faults, or as many as fit into `most_s` seconds, and return what was found.

    `transacting` is the share of the calls that are about transactions.
    """
    report, journal, stopping = Report(seed), Journal(), threading.Event()
    place = _Place(stack, plant)
    faults = Faults(stack, place.issuers, place.start, seed, _TIMEOUT_S * 1.2)
    try:
        place.wait_ready()
        intents, roster = Intents(place.settings, stopping), Roster()
        clients = [
            Client(
                f"c{i}",
                seed * 1000 + i,
                place.urls,
                journal,
                intents,
                report.faults,
                stopping,
                roster,
                transacting,
            )
            for i in range(_CLIENTS)
        ]
        begun = time.monotonic()
        for thread in (intents, *clients):
            thread.start()
        try:
            _break_things(place, faults, journal, report, count, begun + most_s, kinds)
            time.sleep(1.0 if plant is None else 0.2)
        finally:
            stopping.set()
            for thread in (*clients, intents):
                thread.join(30)
        report.seconds = time.monotonic() - begun
        if plant is None:
            time.sleep(_TIMEOUT_S * 1.2)  # whoever is stopped wakes
            place.wait_ready()
    finally:
        faults.close()
        place.stop()
    report.violations = violations(place.settings, journal)
    _count(report, journal)
    return report


def _break_things(
    place: _Place,
    faults: Faults,
    journal: Journal,
    report: Report,
    count: int,
    until: float,
    kinds: Sequence[str],
) -> None:
    """Inject one fault after the other, each while a call is in flight; only such ones count."""
    while report.faults.total() < count and time.monotonic() < until:
        place.supervise()
        restarts = report.faults["broker restarted"]
        allowed = [k for k in kinds if k != "broker restarted" or 10 * restarts < report.faults.total()]
        kind = faults.choose(allowed)
        while journal.in_flight == 0 and time.monotonic() < until:
            time.sleep(0.0005)
        counts = journal.in_flight > 0
        faults.inject(kind)
        if counts:
            with journal.lock:
                report.faults[kind] += 1
        time.sleep(0.15)


def _count(report: Report, journal: Journal) -> None:
    report.numbers = len({number for answer in journal.answered for number in answer.granted.items()})
    report.requests = len(journal.answered)
    done = [answer for answer in journal.stepped if answer.was_done]
    started = {(a.step.tenant, a.number) for a in done if a.step.call is Call.START}
    report.transactions = len(started)
    report.committed = len({(a.step.tenant, a.number) for a in done if a.step.call is Call.COMMIT})
    report.steps, report.steps_refused = len(journal.stepped), len(journal.stepped) - len(done)
    report.barriers = len(journal.barred)
    report.verdicts = sum(len(judged.asked) + len(judged.questions) for judged in journal.judged)
    report.lost = journal.lost
