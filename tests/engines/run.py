"""One run: the engine, installations of Sexton, rounds in the order that a seed deals, what was found."""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.engines.engines import Engines, Gone, Refused
from tests.engines.rounds import KINDS, play
from tests.engines.sextons import Unsettled, servers, started
from tests.engines.world import PREFIX, Database, World
from tests.support.s3_stores import STORES
from tests.support.sequenced import client_of

__all__ = ["Report", "deal", "place", "run"]


@dataclass
class Report:
    """What a run did and found; seconds without the start of the servers."""

    store: str
    seed: int
    rounds: int = 0
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    keys_compared: int = 0
    files_collected: int = 0
    boundary_advances: int = 0
    checkpoints: int = 0
    clones: int = 0
    writers_fenced: int = 0
    puts_held_to_the_end: int = 0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.kinds.items()))
        return (
            f"seed {self.seed} on {self.store}: {self.rounds} rounds ({kinds}) in {self.seconds:.0f} s; "
            f"{self.keys_compared} keys compared, {self.checkpoints} checkpoints and {self.clones} clones, "
            f"{self.writers_fenced} writers fenced, {self.puts_held_to_the_end} held puts let go after the "
            f"delete; {self.files_collected} files collected by our receipts, {self.boundary_advances} "
            f"boundary advances; {len(self.violations)} violations"
        )

    @property
    def figures(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {**vars(self), "kinds": dict(self.kinds)}


@contextmanager
def place(store: str, seed: int, folder: Path, installations: int) -> Iterator[World]:
    """Start a store, servers and installations, with a database that keeps a log and one that does not."""
    for name in ("store", "servers"):
        (folder / name).mkdir()
    bucket = f"engines-{uuid.uuid4().hex[:8]}"
    with STORES[store][0](folder / "store") as running:
        s3 = client_of(running)
        s3.create_bucket(Bucket=bucket)
        with servers(running, folder / "servers") as stack:
            engines = Engines(running, bucket, folder / "engines.log")
            with started(stack, running, bucket, installations) as sextons, closing(engines):
                databases = [Database(f"{PREFIX}logged", True), Database(f"{PREFIX}unlogged", False)]
                yield World(engines, sextons, s3, bucket, random.Random(seed), databases)


def run(store: str, seed: int, rounds: int, folder: Path) -> Report:
    """Play so many rounds and return what was found; the first round that goes wrong is the last."""
    report = Report(store, seed)
    with place(store, seed, folder, 2) as world:
        began = time.monotonic()
        dealt = deal(world.random)
        while report.rounds < rounds and not world.violations:
            kind = next(dealt)
            report.rounds += 1
            try:
                play(kind, world)
            except (Refused, Gone, Unsettled, TimeoutError) as error:
                world.violations.append(f"{type(error).__name__}: {error}")
            report.kinds[kind] += 1
            world.violations[:] = [f"round {report.rounds}, {kind}: {each}" for each in world.violations]
        if not world.violations:
            for database in world.databases:
                world.verify(database)
        report.seconds = time.monotonic() - began
        _sum_up(report, world)
    return report


def deal(drawn: random.Random) -> Iterator[str]:
    """Yield kinds of rounds, dealt like cards: each as often as `KINDS` says before any comes again."""
    while True:
        hand = [kind for kind, times in KINDS.items() for _ in range(times)]
        drawn.shuffle(hand)
        yield from hand


def _sum_up(report: Report, world: World) -> None:
    report.keys_compared, report.boundary_advances = world.keys_compared, world.advances
    report.checkpoints, report.clones = world.checkpoints, world.clones
    report.writers_fenced, report.puts_held_to_the_end = world.fenced, world.held_to_the_end
    report.files_collected = sum(sexton.files_deleted for sexton in world.sextons)
    report.violations += world.violations
    if not report.files_collected:
        report.violations.append("nothing was collected, so nothing was shown")
    if report.kinds["put of a manifest held"] and not report.puts_held_to_the_end:
        report.violations.append("no put was held until its file was gone, so nothing was shown")
