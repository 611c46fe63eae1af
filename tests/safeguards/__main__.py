"""Remove safeguards one by one and see the tests that they name fail: `make test-safeguards`.

    python -m tests.safeguards [--seed TEXT] [--share 0.1] [--workers 2] [NAME...]

A NAME is a part of a line's name. Exits 1 when a safeguard can be removed unseen.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue

from tests.safeguards.lines import Line, load, node_ids
from tests.safeguards.trial import Copy, Run, Verdict, judge

_TAIL = 40  # lines of what a run printed


def chosen(lines: Sequence[Line], names: Sequence[str], seed: str, share: float) -> list[Line]:
    """Return the lines whose name holds one of the names; of those a share, drawn with a seed."""
    found = [line for line in lines if not names or any(name in line.name for name in names)]
    if share >= 1:
        return found
    drawn = set(random.Random(seed).sample(range(len(found)), math.ceil(share * len(found))))
    return [line for number, line in enumerate(found) if number in drawn]


def by_file(lines: Sequence[Line]) -> Iterator[list[str]]:
    """Yield the tests that the lines name, one list for each file of them."""
    tests = sorted({test for line in lines for test in node_ids(line.tests)})
    for _, group in groupby(tests, key=lambda test: test.partition("::")[0]):
        yield list(group)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the lines and print what came of each; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.safeguards", description=__doc__)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(arguments)
    lines = chosen(load(), options.names, options.seed, options.share)
    print(f"{len(lines)} safeguards, seed {options.seed}, share {options.share:g}", flush=True)
    with tempfile.TemporaryDirectory(prefix="sexton-safeguards-") as folder:
        return _try_all(lines, Path(folder), options.workers)


def _try_all(lines: Sequence[Line], folder: Path, workers: int) -> int:
    copies: SimpleQueue[Copy] = SimpleQueue()
    for number in range(workers):
        copies.put(Copy(folder / str(number)))

    def untouched(tests: Sequence[str]) -> Run:
        copy = copies.get()
        try:
            return copy.run(tests)
        finally:
            copies.put(copy)

    def removed(line: Line) -> Verdict:
        copy = copies.get()
        try:
            verdict = judge(line, copy.without(line))
        finally:
            copies.put(copy)
        word = "UNSEEN" if verdict.fault else "seen"
        print(f"{word:6} {verdict.run.seconds:5.0f} s  {line.name}", flush=True)
        return verdict

    with ThreadPoolExecutor(workers) as pool:
        # A test that fails anyhow would prove nothing.
        runs = pool.map(untouched, by_file(lines))
        verdicts = list(pool.map(removed, lines))
        red = [run for run in runs if run.failed or not run.passed]
    unseen = [verdict for verdict in verdicts if verdict.fault]
    for verdict in unseen:
        print(f"\n{verdict.line.name}: {verdict.fault}", *_tail(verdict.run), sep="\n")
    for run in red:
        print("\nthese fail with every safeguard in place:", *_tail(run), sep="\n")
    print(f"\n{len(lines) - len(unseen)} of {len(lines)} removed safeguards were seen")
    return 1 if unseen or red else 0


def _tail(run: Run) -> list[str]:
    return run.text.splitlines()[-_TAIL:]


if __name__ == "__main__":
    sys.exit(main())
