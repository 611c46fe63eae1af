"""Versions, markers and locks on every store: each does what was seen of it (docs/tried.md)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.support.each_store import EXPECTED, Store, probed, put

from sexton.storage import (
    Ability,
    Delete,
    ErasedSlice,
    Kind,
    NoReply,
    StoreRefused,
    Versioning,
    erase_slice,
)

YES = Ability.YES


def test_x_11_hide_look_and_erase(store: Store) -> None:
    """X-11: hiding makes one marker, which looking finds; then each version and the marker are erased."""
    bucket = store.new_bucket(versioned=True)
    found = probed(store, bucket)
    assert found.versioning is Versioning.ON
    assert found.lists_in_order is EXPECTED[store.name].lists_versioned
    assert found.lists_exactly is YES
    put(store, bucket, "k", "k", "k/longer" if store.name != "versitygw" else "k-longer")
    assert store.deleter.delete_all(bucket, ["k"]).result(60).clean
    current = store.deleter.calls.current_version(bucket, "k")
    assert current is not None
    assert (current.is_marker, current.is_latest) == (True, True)
    assert not store.deleter.calls.exists(bucket, "k")
    slices: list[ErasedSlice] = []
    while not slices or slices[-1].listed:
        slices.append(erase_slice(store.deleter, bucket, "k", exactly=True, limit=2))
        assert len(slices) < 10

    assert (sum(s.erased for s in slices), sum(s.markers for s in slices)) == (3, 1)
    left = store.deleter.calls.version_slice(bucket, "").versions
    assert [version.key for version in left] in (["k/longer"], ["k-longer"])


def test_locks_are_final_with_their_date(store: Store) -> None:
    """A legal hold keeps a version: final, the hold is reported; its neighbour in the batch goes."""
    bucket = store.new_bucket(locks=True)
    store.deleter.probe(bucket)
    held, free = (store.deleter.calls.put(bucket, key, b"x") for key in ("held", "free"))
    store.client.put_object_legal_hold(
        Bucket=bucket, Key="held", VersionId=held.version_id, LegalHold={"Status": "ON"}
    )
    items = [Delete("held", version_id=held.version_id), Delete("free", version_id=free.version_id)]
    result = store.deleter.delete_all(bucket, items).result(60)

    assert [result.state(i).kind for i in (0, 1)] == [Kind.FINAL, Kind.GONE]
    assert result.state(0).legal_hold


@pytest.mark.parametrize("key", ["b\x01c", "x\uffff", "a\rb", "a\nb", "a\ufffdb"], ids=repr)
def test_x_2_versions_of_a_key_that_a_listing_mangles(key: str, store: Store) -> None:
    """X-2: the listing names them byte for byte and they are erased, or it is reported that it does not.

    Of a key that the store refuses nothing is there.
    """
    bucket = store.new_bucket(versioned=True)
    try:
        versions = [store.deleter.calls.put(bucket, key, body).version_id for body in (b"1", b"2")]
    except StoreRefused:
        assert store.deleter.calls.version_slice(bucket, "").versions == ()
        return
    try:
        part = erase_slice(store.deleter, bucket, key, exactly=True)
    except NoReply:
        assert store.name == "moto"  # it writes what is no XML
        return
    left = [version for version in versions if store.deleter.calls.head(bucket, key, version) is not None]

    assert (part.listed, part.erased, left) == ((2, 2, []) if part.exact else (0, 0, versions))
    page = store.deleter.calls.version_slice(bucket, "")
    assert all(version.exact is part.exact for version in page.versions)


def test_the_lock_of_an_older_version_is_told(store: Store) -> None:
    """A version under retention below a newer one: final, with the date."""
    bucket = store.new_bucket(locks=True)
    store.deleter.probe(bucket)
    old = store.deleter.calls.put(bucket, "k", b"1")
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    retention = {"Mode": "GOVERNANCE", "RetainUntilDate": until}
    store.client.put_object_retention(Bucket=bucket, Key="k", VersionId=old.version_id, Retention=retention)
    store.deleter.calls.put(bucket, "k", b"2")
    state = store.deleter.delete_all(bucket, [Delete("k", version_id=old.version_id)]).result(60).state(0)

    assert (state.kind, state.retain_until) == (Kind.FINAL, until)
