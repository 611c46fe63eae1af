"""All pairs: guard, veto, the phase that it names, and where the attempt before was cut off.

A small oracle says which keys may go, by the rules alone; what the reaper leaves and reports is compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import pytest
from tests.support.execute_stage import Store
from tests.support.task_work import NOW, Issuer, copied, promised, written

from sexton.schemas.events import (
    DeferredIntent,
    DeleteObjects,
    DoneKeys,
    ExpiresAt,
    GenerationGuard,
    Guard,
    KeyProgress,
    NotBeforeGuard,
    OnlyWhileExists,
    Outcome,
    OutcomeKind,
    UnlessWhole,
    Veto,
)
from sexton.schemas.windows import Window
from sexton.streaming_jobs.reaper.recovery.attempts import SentBefore

Says = Literal["goes", "waits", "stops"]

HOUR = timedelta(hours=1)
META, INDEX, CHUNK, NEW = "u/meta.json", "u/index", "u/chunks/000001", "new"
PHASES = ((META,), (INDEX, CHUNK))
KEYS = (META, INDEX, CHUNK)
HALF = json.dumps({"version": 1, "thanos": {"files": [{"rel_path": "lost"}]}}).encode()
WHOLE = json.dumps({"version": 1}).encode()


@dataclass(frozen=True)
class GuardCase:
    """A guard beside a promise, what the issuer knows, and whether the intent passes."""

    guards: Sequence[Guard]
    says: Says
    window: Window | None = None


@dataclass(frozen=True)
class VetoCase:
    """A veto, and what it says to a phase while the commit object is there, or is not."""

    veto: Callable[[Sequence[int] | None], Veto] | None
    says: Callable[[bool], Says]
    there: bool = True
    status: int | None = None
    commit: bytes = HALF


@dataclass(frozen=True)
class Cut:
    """Where the attempt before ended: which keys are gone, and whether a copy says it of the first phase."""

    gone: Sequence[str] = ()
    copied: bool = False
    replayed: bool = False


OWNED = GenerationGuard("tenant", 3)
GUARDS: Mapping[str, GuardCase] = {
    "promise": GuardCase((), "goes"),
    "generation": GuardCase((OWNED,), "goes", Window(0)),
    "stale generation": GuardCase((OWNED,), "stops", Window(0, 1)),
    "past instant": GuardCase((NotBeforeGuard(NOW - HOUR),), "goes"),
    "future instant": GuardCase((NotBeforeGuard(NOW + HOUR),), "waits"),
}
VETOES: Mapping[str, VetoCase] = {
    "none": VetoCase(None, lambda there: "goes"),
    "expires later": VetoCase(lambda phases: ExpiresAt(NOW + HOUR, phases), lambda there: "goes"),
    "has expired": VetoCase(lambda phases: ExpiresAt(NOW - HOUR, phases), lambda there: "stops"),
    "exists": VetoCase(lambda phases: OnlyWhileExists(NEW, phases), lambda there: "goes"),
    "vanished": VetoCase(lambda phases: OnlyWhileExists(NEW, phases), lambda there: "stops", there=False),
    "in doubt": VetoCase(lambda phases: OnlyWhileExists(NEW, phases), lambda there: "waits", status=500),
    "half": VetoCase(lambda phases: UnlessWhole(META, phases), lambda there: "goes"),
    "whole": VetoCase(
        lambda phases: UnlessWhole(META, phases), lambda there: "stops" if there else "goes", commit=WHOLE
    ),
    "unreadable": VetoCase(
        lambda phases: UnlessWhole(META, phases), lambda there: "waits" if there else "goes", commit=b"{"
    ),
}
NAMED: Sequence[Sequence[int] | None] = (None, (0,), (1,))
CUTS: Mapping[str, Cut] = {
    "not cut": Cut(),
    "after the first phase": Cut((META,), replayed=True),
    "after its copy": Cut((META,), copied=True),
    "after its copy, and the commit object is back": Cut((), copied=True),
    "before the receipts": Cut(KEYS, replayed=True),
}


def expected(
    guard: GuardCase, veto: VetoCase, named: Sequence[int] | None, cut: Cut
) -> tuple[Says, set[str]]:
    """How the attempt ends, and which keys are there afterwards."""
    there = {*KEYS} - {*cut.gone}
    if guard.says != "goes":
        return guard.says, there
    for number, keys in enumerate(PHASES):
        if cut.copied and number == 0:
            continue
        asked = veto.veto is not None and (named is None or number in named)
        says = veto.says(META in there) if asked else "goes"
        if says != "goes":
            return says, there
        there -= {*keys}
        if asked and isinstance(veto.veto and veto.veto(None), UnlessWhole):
            there -= {META}  # of half a unit it goes first
    return "goes", there


def attempt(guard: GuardCase, veto: VetoCase, named: Sequence[int] | None, cut: Cut) -> tuple[Any, Store]:
    """What one attempt writes, and the bucket that it leaves."""
    bodies = {key: b"" for key in KEYS if key not in cut.gone} | ({NEW: b""} if veto.there else {})
    if META in bodies:
        bodies[META] = veto.commit
    store = Store(objects={"bucket": set(bodies)}, bodies=bodies, look_status=veto.status, date=lambda: NOW)
    intent = promised(
        DeleteObjects("bucket", PHASES), *guard.guards, vetoes=[veto.veto(named)] if veto.veto else []
    )
    work: dict[str, Any] = {"wall": NOW}
    if cut.replayed:
        work["earlier"] = SentBefore({0: 1000})
    given: bytes | DeferredIntent = intent
    if cut.copied:
        progress = KeyProgress([DoneKeys(OutcomeKind.DELETED, "deleted", [0, 1])], [], None, [])
        given = copied(intent, keys=progress, waiting_since=None)
    (row,) = written(store, given, issuer=Issuer(guard.window), **work)
    return row, store


@pytest.mark.parametrize("veto", VETOES)
@pytest.mark.parametrize("guard", GUARDS)
def test_guards_vetoes_phases_and_crashes_in_all_pairs(guard: str, veto: str) -> None:
    """Nothing goes that a guard or a veto keeps, and what is gone is never called anything else."""
    for named in NAMED:
        for name, cut in CUTS.items():
            case = (guard, veto, named, name)
            row, store = attempt(GUARDS[guard], VETOES[veto], named, cut)
            says, there = expected(GUARDS[guard], VETOES[veto], named, cut)

            assert store.objects["bucket"] & {*KEYS} == there, case
            if says == "waits":
                assert isinstance(row, DeferredIntent), case
                assert row.waiting_since is None, case
                continue
            assert isinstance(row, Outcome), case
            gone = sum(row.counts.get(kind, 0) for kind in ("deleted", "absent"))
            if GUARDS[guard].says == "goes":
                # A commit object that came back and was kept is gone all the same, as its copy says.
                done = 1 if cut.copied and META in there else 0
                assert gone == len(KEYS) - len(there) + done, case
                left = len(there) - done
                assert row.counts.get("cancelled", 0) == left, case
                # Where all is gone nothing is left to cancel: what is gone is never called anything else.
                assert (row.outcome is OutcomeKind.CANCELLED) == (says == "stops" and left > 0), case
            else:
                assert set(row.counts) <= {"stale", "deleted", "absent"}, case
                assert store.sent == [], case
