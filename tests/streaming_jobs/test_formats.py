"""Records of every kind in one topic: each is processed or dead-lettered by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.support.chain import Chain
from tests.support.intents import PROMISE
from tests.support.registry import SchemaRegistry
from tests.support.versions import (
    body,
    canonical,
    confluent,
    newer,
    with_field,
    with_guard,
    with_mode,
    without_logical_types,
)

from sexton.schemas import events, records
from sexton.schemas.codec import Codec, schema_of
from sexton.schemas.forms import to_avro
from sexton.schemas.registry import Registry
from sexton.storage import ObjectStore

pytestmark = [pytest.mark.real, pytest.mark.spark]


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


def test_f_3_versions_and_framings_mixed_in_one_batch(chain: Chain, store: ObjectStore) -> None:
    """F-3: two versions and both framings beside garbage and a cut record: each by its writer's schema."""
    put(store, chain, "single", "v1", "v2", "unknown")
    with SchemaRegistry() as registry:
        text_1, text_2 = schema_of(events.DeletionIntent).text, newer(with_field)
        id_1, id_2 = registry.add("old-value", text_1), registry.add("new-value", text_2)
        single, v1, v2 = (promised(chain, name) for name in ("single", "v1", "v2"))
        plain = chain.codec.encode(single)
        values = [
            confluent(id_2, body(text_2, v2, priority=7)),
            b"garbage",
            plain,
            confluent(99, plain[10:]),
            confluent(id_1, body(text_1, v1)),
            confluent(id_2, body(text_1, promised(chain, "unknown"))),
            plain[:-1],
        ]
        chain.produce(*values, partition=0)

        chain.reap(schema_registry_url=registry.url)

        chain.codec = Codec(Registry(registry.url))
        assert chain.words() == {intent.intent_id: "deleted" for intent in (single, v1, v2)}
        letters = sorted(chain.dead_letters(), key=lambda letter: letter.position.offset)
    assert [letter.raw_value for letter in letters] == [values[1], values[3], values[5], values[6]]
    assert [x.reason for x in letters] == ["unframed", "unknown-schema", "malformed", "malformed"]
    assert left(store, chain) == ["unknown"]


def test_p_1_a_registry_that_keeps_our_schemas_in_canonical_form(chain: Chain, store: ObjectStore) -> None:
    """P-1: an instant is read as ours; a number where one should be, by another schema, is a dead letter."""
    put(store, chain, "ours", "number", "beside")
    past = events.NotBeforeGuard(datetime.now(UTC) - timedelta(days=1))
    ours, number = (chain.intent("t", None, [name], guards=(*PROMISE, past)) for name in ("ours", "number"))
    with SchemaRegistry() as registry:
        text = schema_of(events.DeletionIntent).text
        own_id = registry.add("any-value", canonical(text))
        bare = newer(with_field, without_logical_types)
        bare_id = registry.add("bare-value", bare)
        beside = promised(chain, "beside")
        values = [
            confluent(own_id, body(text, ours)),
            confluent(bare_id, body(newer(with_field), number, priority=7)),
            chain.codec.encode(beside),
        ]
        chain.produce(*values, partition=0)

        chain.reap(schema_registry_url=registry.url)

        chain.codec = Codec(Registry(registry.url))
        assert chain.words() == {intent.intent_id: "deleted" for intent in (ours, beside)}
        (letter,) = chain.dead_letters()
    assert (letter.raw_value, letter.reason) == (values[1], "malformed")
    assert "expected datetime, not int" in letter.detail
    assert left(store, chain) == ["number"]


def test_f_5_a_symbol_from_a_newer_writer_is_named_in_its_dead_letter(
    chain: Chain, store: ObjectStore
) -> None:
    """F-5: an unknown enum symbol or guard never falls back to something destructive."""
    put(store, chain, "a", "b")
    with SchemaRegistry() as registry:
        text_mode, text_guard = newer(with_mode), newer(with_guard)
        mode_id, guard_id = registry.add("m-value", text_mode), registry.add("g-value", text_guard)
        shred = to_avro(promised(chain, "a").action) | {"mode": "shred"}
        chain.produce(
            confluent(mode_id, body(text_mode, promised(chain, "a"), action=("sexton.DeleteObjects", shred))),
            confluent(
                guard_id,
                body(text_guard, promised(chain, "b"), guards=[("sexton.MoonGuard", {"phase": "full"})]),
            ),
            partition=0,
        )

        chain.reap(schema_registry_url=registry.url)

        chain.codec = Codec(Registry(registry.url))
        letters = sorted(chain.dead_letters(), key=lambda letter: letter.position.offset)
    assert ["shred" in letters[0].detail, "MoonGuard" in letters[1].detail] == [True, True]
    assert left(store, chain) == ["a", "b"]


def test_an_intent_that_breaks_a_rule_is_dead_lettered_by_name(chain: Chain, store: ObjectStore) -> None:
    """A key that is too long: a dead letter names intent, tenant and bucket; its neighbour is deleted."""
    put(store, chain, "a", "b")
    bad, good = promised(chain, "k" * 1025), promised(chain, "b")
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


@pytest.mark.slow
def test_f_2_a_record_that_unpacks_to_far_more_than_it_weighs(chain: Chain, store: ObjectStore) -> None:
    """F-2: some kilobytes that are 70 MB unpacked are a dead letter that tells so, and neighbours
    continue.
    """
    put(store, chain, "a", "b")
    chain.emit(promised(chain, "a"))
    limits: dict[str, Any] = {"compression.type": "zstd", "message.max.bytes": 100_000_000}
    chain.produce(bytes(70_000_000), partition=0, **limits)
    chain.emit(promised(chain, "b"))

    counts = chain.reap()

    assert counts.intents == {"deleted": 2, "dead-lettered": 1}
    (letter,) = chain.dead_letters()
    assert (letter.reason, letter.position.offset) == ("too-large", 1)
    assert "70000000 bytes" in letter.detail
    assert left(store, chain) == []
