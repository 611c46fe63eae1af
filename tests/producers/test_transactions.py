"""What a transaction's handle takes as keys and as a deadlist, and what it asks the issuer in the end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.mock_kafka import mock_kafka
from tests.support.transactions import count_open, start

from sexton.producers import (
    CommitBegun,
    DeliveryFailed,
    InvalidEvent,
    KafkaUnavailable,
    KeyReused,
    Limits,
    QueueFull,
    RequestRefused,
    Sexton,
    UsageError,
)
from sexton.producers.testing import FakeIssuer, FakeSexton, FakeTransport
from sexton.schemas.events import AdvanceHorizon, DeleteObjects, ExpiresAt


def test_keys_that_carry_the_number_first(fake: FakeSexton) -> None:
    """Below the tenant's prefix, which has to be named; the place is fixed by the first transaction."""
    with pytest.raises(UsageError, match="need the tenant's prefix"):
        fake.transaction("t", number_place="first")
    with pytest.raises(UsageError, match="first or last"):
        start(fake, number_place="middle")
    assert fake.issuer.transactions("t") is None
    txn = start(fake, number_place="first")
    assert (txn.key("a/b"), txn.prefix(), txn.prefix("a")) == (
        "tenants/t/1/a/b",
        "tenants/t/1/",
        "tenants/t/1/a/",
    )
    txn.commit(lambda: None)
    txn = start(fake, number_place="first")
    assert txn.visible("a/b") == "tenants/t/1/a/b"
    txn.discard("bucket", [txn.key("x")])
    with pytest.raises(InvalidEvent, match="not a key of transaction 2 of t"):
        txn.discard("bucket", ["tenants/t/1/x"])
    with pytest.raises(RequestRefused) as caught:
        start(fake)

    assert caught.value.type == "number-place-fixed"


def test_nothing_is_visible_before_the_first_commit(fake: FakeSexton) -> None:
    """There is no key to name."""
    with pytest.raises(UsageError, match="no committed transaction"):
        start(fake).visible("index")


def test_keys_of_the_deadlist_are_checked_at_once_and_named_once(fake: FakeSexton) -> None:
    """A bad one is refused at the call, with all others; an own one is never written again."""
    txn = start(fake)
    for bad in (["tenants/t/a.0", ""], ["s3://bucket/a"]):
        with pytest.raises(InvalidEvent):
            txn.delete("bucket", bad)
    txn.delete("bucket", [txn.key("a"), "tenants/t/a.0"])
    with pytest.raises(KeyReused):
        txn.key("a")
    with pytest.raises(KeyReused):
        txn.delete("bucket", ["tenants/t/a.0"])
    with pytest.raises(KeyReused):
        txn.discard("bucket", ["tenants/t/a.1"])
    txn.commit(lambda: None)

    assert fake.keys == ["tenants/t/a.1", "tenants/t/a.0"]


