"""Judging transactions: what is garbage once one is committed, and all that a rejected one wrote.

A deadlist passes where it stands in the window of its committed transaction. Objects of a rejected one go
once every upload in its name has ceased, and only those whose key says that they are its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from sexton.issuer.client import TransactionFact, TransactionStatus, TransactionSubject
from sexton.schemas.events import VerdictResult
from sexton.schemas.guards import TransactionGuard, TransactionState
from sexton.streaming_jobs.reaper.guards.room import (
    MET,
    Case,
    Never,
    NotYet,
    Said,
    of_another_topic,
    unknown_tenant,
)
from sexton.streaming_jobs.reaper.guards.transaction_keys import not_its_own

__all__ = ["FORGOTTEN", "subjects", "verdict"]

FORGOTTEN = "transaction-forgotten"
"""The reason of an intent that nobody can judge any more: no intent without an outcome should get it."""

_REJECTED = (
    TransactionStatus.REJECT_PENDING,
    TransactionStatus.REJECT_ACKNOWLEDGED,
    TransactionStatus.COLLECTED,
)
_CEASED = (TransactionStatus.REJECT_ACKNOWLEDGED, TransactionStatus.COLLECTED)


def subjects(guard: TransactionGuard, partition: int) -> Iterable[TransactionSubject]:
    """Return what the issuer has to be asked about a guard of an intent that stands in this partition."""
    return (TransactionSubject(guard.tenant, guard.transaction, partition),)


def verdict(guard: TransactionGuard, case: Case) -> Said:
    """Return whether the transaction ended as the guard says, and the intent is one that it lets pass."""
    if elsewhere := of_another_topic(case):
        return elsewhere
    (subject,) = subjects(guard, case.position.partition)
    fact = case.facts.transactions.get(subject)
    if fact is None:
        return unknown_tenant(guard.tenant)
    name = f"transaction {guard.transaction} of {guard.tenant!r}"
    if fact.status is TransactionStatus.NEVER_STARTED:
        return Never("never-started", f"{name} was never started")
    if fact.status is TransactionStatus.IMPORTED:
        return Never("imported", f"{name} is from before the tenant's import: how it ended is not known")
    if fact.status is TransactionStatus.FORGOTTEN:
        return _forgotten(name, guard, fact, case)
    if guard.state is TransactionState.COMMITTED:
        return _committed(name, fact, case.position.offset)
    return _rejected(name, guard, fact, case)


def _forgotten(name: str, guard: TransactionGuard, fact: TransactionFact, case: Case) -> Said:
    """Return that nobody can tell; a letter of before may: an end is final, and a pass stays a pass."""
    if not case.passed:
        detail = f"{name} was started, and how it ended is forgotten"
        return Never(FORGOTTEN, detail, VerdictResult.REFUSED)
    if guard.state is TransactionState.REJECTED and (strange := _strange(name, guard, fact, case)):
        return strange
    return MET


def _committed(name: str, fact: TransactionFact, offset: int) -> Said:
    """Return whether it is committed, and the intent was written by it before it asked for that."""
    window = fact.window
    assert window is not None, f"{name} is {fact.status.value}, and has no window"
    if offset < window.start:
        return Never("claimed-early", f"{name} was started at offset {window.start}")
    if fact.status in _REJECTED:
        return Never("transaction-rejected", f"{name} is {_since(fact)}")
    if fact.status is TransactionStatus.OPEN:
        if fact.dropped:
            return Never("tenant-dropped", f"{name} was open when its tenant was dropped")
        return _waits(name, fact)
    # The end is fixed by the commit: whoever writes on after it was asked for is not covered by it.
    if window.covers(offset):
        return MET
    return Never(
        "deadlist-closed", f"{name} was committed with a deadlist that ends at offset {window.until}"
    )


def _rejected(name: str, guard: TransactionGuard, fact: TransactionFact, case: Case) -> Said:
    """Return whether it is rejected, no upload in its name is under way, and all that goes is its own."""
    if fact.status is TransactionStatus.COMMITTED:
        return Never("transaction-committed", f"{name} is {_since(fact)}")
    if strange := _strange(name, guard, fact, case):
        return strange
    # Collected, too: what has passed once passes again.
    return MET if fact.status in _CEASED else _waits(name, fact)


def _strange(name: str, guard: TransactionGuard, fact: TransactionFact, case: Case) -> Never | None:
    """Return that the intent would delete what need not be this transaction's, None if all is its own."""
    if case.tenant_prefix is None:
        detail = "SEXTON_REAPER_TENANT_PREFIX does not say where tenants' objects lie"
        return Never("tenant-prefix-unset", detail, VerdictResult.REFUSED)
    prefix = case.tenant_prefix.of(guard.tenant)
    if prefix is None:
        detail = f"a tenant of this name has no prefix of its own: {guard.tenant!r}"
        return Never("tenant-without-prefix", detail, VerdictResult.REFUSED)
    found = not_its_own(case.action, prefix, fact.place, guard.transaction)
    if found is None:
        return None
    detail = f"{name} has its number {fact.place} below {prefix!r}, and may not delete: {found}"
    return Never("not-its-own", detail, VerdictResult.REFUSED)


def _waits(name: str, fact: TransactionFact) -> NotYet:
    return NotYet(f"transaction-{fact.status.value}", f"{name} is {_since(fact)}")


def _since(fact: TransactionFact) -> str:
    return f"{fact.status.value} since log offset {fact.changed}"
