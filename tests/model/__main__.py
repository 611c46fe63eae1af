"""Larger worlds than the tests search, some minutes of work: `make model`. Exits 1 when a property breaks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

from tests.model import phase_properties, sequenced_properties, transaction_properties
from tests.model.explore import explore
from tests.model.phase_world import Budget as PhaseBudget
from tests.model.phase_world import PhaseSetup
from tests.model.search import Found
from tests.model.sequenced_world import Budget as SequencedBudget
from tests.model.sequenced_world import SequencedSetup
from tests.model.transaction_world import Budget as TransactionBudget
from tests.model.transaction_world import TransactionSetup
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
    "a restart races a move": Setup((B, AGAIN), Budget(barriers=1)),
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
LARGE_PHASES = {
    "a pause, two crashes, two replies lost": PhaseSetup(
        PhaseBudget(4, 4, crashes=2, losses=2, copies=4), paused=True, ahead=1
    ),
    "a pause, vetoes of both phases, everything goes wrong": PhaseSetup(
        PhaseBudget(3, 3, turns=3, unknown=1, losses=1, crashes=1, copies=3), paused=True, veto=(0, 1)
    ),
}

LARGE_TRANSACTIONS = {
    "two nodes, two transactions each": TransactionSetup("abab", TransactionBudget()),
    "two nodes, two transactions each, a call lands late": TransactionSetup(
        "abab", TransactionBudget(losses=1), drops=(True,)
    ),
    "three nodes": TransactionSetup("abc", TransactionBudget()),
    "a twin, a crash, an unknown upload, another node": TransactionSetup(
        "ab", TransactionBudget(resumes=1, crashes=1, unknown=1)
    ),
    "unknown uploads, stray intents, collected": TransactionSetup(
        "ab", TransactionBudget(unknown=1, strays=1, listings=2), drops=(False,)
    ),
}

LARGE_SEQUENCED = {
    "two tasks, two collectors, a stalled writer": SequencedSetup(
        (1, 2), SequencedBudget(plans=2), tasks=2, collectors=2
    ),
    "two tasks, a stalled writer, a crash, an answer lost": SequencedSetup(
        (1, 2), SequencedBudget(unknown=1, crashes=1), tasks=2
    ),
}


def main() -> int:
    """Search every world and print what was found; return the exit code."""
    searches: dict[str, Callable[[], Found]] = {name: partial(explore, each) for name, each in LARGE.items()}
    searches |= {name: partial(phase_properties.explore, each) for name, each in LARGE_PHASES.items()}
    searches |= {
        name: partial(transaction_properties.explore, each) for name, each in LARGE_TRANSACTIONS.items()
    }
    searches |= {name: partial(sequenced_properties.explore, each) for name, each in LARGE_SEQUENCED.items()}
    broken, states = 0, 0
    for name, searched in searches.items():
        started = time.monotonic()
        found = searched()
        states += found.states
        print(f"{name}: {found} ({time.monotonic() - started:.0f} s)", flush=True)
        broken += found.broken is not None
    print(f"{states} states in all, {broken} worlds with a violation")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
