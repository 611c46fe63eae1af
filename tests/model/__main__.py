"""Larger worlds than the tests search, some minutes of work: `make model`. Exits 1 when a property breaks."""

from __future__ import annotations

import sys
import time

from tests.model.explore import explore
from tests.model.world import Budget, Handle, Record, Setup

B = Handle("b", "attach", "b1", tries=1)
C = Handle("c", "attach", "c1", tries=1)
AGAIN = Handle("a", "re_attach", "a2", tries=1)
RETRIES = B._replace(tries=2)

LARGE = {
    "a retry and a rival, Redis lies": Setup((RETRIES, C), Budget(lies=1), store=False),
    "two issuers, Redis lies twice, answers lost": Setup((B, C), Budget(lies=2, losses=1), store=False),
    "transactions and a claim before the issue": Setup(
        (B,), Budget(barriers=3, crashes=2, losses=1, lies=1), records=(Record(2),), transactional=True
    ),
    "a successor that retries, the reaper crashes": Setup((RETRIES,), Budget(barriers=2, crashes=1)),
    "a restart races a move, an answer lost": Setup((B, AGAIN), Budget(barriers=1, losses=1), most_calls=1),
    "a restart races a move, Redis lies": Setup((B, AGAIN), Budget(lies=1)),
    "index PUTs that land late, a restart races a move": Setup(
        (B, AGAIN), Budget(barriers=1, crashes=1, unknown_puts=2), most_calls=1
    ),
    "two moves": Setup((B, C), Budget(barriers=1)),
    "a restart races a move, the reaper crashes": Setup(
        (B, AGAIN), Budget(barriers=1, crashes=1), most_calls=1
    ),
}


def main() -> int:
    """Search every world and print what was found; return the exit code."""
    broken, states = 0, 0
    for name, setup in LARGE.items():
        started = time.monotonic()
        found = explore(setup)
        states += found.states
        print(f"{name}: {found} ({time.monotonic() - started:.0f} s)", flush=True)
        broken += found.broken is not None
    print(f"{states} states in all, {broken} worlds with a violation")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
