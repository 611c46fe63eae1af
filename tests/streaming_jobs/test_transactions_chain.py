"""Transactions on the whole chain: Kafka, an issuer with its Redis, a running reaper, and a store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.conftest import Cli
from tests.support.chain import Chain
from tests.support.running import Running, running

from sexton.producers import Sexton
from sexton.schemas import events, records
from sexton.schemas.errors import IssuerUnavailable, RequestRefused
from sexton.schemas.events import NumberPlace, PartitionOffsets, TransactionState
from sexton.storage import ObjectStore
from sexton.streaming_jobs.collectors.decision import Options
from sexton.streaming_jobs.collectors.driver import Driver
from sexton.streaming_jobs.collectors.room import Scope, Sources
from sexton.streaming_jobs.collectors.transactions.room import ROOM as COLLECTOR

pytestmark = [pytest.mark.real, pytest.mark.spark]

COMMITTED, REJECTED = TransactionState.COMMITTED, TransactionState.REJECTED
QUICK: dict[str, Any] = {
    "reaper_defer_delays_s": (0.2, 0.4),
    "reaper_tenant_prefix": "tenants/{tenant}/",
}


def deadlist(chain: Chain, tenant: str, number: int, *keys: str) -> events.DeletionIntent:
    """An intent of a transaction that wants to be committed."""
    return chain.intent(tenant, None, keys, guards=(events.TransactionGuard(tenant, number, COMMITTED),))


def leavings(chain: Chain, tenant: str, number: int, action: events.Action) -> events.DeletionIntent:
    """An intent for what a rejected transaction wrote."""
    return chain.intent(
        tenant, None, (), guards=(events.TransactionGuard(tenant, number, REJECTED),), action=action
    )


def behind(chain: Chain) -> PartitionOffsets:
    """Behind all that stands in the first partition of intents."""
    ends = [message.offset() or 0 for message in chain.messages(records.INTENTS) if message.partition() == 0]
    return PartitionOffsets(chain.topic_id(records.INTENTS), (max(ends) + 1,))


def reasons(chain: Chain) -> dict[str, tuple[str, str]]:
    """Outcome and reason of each intent that has one."""
    return {o.intent_id: (o.outcome.value, o.verdict.reason) for o in chain.outcomes()}


def ended(chain: Chain, reaper: Running, intents: Sequence[events.DeletionIntent]) -> list[tuple[str, str]]:
    """Wait for the outcomes of intents and return them."""
    reaper.until(lambda: {each.intent_id for each in intents} <= reasons(chain).keys())
    found = reasons(chain)
    return [found[each.intent_id] for each in intents]


def waited(chain: Chain, reaper: Running, intent: events.DeletionIntent, attempts: int) -> str:
    """Wait until an intent has been put off so often, and return the reason and detail of the last time."""

    def copies() -> list[events.DeferredIntent]:
        raw = chain.codec.encode(intent)
        return [copy for copy in chain.deferred() if copy.raw_value == raw and copy.attempt >= attempts]

    reaper.until(copies)
    assert intent.intent_id not in reasons(chain)
    last = max(copies(), key=lambda copy: copy.attempt)
    return f"{last.reason}: {last.detail}"


def holding(chain: Chain) -> Producer:
    """Another client with an open transaction in every partition of intents: nobody reads beyond it."""
    topic = chain.settings.topic(records.INTENTS)
    holder = Producer(chain.settings.kafka(**{"transactional.id": "holds"}))
    holder.init_transactions(20)
    holder.begin_transaction()
    for partition in holder.list_topics(topic, timeout=10).topics[topic].partitions:
        holder.produce(topic, b"withdrawn", partition=partition)
    assert holder.flush(10) == 0
    return holder


def replaced_with_the_sdk(chain: Chain, store: ObjectStore, reaper: Running, tenant: str, old: str) -> None:
    """Write an object anew in a transaction of the SDK; its commit goes once its deadlist can be seen."""
    settings = chain.settings.model_copy(update={"issuer_timeout_s": 3.0})
    with Sexton.connect("target", settings) as sexton:
        txn = sexton.transaction(tenant, prefix=f"tenants/{tenant}/")
        new = txn.key("anew")
        store.put(chain.bucket, new, b"x")
        txn.delete(chain.bucket, [old])
        holder = holding(chain)
        with pytest.raises(IssuerUnavailable):
            txn.commit(lambda: store.put(chain.bucket, txn.key("index"), new.encode()))
        with chain.issuer() as issuer:
            found = issuer.transactions(tenant)
        assert found is not None
        assert found.last_committed == txn.last_committed
        assert old in list(store.list_keys(chain.bucket, "tenants/"))
        holder.abort_transaction(20)
        (asked,) = txn.commit().intent_ids
    reaper.until(lambda: asked in reasons(chain))
    assert reasons(chain)[asked] == ("deleted", "pass")


@pytest.mark.slow
def test_m_1_m_9_m_15_two_nodes_and_one_commit(chain: Chain, store: ObjectStore) -> None:
    """M-1, M-3, M-5, M-6, M-9, M-15, M-16: of two that are open one is committed; each deletes its own."""
    t, below = "moss", "tenants/moss/"
    for key in ("seg.1", "old.1", "seg.2", "seg.3", "24/seg.2"):
        store.put(chain.bucket, below + key, b"x")
    store.put(chain.bucket, "tenants/fern/seg.2", b"x")
    own = events.DeletePrefix(chain.bucket, below, suffix=".2")
    with chain.issuer() as issuer, running(chain, **QUICK) as reaper:
        issuer.start_transaction("source", t, number_place=NumberPlace.LAST)
        issuer.commit_transaction("source", t, 1)
        issuer.import_transactions([events.ImportedTransactions("fern", 5, 4, NumberPlace.LAST)])
        assert issuer.start_transaction("source", t).last_committed == 1
        lost = deadlist(chain, t, 2, below + "seg.1")
        chain.emit(lost)
        assert issuer.start_transaction("target", t).last_committed == 1  # and 2 is doomed
        kept, gone = deadlist(chain, t, 3, below + "old.1"), leavings(chain, t, 2, own)
        refused = [
            leavings(chain, t, 2, events.DeleteObjects(chain.bucket, ((below + "seg.3",),))),
            leavings(chain, t, 2, events.DeleteObjects(chain.bucket, ((below + "24/seg.2",),))),
            leavings(chain, t, 2, events.DeleteObjects(chain.bucket, (("tenants/fern/seg.2",),))),
            leavings(chain, t, 2, events.DeletePrefix(chain.bucket, "tenants/", suffix=".2")),
        ]
        imported = leavings(chain, "fern", 2, events.DeletePrefix(chain.bucket, "tenants/fern/", suffix=".2"))
        chain.emit(kept, gone, *refused, imported)

        assert ended(chain, reaper, refused) == [("refused", "not-its-own")] * 4
        assert ended(chain, reaper, [lost, imported]) == [
            ("stale", "transaction-rejected"),
            ("stale", "imported"),
        ]
        open_ = waited(chain, reaper, kept, attempts=4)  # longer than both delays
        assert open_.startswith("transaction-open: transaction 3 of 'moss' is open since log offset ")
        assert waited(chain, reaper, gone, attempts=4).startswith("transaction-reject-pending: ")

        with pytest.raises(RequestRefused) as met:
            issuer.commit_transaction("source", t, 2)
        assert met.value.type == "transaction-rejected"
        issuer.commit_transaction("target", t, 3, behind(chain))
        late = deadlist(chain, t, 3, below + "seg.1")
        chain.emit(late)
        assert ended(chain, reaper, [kept, late]) == [("deleted", "pass"), ("stale", "deadlist-closed")]
        assert gone.intent_id not in reasons(chain)
        assert below + "seg.2" in list(store.list_keys(chain.bucket, "tenants/"))
        issuer.acknowledge_transaction(t, 2, "source")
        assert ended(chain, reaper, [gone]) == [("deleted", "pass")]
        replaced_with_the_sdk(chain, store, reaper, t, below + "seg.3")

    assert list(store.list_keys(chain.bucket, "tenants/")) == [
        "tenants/fern/seg.2",
        *(below + key for key in ("anew.4", "index.4", "seg.1")),
    ]
    assert chain.dead_letters() == []


def status(cli: Cli, intent: events.DeletionIntent) -> str:
    """What `sexton intents status` says of an intent."""
    return str(json.loads(cli("intents", "status", intent.intent_id, "--format", "json").stdout)["state"])


@pytest.mark.slow
def test_m_4_a_deadlist_that_waits_longer_than_every_delay_level(
    chain: Chain, store: ObjectStore, cli: Cli
) -> None:
    """M-4: it is pending, and shown so, while its transaction is open; once that commits it is executed."""
    key = "tenants/moss/old.0"
    store.put(chain.bucket, key, b"x")
    with chain.issuer() as issuer, running(chain, **QUICK) as reaper:
        issuer.start_transaction("node", "moss", number_place=NumberPlace.LAST)
        intent = deadlist(chain, "moss", 1, key)
        chain.emit(intent)
        attempts = len(QUICK["reaper_defer_delays_s"]) + 2
        assert waited(chain, reaper, intent, attempts).startswith("transaction-open: ")
        assert (status(cli, intent), list(store.list_keys(chain.bucket, "tenants/"))) == ("pending", [key])

        issuer.commit_transaction("node", "moss", 1, behind(chain))
        assert ended(chain, reaper, [intent]) == [("deleted", "pass")]
    assert (status(cli, intent), list(store.list_keys(chain.bucket, "tenants/"))) == ("deleted", [])


def collect(chain: Chain, store: ObjectStore, reports: Path) -> set[tuple[str, str]]:
    """Run the collector with --emit; returns the state of each tenant's finding."""
    settings = chain.settings.model_copy(update={"reports": str(reports)})
    options = Options(Scope(chain.bucket, QUICK["reaper_tenant_prefix"]), emit=True, max_share=0.9)
    with chain.issuer() as issuer:
        report = Driver(COLLECTOR, Sources(settings, issuer, store), options).run()
    return {(each.tenant, each.state.value) for each in report.findings}


