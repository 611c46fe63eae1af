"""The collector `transactions`: what rejected transactions wrote, once every upload in their name has ceased.

Each is asked for under the guard that it is rejected, as `DeletePrefix` of what carries its number. Once a
listing of its own, which began after the acknowledgement, finds nothing of one, the issuer is told: outcomes
say what was deleted, and not that nothing is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from sexton.issuer.api import Issuer
from sexton.issuer.client import TransactionFact, TransactionStatus, TransactionSubject
from sexton.schemas.actions import DeleteMode, DeletePrefix
from sexton.schemas.errors import UsageError
from sexton.schemas.events import NumberPlace
from sexton.schemas.guards import TransactionGuard, TransactionState
from sexton.schemas.tenant_prefix import TenantPrefix
from sexton.storage import Listed
from sexton.streaming_jobs.collectors.room import Body, Found, Gone, PlainRoom, Scope, Sources, Unresolved

__all__ = ["ROOM", "Counted", "Rejected", "Transactions", "TransactionsPlan"]

CAUSE = "rejected-transaction"
_Name = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A rejected transaction whose uploads have ceased, since a log offset.

    `home` is its tenant's prefix, `prefix` and `suffix` are what its own keys have.
    """

    tenant: str
    transaction: int
    since: int
    dropped: bool
    home: str
    prefix: str
    suffix: str | None

    @property
    def name(self) -> _Name:
        """Tenant and number."""
        return self.tenant, self.transaction

    @property
    def text(self) -> str:
        """Which, and since which log offset its uploads have ceased."""
        return f"transaction {self.transaction}, rejected and acknowledged at log offset {self.since}"


@dataclass(frozen=True, slots=True)
class Counted:
    """Objects of one transaction, or of all of a tenant (None); parts of the same add up."""

    tenant: str
    transaction: int | None
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TransactionsPlan:
    """All such transactions as of before the listing, and those of which nobody can tell what is theirs."""

    rejected: Sequence[Rejected]
    unresolved: Sequence[Unresolved] = field(default_factory=list)

    def fold(self) -> TransactionsFold:
        """Return a new fold."""
        return TransactionsFold(self.rejected)


class TransactionsFold:
    """Counts the objects of each transaction, and of their tenants."""

    def __init__(self, rejected: Sequence[Rejected]) -> None:
        self._homes = {each.home: each.tenant for each in rejected}
        self._folders = {each.prefix: each for each in rejected if each.suffix is None}
        self._suffixes: dict[str, dict[str, Rejected]] = {}
        for each in rejected:
            if each.suffix is not None:
                self._suffixes.setdefault(each.prefix, {})[each.suffix] = each
        self._counts: dict[_Name, tuple[int, int]] = {}

    def add(self, entry: Listed) -> Iterable[Counted]:
        """Count an object; as there are no more transactions than the plan has, nothing is whole before."""
        for name in self._owners(entry.key):
            objects, size = self._counts.get(name, (0, 0))
            self._counts[name] = (objects + 1, size + entry.size)
        return ()

    def end(self) -> Iterable[Counted]:
        """Return the counts."""
        counts, self._counts = self._counts, {}
        return [Counted(*name, *numbers) for name, numbers in counts.items()]

    def _owners(self, key: str) -> Iterator[_Name]:
        """Yield the tenant, and each transaction by whose intent the key would go."""
        suffix = key[key.rfind(".") :]
        at = key.find("/")
        while at >= 0:
            folder = key[: at + 1]
            if folder in self._homes:
                yield self._homes[folder], None
            if folder in self._folders:
                yield self._folders[folder].name
            if suffix in self._suffixes.get(folder, ()):
                yield self._suffixes[folder][suffix].name
            at = key.find("/", at + 1)


