"""One suite for all stores: what each is held to is what it was seen to do truly (docs/tried.md).

No store does everything as documented; what one departs in, the probe finds, and nothing is harmed.
"""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from tests.support.each_store import EXPECTED, Store, keys_in, probed, put
from tests.support.s3_stores import Running

from sexton.storage import (
    Ability,
    Absent,
    BatchDeleter,
    Delete,
    Found,
    Kind,
    Lost,
    NotModified,
    StoreRefused,
    Versioning,
    VersionSlice,
    Written,
    compare_and_put,
    create_if_absent,
    read_if_changed,
)

YES, NO = Ability.YES, Ability.NO
SIBLINGS = [
    ("a%2Fb", "a/b"), ("t#1", "t"), ("a+b", "a b"), ("<&>\"'", "<&>'"), (" lead", "lead"),
    ("trail ", "trail"), ("e\u0301", "\u00e9"), ("q?versionId=1", "q"), ("semi;colon", "semi"),
    ("\U0001f5dd", "\ufffd"),
    ("a/../b", "b"), ("./c", "c"), ("x//y", "x/y"), ("/lead2", "lead2"), ("back\\slash", "back/slash"),
    ("ctl\x01", "ctl"), ("cr\rx", "cr\nx"), ("nc\uffff", "nc"),
]  # fmt: skip


def test_the_probe_finds_what_the_store_is(store: Store) -> None:
    """X-10, X-12: checksums, the limit, conditions, folding and listing, as this store really does them."""
    found = probed(store, store.new_bucket())
    expected = EXPECTED[store.name]

    assert (found.crc32, found.md5) == (YES, YES)
    assert (found.batch_condition, found.single_condition) == (expected.batch_condition, YES)
    assert found.refuses_1001 is expected.refuses_1001
    assert (found.batch_aliases, found.single_aliases) == (expected.batch_aliases, expected.single_aliases)
    assert (found.versioning, found.object_lock) == (Versioning.OFF, NO)
    assert (found.lists_in_order, found.lists_exactly) == (YES, YES)
    assert found.keeps_folders is (NO if store.name == "seaweedfs" else YES)


def test_a_batch_and_its_neighbours(store: Store) -> None:
    """X-1, X-8: what was named goes, also what was never there; what was not named stays."""
    bucket = store.new_bucket()
    keys = [f"t/{i:04d}" for i in range(120)]
    put(store, bucket, *keys, "stays")
    result = store.deleter.delete_all(bucket, [*keys, "never"]).result(60)

    assert set(result.states) <= {120}
    assert result.state(120).kind in (Kind.GONE, Kind.ABSENT)
    assert keys_in(store, bucket) == {"stays"}


@pytest.mark.parametrize(("odd", "sibling"), SIBLINGS, ids=[repr(odd) for odd, _ in SIBLINGS])
def test_x_2_x_3_x_9_no_sibling_is_harmed(odd: str, sibling: str, store: Store, shared: str) -> None:
    """X-2, X-3, X-9: the sibling is still there, and the odd key gone, absent or refused with its reason."""
    bucket = shared
    sibling_was_put = _try_put(store, bucket, sibling)
    was_put = _try_put(store, bucket, odd)
    result = store.deleter.delete_all(bucket, [odd]).result(60)

    if sibling_was_put:
        assert store.deleter.calls.exists(bucket, sibling)
    state = result.state(0)
    assert state.kind in (Kind.GONE, Kind.ABSENT) or state.code
    if was_put and state.kind is Kind.GONE:
        assert not store.deleter.calls.exists(bucket, odd)


def _try_put(store: Store, bucket: str, key: str) -> bool:
    if store.deleter.abilities(bucket).aliasing_of(key, batch=False):
        return False
    try:
        store.deleter.calls.put(bucket, key, b"odd")
    except StoreRefused:
        return False
    return True


def test_x_12_unchanged(store: Store) -> None:
    """X-12: with an ETag only the object that still has it goes, in the way that this store checks."""
    bucket = store.new_bucket()
    store.deleter.probe(bucket)
    same = store.deleter.calls.put(bucket, "same", b"1").etag
    put(store, bucket, "other")
    result = store.deleter.delete_all(bucket, [Delete("same", same), Delete("other", same)]).result(60)

    assert [result.state(i).kind for i in (0, 1)] == [Kind.GONE, Kind.CHANGED]
    assert keys_in(store, bucket) == {"other"}


