"""Records of every kind in one topic: each is worked on or dead-lettered by itself."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from tests.support.chain import Chain

from sexton.schemas import events, records
from sexton.storage import ObjectStore

pytestmark = [pytest.mark.real, pytest.mark.spark]

PROMISE = (events.PromiseGuard("drop"),)


def promised(chain: Chain, *names: str) -> events.DeletionIntent:
    """An intent that needs no generation."""
    return chain.intent("t", None, names, guards=PROMISE)


def put(store: ObjectStore, chain: Chain, *names: str) -> None:
    """Put small objects."""
    for name in names:
        store.put(chain.bucket, name, b"x")


def left(store: ObjectStore, chain: Chain) -> list[str]:
    """Names of what is left."""
    return sorted(store.list_keys(chain.bucket, ""))


def test_f_1_an_aborted_intent_never_happened(chain: Chain, store: ObjectStore) -> None:
    """F-1: of an aborted, a committed and a plain intent the first one's object survives."""
    put(store, chain, "aborted", "committed", "plain")
    producer = Producer(chain.settings.kafka(**{"transactional.id": "f-1"}))
    producer.init_transactions(20)
    for name in ("aborted", "committed"):
        producer.begin_transaction()
        value = chain.codec.encode(promised(chain, name))
        producer.produce(chain.settings.topic(records.INTENTS), value=value, partition=0)
        producer.flush(20)
        (producer.abort_transaction if name == "aborted" else producer.commit_transaction)(20)
    chain.emit(promised(chain, "plain"))

    counts = chain.reap()

    assert left(store, chain) == ["aborted"]
    assert list(chain.words().values()) == ["deleted", "deleted"]
    assert counts.records == 2


def test_f_2_null_empty_zero_and_a_good_intent(chain: Chain, store: ObjectStore) -> None:
    """F-2: one delete, two dead letters with raw bytes and position, one counted skip."""
    put(store, chain, "a", "b")
    good = promised(chain, "a")
    chain.produce(None, b"", b"\0", chain.codec.encode(good), key=b"k", partition=1)

    counts = chain.reap()

    assert counts.intents == {"skipped": 1, "dead-lettered": 2, "deleted": 1}
    letters = sorted(chain.dead_letters(), key=lambda letter: letter.position.offset)
    found = [(x.position.partition, x.position.offset, x.raw_value, x.raw_key, x.reason) for x in letters]
    assert found == [(1, 1, b"", b"k", "empty"), (1, 2, b"\0", b"k", "unframed")]
    assert {letter.topic for letter in letters} == {chain.settings.topic(records.INTENTS)}
    assert chain.words() == {good.intent_id: "deleted"}
    assert left(store, chain) == ["b"]


def test_f_4_trailing_bytes_and_glued_records(chain: Chain, store: ObjectStore) -> None:
    """F-4: a record with a byte too many, two glued, one cut short: dead letters, objects survive."""
    put(store, chain, "a", "b", "c", "d")
    one, two = chain.codec.encode(promised(chain, "a")), chain.codec.encode(promised(chain, "b"))
    cut = chain.codec.encode(promised(chain, "c"))[:-2]
    good = promised(chain, "d")
    bad = [one + b"\0", one + two, cut]
    chain.produce(*bad, chain.codec.encode(good), partition=0)

    chain.reap()

    letters = sorted(chain.dead_letters(), key=lambda letter: letter.position.offset)
    assert [letter.raw_value for letter in letters] == bad
    assert [letter.reason for letter in letters] == ["trailing-bytes", "trailing-bytes", "malformed"]
    assert chain.words() == {good.intent_id: "deleted"}
    assert left(store, chain) == ["a", "b", "c"]


def test_an_intent_that_breaks_a_rule_is_dead_lettered_by_name(chain: Chain, store: ObjectStore) -> None:
    """A key with CR or LF is a dead letter that names intent, tenant and bucket; its neighbour is deleted."""
    put(store, chain, "a", "b")
    bad, good = promised(chain, "a\nb"), promised(chain, "b")
    chain.emit(bad, good)

    chain.reap()

    (letter,) = chain.dead_letters()
    assert (letter.intent_id, letter.tenant, letter.bucket) == (bad.intent_id, "t", chain.bucket)
    assert letter.raw_value == chain.codec.encode(bad)
    assert chain.words() == {good.intent_id: "deleted"}
    assert left(store, chain) == ["a"]


def test_records_tell_what_they_are_without_a_decoder(chain: Chain, store: ObjectStore) -> None:
    """Outcomes carry the intent id as key, and readable headers."""
    put(store, chain, "a")
    intent = promised(chain, "a")
    chain.emit(intent)
    chain.reap()

    (message,) = chain.messages(records.OUTCOMES)

    assert message.key() == intent.intent_id.encode()
    assert dict(message.headers() or []) == {
        "sexton-type": b"Outcome",
        "intent-id": intent.intent_id.encode(),
        "tenant": b"t",
    }
