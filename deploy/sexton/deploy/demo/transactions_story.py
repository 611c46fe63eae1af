"""The story of transactions: a relocation, and the node that does not know that it is over (a zombie).

The number of a transaction is the end of each key: `tenants/quarry/layer-1.2`; the index of one names its
objects, and what it has kept of the one before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sexton.deploy.demo.checks import COMMON, Check, stayed, went
from sexton.deploy.demo.evidence import Evidence
from sexton.deploy.demo.story import Story
from sexton.issuer.client import IssuerClient
from sexton.producers import CommitRejected, Committed, Sexton, Transaction
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.collectors.decision import Options
from sexton.streaming_jobs.collectors.driver import Driver
from sexton.streaming_jobs.collectors.registry import ROOMS
from sexton.streaming_jobs.collectors.report import Report
from sexton.streaming_jobs.collectors.room import Scope, Sources

__all__ = ["TransactionsStory"]

_TENANT = "quarry"
_TEMPLATE = "tenants/{tenant}/"
_PREFIX = _TEMPLATE.format(tenant=_TENANT)
_SHARE = 1.0  # of the demo's few objects a rejected transaction's may be more than a fifth


@dataclass
class TransactionsStory(Story):
    """Plays the story on an installation; `reap` runs the reaper until everything there is processed."""

    zombies: list[str] = field(default_factory=list)
    too_early: Report | None = None
    collected: Report | None = None

    @staticmethod
    def prepared(settings: Settings) -> Settings:
        """Return the settings with which the story is played: they say where tenants' objects lie."""
        return settings.model_copy(update={"reaper_tenant_prefix": _TEMPLATE})

    def play(self) -> None:
        """Tell the whole story; `evidence` and `checks` are for afterwards."""
        with (
            Sexton.connect(node="node-A", settings=self.settings) as a,
            Sexton.connect(node="node-B", settings=self.settings) as b,
        ):
            first = self._first(a)
            zombie = self._rewrite(a)
            second = self._relocation(b, first)
            self._reap()
            self._zombie(zombie, second)
            self._reap()
            self._collection(zombie)
            self._reap()
            self._end()

    def checks(self) -> Mapping[str, Check]:
        """Return every check of the story, by what it promises."""
        return {
            "what the relocation replaced is gone": lambda found: went(found, self.asked["relocation"]),
            "what the zombie put on its deadlist stays": lambda found: stayed(
                found, self.asked["zombie"], "a rejected transaction's delete"
            ),
            "nothing of the zombie was asked for before its uploads had ceased": self._not_early,
            "after that, all that the zombie wrote is gone": self._zombie_gone,
            **COMMON,
        }

    # --- the chapters ---------------------------------------------------------------------------------------

    def _first(self, node: Sexton) -> list[str]:
        self.narrator.chapter("Node A writes the tenant's first transaction")
        with self._started(node) as txn:
            layers = [self._put(txn, f"layer-{n}") for n in range(4)]
            self._commit(txn, layers)
        self.narrator.say(f"transaction {txn.id} is committed: an index and {len(layers)} layers are visible")
        return layers

    def _rewrite(self, node: Sexton) -> Transaction:
        self.narrator.chapter("Node A starts to rewrite them, and is paused half way")
        txn = self._started(node)
        self.zombies = [self._put(txn, f"layer-{n}") for n in range(4)]
        self.narrator.say(f"transaction {txn.id} builds on {txn.last_committed}; nobody sees its objects yet")
        return txn

    def _relocation(self, node: Sexton, before: list[str]) -> list[str]:
        self.narrator.chapter("The tenant is relocated to node B")
        with self._started(node) as txn:
            self.narrator.say(
                f"transaction {txn.id} builds on {txn.last_committed} as well: its start rejects node A's"
            )
            kept, replaced = before[2:], before[:2]
            layers = [self._put(txn, "layer-0-1"), *kept]
            old_index = self.index_keys[_TENANT]
            txn.delete(self.bucket, [*replaced, old_index])
            committed = self._commit(txn, layers)
        self.asked["relocation"] = committed.intent_ids
        self.narrator.say(
            f"index, then a deadlist of {len(replaced) + 1} keys, then the question: committed at log offset"
            f" {committed.log_offset}"
        )
        return layers

    def _zombie(self, txn: Transaction, live: list[str]) -> None:
        self.narrator.chapter("Node A wakes up, and still believes in its transaction")
        kept, index = live[1:], txn.key("index")
        txn.delete(self.bucket, kept)
        self.narrator.say(f"on its deadlist are {len(kept)} layers that node B's index names")
        try:
            txn.commit(lambda: self._put_index(index, self.zombies))
        except CommitRejected as error:
            self.asked["zombie"] = self._asked_under(txn.id)
            self.zombies.append(index)
            self.narrator.say(f"it asks to commit, and learns it: {error}")

    def _collection(self, txn: Transaction) -> None:
        self.narrator.chapter("What the rejected transaction wrote is garbage, but not yet safe to delete")
        self.too_early = self._collect()
        self.narrator.say("the collector asks for nothing: an upload of node A may still be on its way")
        offset = txn.acknowledge()
        self.narrator.say(f"node A says that its uploads have ceased: acknowledged at log offset {offset}")
        self.collected = self._collect()
        self.narrator.say("now the collector asks for all that carries its number")

    def _end(self) -> None:
        self._collect()
        with IssuerClient.of(self.settings) as issuer:
            found = issuer.transactions(_TENANT)
        states = (
            ", ".join(f"{each.transaction} {each.status}" for each in found.transactions) if found else "-"
        )
        self.narrator.say(f"a listing finds nothing of it any more; the log says: {states}")

    # --- what services do -----------------------------------------------------------------------------------

    def _started(self, node: Sexton) -> Transaction:
        txn = node.transaction(_TENANT, prefix=_PREFIX)
        self.granted.append((_TENANT, txn.id))
        return txn

    def _put(self, txn: Transaction, name: str) -> str:
        key = txn.key(name)
        self._put_object(key, f"data of {key}")
        return key

    def _commit(self, txn: Transaction, layers: list[str]) -> Committed:
        index = txn.key("index")
        committed = txn.commit(lambda: self._put_index(index, layers))
        self.index_keys[_TENANT] = index
        return committed

    def _put_index(self, index: str, layers: Iterable[str]) -> None:
        self._put_object(index, json.dumps({"layers": list(layers)}))

    def _collect(self) -> Report:
        options = Options(Scope(self.bucket, _TEMPLATE), emit=True, max_share=_SHARE)
        with IssuerClient.of(self.settings) as issuer:
            return Driver(ROOMS["transactions"], Sources(self.settings, issuer, self._store), options).run()

    # --- checks ---------------------------------------------------------------------------------------------

    def _asked_under(self, number: int) -> tuple[str, ...]:
        intents = self.evidence().intents
        return tuple(
            i.intent_id for i in intents if any(getattr(g, "transaction", None) == number for g in i.guards)
        )

    def _not_early(self, _: Evidence) -> Iterable[str]:
        if self.too_early is None or self.too_early.intents:
            yield f"the collector found something to ask for: {self.too_early}"

    def _zombie_gone(self, evidence: Evidence) -> Iterable[str]:
        for key in self.zombies:
            if key in evidence.left:
                yield f"still in the bucket: {key}"
        if self.collected is None or not self.collected.intents:
            yield "the collector asked for nothing"