def test_a_missing_bucket_and_a_wrong_secret(
    store: Store, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-7: a missing bucket is the bucket's fault, a wrong secret everybody's."""
    missing = store.deleter.delete_all("test-missing-bucket", ["a", "b\r"]).result(60)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", running.environ["AWS_ACCESS_KEY_ID"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret")
    with BatchDeleter(running.settings) as deleter:
        wrong = deleter.delete_all(store.new_bucket(), ["a"]).result(60)

    assert [missing.state(i).kind for i in (0, 1)] == [Kind.BUCKET] * 2
    if store.name != "moto":  # it believes everybody
        assert wrong.state(0).kind is Kind.ENVIRONMENT


def test_x_9_a_folder_object_stays(store: Store) -> None:
    """X-9: deleting `dir`, which is not there, leaves the object `dir/`; the neighbours go."""
    bucket = store.new_bucket()
    store.deleter.look_up(bucket)
    store.deleter.calls.put(bucket, "dir/", b"")
    put(store, bucket, "beside", "deep/beside")
    result = store.deleter.delete_all(bucket, ["dir", "beside", "deep/beside", "never"]).result(60)

    assert keys_in(store, bucket) == {"dir/"}
    assert result.state(0).kind in (Kind.GONE, Kind.ABSENT, Kind.REFUSED)
    assert {result.state(i).kind for i in (1, 2, 3)} <= {Kind.GONE, Kind.ABSENT}


def test_slices_of_a_prefix(store: Store) -> None:
    """X-16: a prefix is listed in slices, in byte order, without its siblings."""
    bucket = store.new_bucket()
    names = ["a", "a b", "a+b", "a%2Fb", "z", "é", "e\u0301", "<&>", "\uffee", "\U0001f5dd"]
    put(store, bucket, *(f"foo/{name}" for name in names), "foo-bar/x", "fop")
    found: list[str] = []
    after: str | None = None
    while not found or after is not None:
        page = store.deleter.calls.list_slice(bucket, "foo/", after, 3)
        found += [entry.key for entry in page.objects]
        after = page.after

    assert found == sorted((f"foo/{name}" for name in names), key=str.encode)


@pytest.mark.parametrize("versioned", [False, True], ids=["objects", "versions"])
def test_g_8_a_listing_tells_when_objects_were_written(store: Store, versioned: bool) -> None:
    """G-8: by the store's clock, no later than its Date, both to the second: what came after it is told.

    A server may make its Date once a second only, as versitygw does: it is up to that much late. What was
    written meanwhile counts as written later, and stays.
    """
    bucket = store.new_bucket(versioned=versioned)
    lists = store.deleter.calls.version_slice if versioned else store.deleter.calls.list_slice
    put(store, bucket, "p/old")
    first = lists(bucket, "p/")
    assert first.date is not None
    time.sleep(1.1)
    put(store, bucket, "p/new")
    second = lists(bucket, "p/")

    found = second.versions if isinstance(second, VersionSlice) else second.objects
    written = {entry.key: entry.written_at for entry in found}
    assert written["p/old"] is not None
    assert written["p/new"] is not None
    late = timedelta(seconds=1)
    assert written["p/old"].replace(microsecond=0) <= first.date + late
    assert first.date < written["p/new"]
    assert second.date is not None
    assert written["p/new"].replace(microsecond=0) <= second.date + late


@pytest.mark.parametrize("versioned", [False, True], ids=["plain", "versioned"])
def test_b_7_conditional_calls(store: Store, versioned: bool) -> None:
    """B-7: created once, replaced from its ETag only, read where it has changed, and told so each time."""
    bucket, calls = store.new_bucket(versioned=versioned), store.deleter.calls
    assert read_if_changed(calls, bucket, "gc/manifest.boundary") == Absent()
    first = create_if_absent(calls, bucket, "gc/manifest.boundary", b"3")
    assert isinstance(first, Written)
    assert create_if_absent(calls, bucket, "gc/manifest.boundary", b"4") == Lost()
    assert read_if_changed(calls, bucket, "gc/manifest.boundary") == Found(b"3", first.etag)
    assert read_if_changed(calls, bucket, "gc/manifest.boundary", first.etag) == NotModified()

    second = compare_and_put(calls, bucket, "gc/manifest.boundary", b"5", first.etag)
    assert isinstance(second, Written)
    assert compare_and_put(calls, bucket, "gc/manifest.boundary", b"4", first.etag) == Lost()
    assert compare_and_put(calls, bucket, "gc/other.boundary", b"4", first.etag) == Lost()
    assert read_if_changed(calls, bucket, "gc/manifest.boundary", first.etag) == Found(b"5", second.etag)
    assert read_if_changed(calls, bucket, "gc/other.boundary") == Absent()
    with pytest.raises(StoreRefused, match="NoSuchBucket"):
        read_if_changed(calls, f"{bucket}-none", "gc/manifest.boundary")


@pytest.mark.parametrize("versioned", [False, True], ids=["plain", "versioned"])
def test_b_6_conditional_writes_are_real(store: Store, versioned: bool) -> None:
    """B-6: of writers that race exactly one wins, and the race leaves nothing behind.

    moto looks first and writes later: what is seen of it depends on whether two of its threads meet.
    """
    bucket = store.new_bucket(versioned=versioned)
    found = store.deleter.probe_writes(bucket)

    assert found.conditional_writes is YES or store.name == "moto", found.writes_detail
    assert keys_in(store, bucket) == set()
    if versioned:
        assert store.deleter.calls.version_slice(bucket, "").versions == ()
