"""Tenants of the first form through the whole chain."""

from __future__ import annotations

import pytest
from tests.support.chain import Chain

from sexton.producers import Sexton
from sexton.schemas import events
from sexton.schemas.errors import RequestRefused
from sexton.schemas.events import GenerationForm, ImportedNode, ImportedTenant
from sexton.schemas.generations import MAX_NODE, MAX_PACKED_PART, PackedGeneration, parse_packed_suffix
from sexton.storage import ObjectStore


@pytest.mark.slow
def test_i_8_the_largest_suffix_goes_all_the_way(chain: Chain, store: ObjectStore) -> None:
    """I-8: the u64 suffix at its largest value, from the SDK over Kafka, job and Redis to the outcome."""
    tenant = ImportedTenant("t", GenerationForm.FIRST, MAX_PACKED_PART - 1, None)
    with chain.issuer() as issuer:
        issuer.import_tenants([tenant], [ImportedNode("n", MAX_NODE, MAX_PACKED_PART - 1)])
    with Sexton.connect("n", chain.settings, form="first") as sexton:
        handle = sexton.attach("t")
        key = handle.key("layer")
        store.put(chain.bucket, key, b"x")
        (intent_id,) = handle.delete(chain.bucket, [key]).intent_ids

    assert key == "layer-ffffffffffffffff"
    assert parse_packed_suffix(key)[1] == handle.packed == PackedGeneration.unpack(2**64 - 1)
    chain.reap()
    (outcome,) = chain.outcomes()
    assert (outcome.intent_id, outcome.outcome) == (intent_id, events.OutcomeKind.DELETED)
    assert not store.exists(chain.bucket, key)


def test_a_node_that_registered_again(chain: Chain, store: ObjectStore) -> None:
    """What a node asked for before it registered again is deleted; its stale process deletes nothing more."""
    with (
        Sexton.connect("n", chain.settings, form="first") as old,
        Sexton.connect("n", chain.settings, form="first") as new,
    ):
        handle = old.attach("t")
        before, after = handle.key("before"), handle.key("after")
        for key in (before, after):
            store.put(chain.bucket, key, b"x")
        (covered,) = handle.delete(chain.bucket, [before]).wait(20)
        taken = new.re_attach()["t"]
        (stale,) = handle.delete(chain.bucket, [after]).wait(20)

        assert (taken.generation, taken.packed and taken.packed.node_generation) == (2, 2)
        with pytest.raises(RequestRefused, match="stop"):
            old.attach("t")
    chain.reap()

    assert chain.words() == {covered: "deleted", stale: "stale"}
    assert [store.exists(chain.bucket, key) for key in (before, after)] == [False, True]


@pytest.mark.parametrize(("node", "node_generation"), [(None, None), ("n", None), ("other", 1), ("n", 2)])
@pytest.mark.slow
def test_guards_with_other_parts_are_never(
    chain: Chain, store: ObjectStore, node: str | None, node_generation: int | None
) -> None:
    """A missing part, another node, or a node generation never given out: stale, the object stays."""
    with chain.issuer() as issuer:
        registration = issuer.register_node("n")
        issuer.register_node("other")
        issuer.attach("n", "t", registration=registration)
    store.put(chain.bucket, "x", b"x")
    guard = events.GenerationGuard("t", 1, node, node_generation)
    (intent_id,) = chain.emit(chain.intent("t", None, ["x"], guards=(guard,)))
    chain.reap()

    assert chain.words() == {intent_id: "stale"}
    assert store.exists(chain.bucket, "x")