def test_a_deadlist_says_all_that_a_delete_says(fake: FakeSexton) -> None:
    """Phases, instants and vetoes; it is emitted when it is sent, not when it is collected."""
    at = datetime(2027, 1, 1, tzinfo=UTC)
    txn = start(fake)
    txn.delete("bucket", phases=[["a"], ["b"]], pause_s=60, expires_at=at)
    before = datetime.now(UTC)
    txn.commit(lambda: None)
    (intent,) = fake.intents

    assert intent.action == DeleteObjects("bucket", [["a"], ["b"]], pause_s=60)
    assert list(intent.vetoes) == [ExpiresAt(at)]
    assert intent.emitted_at >= before.replace(microsecond=before.microsecond // 1000 * 1000)


def test_own_objects_only_are_discarded(fake: FakeSexton) -> None:
    """A promise is asked by nobody: another's key is refused, and any where no prefix says whose it is."""
    txn = start(fake)
    for key in ("tenants/t/a.2", "tenants/u/a.1", "tenants/t/1/a", "tenants/t/2/a.1"):
        with pytest.raises(InvalidEvent):
            txn.discard("bucket", [key])
    with pytest.raises(UsageError, match="prefix"):
        fake.transaction("u").discard("bucket", ["a.1"])

    assert fake.intents == []


def test_m_10_what_failed_is_written_again_and_nothing_else(fake: FakeSexton) -> None:
    """M-10: the first error names the intents; the same ones, with the same ids, are asked for in the end."""
    txn, puts = start(fake), []
    txn.delete("bucket", ["a"])
    fake.transport.refuse = "too large"
    with pytest.raises(DeliveryFailed, match="too large") as caught:
        txn.commit(lambda: puts.append(1), horizons={"main": 7})
    assert len(caught.value.intent_ids) == 2
    assert count_open(fake) == 1
    with pytest.raises(CommitBegun):
        txn.commit(horizons={"main": 8})
    fake.transport.refuse = None
    committed = txn.commit(lambda: puts.append(2), horizons={"main": 7})

    assert committed.intent_ids == caught.value.intent_ids
    assert [intent.intent_id for intent in fake.intents] == list(committed.intent_ids)
    assert fake.intents[1].action == AdvanceHorizon("main", 7)
    assert puts == [1]


def test_m_10_a_full_queue_is_not_asked_for() -> None:
    """M-10: those that were sent may be in the log; all are named again by the same ids."""
    with FakeSexton("n", limits=Limits(keys_per_intent=1)) as fake:
        txn = start(fake)
        txn.delete("bucket", ["a", "b", "c"])
        fake.transport.hold, fake.transport.capacity = True, 2
        with pytest.raises(QueueFull) as caught:
            txn.commit(lambda: None)
        assert (len(caught.value.accepted), len(caught.value.intent_ids)) == (2, 1)
        assert count_open(fake) == 1
        fake.transport.hold, fake.transport.capacity = False, None
        fake.transport.release()
        txn.commit()

        assert {*caught.value.accepted, *caught.value.intent_ids} == {i.intent_id for i in fake.intents}
        assert fake.issuer.transactions("t").last_committed == 1  # type: ignore[union-attr]


class _Moving(FakeTransport):
    """A topic that is another one each time somebody asks."""

    ids: list[str]

    def topic_id(self, topic: str, deadline: Any) -> str:
        return self.ids.pop(0) if self.ids else super().topic_id(topic, deadline)


def test_a_topic_that_is_made_anew_in_between_is_not_asked_for() -> None:
    """Offsets of the old one say nothing of the new one; the whole deadlist is written to that."""
    transport = _Moving()
    transport.ids = ["old", "new"]
    with FakeSexton("n", transport=transport) as fake:
        txn = start(fake)
        txn.delete("bucket", ["a"])
        with pytest.raises(KafkaUnavailable, match="made anew"):
            txn.commit(lambda: None)
        assert count_open(fake) == 1
        transport.ids = ["new", "new"]
        with pytest.raises(RequestRefused) as caught:
            txn.commit()
        assert count_open(fake) == 1
        with pytest.raises(CommitBegun):
            txn.delete("bucket", ["b"])
        txn.acknowledge()

        assert caught.value.type == "other-topic"
        assert fake.keys == ["a", "a"]


def test_the_offsets_behind_the_deadlist_are_its_own() -> None:
    """What was written last counts, whatever others wrote before, in between and after."""
    kept: list[dict[str, Any]] = []
    issuer = FakeIssuer()
    with FakeSexton("n", issuer, limits=Limits(keys_per_intent=1)) as fake:
        issuer.written(0, 5)
        txn = start(fake, persist=lambda state, _: kept.append(state))
        txn.delete("bucket", ["a", "b"])
        txn.commit(lambda: issuer.written(0, 3))
        assert issuer.written(0, 2) == 12

    assert kept[-1]["deadlist"] == {"topic_id": "fake-intents", "offsets": [10]}


def test_a_broker_that_is_away_is_told_before_anything_is_asked() -> None:
    """The index is written, and the deadlist waits: the commit is repeated when the broker is back."""
    with mock_kafka("sexton.intents") as address:
        gone = address
    issuer = FakeIssuer()
    with Sexton.connect("n", issuer=issuer, kafka_bootstrap_servers=gone) as sexton:
        txn = start(sexton)
        txn.delete("bucket", ["a"])
        with pytest.raises(KafkaUnavailable):
            txn.commit(lambda: None, timeout=0.2)
        with pytest.raises(CommitBegun):
            txn.key("b")

    assert issuer.unfinished_transactions()[0].status == "open"