class Transactions(PlainRoom):
    """The room."""

    name = "transactions"
    summary = "what rejected transactions have left behind"
    prefix_help = "prefix of a tenant's objects, with {tenant} as a whole segment; ends in /"
    prefix_example = "{tenant}/"
    plan_type = TransactionsPlan
    part_type = Counted

    def listed(self, scope: Scope) -> str:
        """Return what all tenants' prefixes begin with; raises UsageError for a prefix without a tenant."""
        return TenantPrefix.parse(scope.prefix).before

    def plan(self, scope: Scope, sources: Sources) -> TransactionsPlan:
        """Ask which ones are rejected and acknowledged; raises UsageError for another prefix."""
        template = TenantPrefix.parse(scope.prefix)
        _check_same(template, sources.settings.reaper_tenant_prefix)
        unfinished = sources.issuer.unfinished_transactions()
        subjects = [TransactionSubject(each.tenant, each.transaction, 0) for each in unfinished]
        facts = sources.issuer.validate(subjects).transactions if subjects else {}
        rejected: list[Rejected] = []
        unresolved: list[Unresolved] = []
        for subject, fact in facts.items():
            if fact.status is not TransactionStatus.REJECT_ACKNOWLEDGED:
                continue  # something may still be written in its name, or it was collected meanwhile
            found = _of(subject, fact, template)
            if isinstance(found, Rejected):
                rejected.append(found)
            else:
                unresolved.append(found)
        return TransactionsPlan(rejected, unresolved)

    def sift(self, parts: Sequence[Counted], sources: Sources) -> list[Counted]:
        """Return all parts: the plan has asked."""
        return list(parts)

    def decide(self, plan: TransactionsPlan, scope: Scope, parts: Sequence[Counted]) -> list[Found]:
        """Return a finding for each transaction that has objects; pure."""
        sums = _sums(parts)
        return [
            _found(each, scope, *counts)
            for each in plan.rejected
            if (counts := sums.get(each.name)) is not None
        ]

    def gone(self, plan: TransactionsPlan, scope: Scope, parts: Sequence[Counted]) -> list[Gone]:
        """Return the transactions of which nothing is listed; pure.

        Proven only where their tenant is at home: who lists another bucket would find nothing of any.
        """
        left = _sums(parts)
        return [
            _gone(each, at_home=each.dropped or (each.tenant, None) in left)
            for each in plan.rejected
            if each.name not in left
        ]


def _check_same(template: TenantPrefix, of_reaper: str | None) -> None:
    """Refuse a prefix that is not the reaper's: where nothing lies, nothing would seem to be left."""
    if of_reaper is not None and of_reaper != template.text:
        raise UsageError(
            f"--prefix is not where tenants' objects lie: {template.text!r}",
            hint=f"SEXTON_REAPER_TENANT_PREFIX says {of_reaper!r}",
        )


def _of(subject: TransactionSubject, fact: TransactionFact, template: TenantPrefix) -> Rejected | Unresolved:
    tenant, number = subject.tenant, subject.transaction
    prefix = template.of(tenant)
    if prefix is None:
        why = f"transaction {number}: a tenant of this name has no prefix of its own"
        return Unresolved(CAUSE, tenant, why)
    if fact.place == NumberPlace.FIRST:
        return Rejected(tenant, number, fact.changed, fact.dropped, prefix, f"{prefix}{number}/", None)
    return Rejected(tenant, number, fact.changed, fact.dropped, prefix, prefix, f".{number}")


def _sums(parts: Sequence[Counted]) -> dict[_Name, tuple[int, int]]:
    sums: dict[_Name, tuple[int, int]] = {}
    for part in parts:
        objects, size = sums.get((part.tenant, part.transaction), (0, 0))
        sums[part.tenant, part.transaction] = (objects + part.objects, size + part.bytes)
    return sums


def _found(each: Rejected, scope: Scope, objects: int, size: int) -> Found:
    def body(date: datetime) -> Body:
        # No instant binds it: nobody writes in its name any more.
        guard = TransactionGuard(each.tenant, each.transaction, TransactionState.REJECTED)
        action = DeletePrefix(scope.bucket, each.prefix, suffix=each.suffix)
        return Body(each.tenant, CAUSE, (guard,), action)

    identity = (CAUSE, each.tenant, str(each.transaction), scope.bucket, each.prefix, each.suffix or "")
    whole = each.suffix is None
    way = DeleteMode.HIDE.value
    return Found(CAUSE, each.prefix, identity, each.text, objects, size, body, whole=whole, way=way)


def _gone(each: Rejected, *, at_home: bool) -> Gone:
    if at_home:
        return Gone(CAUSE, each.prefix, each.tenant, each.text, partial(_collected, each))
    detail = f"{each.text}; no object of its tenant is listed: these may lie elsewhere"
    return Gone(CAUSE, each.prefix, each.tenant, detail, None)


def _collected(each: Rejected, issuer: Issuer) -> int:
    return issuer.collect_transaction(each.tenant, each.transaction)


ROOM = Transactions()