@pytest.mark.slow
def test_m_5_a_dead_node_is_decommissioned(chain: Chain, store: ObjectStore, tmp_path: Path) -> None:
    """M-5: what it had open is untouched until its credentials' revocation is old enough; then all goes."""
    tenants, now = ("moss", "fern"), datetime.now(UTC)
    with chain.issuer() as issuer, running(chain, **QUICK) as reaper:
        asked = []
        for tenant in tenants:
            for name in ("1/seg", "1/deep/seg", "2/seg"):
                store.put(chain.bucket, f"tenants/{tenant}/{name}", b"x")
            issuer.start_transaction("dead", tenant, number_place=NumberPlace.FIRST)
            action = events.DeletePrefix(chain.bucket, f"tenants/{tenant}/1/")
            asked.append(leavings(chain, tenant, 1, action))
        store.put(chain.bucket, "tenants/birch/1/seg", b"x")
        store.put(chain.bucket, "tenants/birch/index", b"x")
        issuer.start_transaction("dead", "birch", number_place=NumberPlace.FIRST)
        issuer.start_transaction("alive", "fern", number_place=NumberPlace.FIRST)
        chain.emit(*asked)
        assert waited(chain, reaper, asked[0], attempts=2).startswith("transaction-open: ")
        assert waited(chain, reaper, asked[1], attempts=2).startswith("transaction-reject-pending: ")

        with pytest.raises(RequestRefused) as met:
            issuer.decommission_node("dead", now - timedelta(minutes=59))
        assert met.value.type == "revocation-too-recent"
        assert len(list(store.list_keys(chain.bucket, "tenants/"))) == 8
        assert collect(chain, store, tmp_path) == set()
        issuer.decommission_node("dead", now - timedelta(minutes=61))
        assert ended(chain, reaper, asked) == [("deleted", "pass")] * 2
        done = {("moss", "collected"), ("fern", "collected")}
        assert collect(chain, store, tmp_path) == {*done, ("birch", "ask")}
        left = ["tenants/birch/index", "tenants/fern/2/seg", "tenants/moss/2/seg"]
        reaper.until(lambda: list(store.list_keys(chain.bucket, "tenants/")) == left)
        assert collect(chain, store, tmp_path) == {("birch", "collected")}
        assert collect(chain, store, tmp_path) == set()
