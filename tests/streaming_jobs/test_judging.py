"""The reaper judges on real parts: broker, issuer, Redis, S3 server and Spark."""

from __future__ import annotations

import pytest
from tests.support.chain import Chain, keys

from sexton.storage import ObjectStore

pytestmark = [pytest.mark.real, pytest.mark.spark]


def put(store: ObjectStore, bucket: str, names: list[str]) -> None:
    for name in names:
        store.put(bucket, name, b"x")


def left(store: ObjectStore, bucket: str) -> list[str]:
    return sorted(store.list_keys(bucket, ""))


def test_j_1_stale_intents_are_refused_and_their_objects_stay(chain: Chain, store: ObjectStore) -> None:
    """J-1: what a superseded generation asks for afterwards is stale; its successor may delete the same keys."""
    names = keys("t", 3)
    put(store, chain.bucket, names)
    with chain.issuer() as issuer:
        old = issuer.attach("a", "t").generation
        new = issuer.attach("b", "t").generation
    stale = chain.emit(*(chain.intent("t", old, [name]) for name in names))

    counts = chain.reap()

    assert chain.words() == dict.fromkeys(stale, "stale")
    assert (counts.intents["stale"], counts.records) == (3, 3)
    assert left(store, chain.bucket) == names
    assert (chain.dead_letters(), chain.deferred()) == ([], [])

    good = chain.emit(chain.intent("t", new, names))
    chain.reap()

    assert chain.words() == {**dict.fromkeys(stale, "stale"), good[0]: "deleted"}
    assert left(store, chain.bucket) == []
