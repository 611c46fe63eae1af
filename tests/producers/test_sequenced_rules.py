"""What a writer concludes from what it has read; and that no interleaving makes it say what is not so."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.sequenced import MANIFESTS, OnFake

from sexton.producers import (
    BoundaryLowered,
    BoundaryUnreadable,
    BoundaryVanished,
    NoObject,
    SequencedConflict,
    SequencedUnknown,
    SequencedWriter,
    StoredObject,
    StoreUnavailable,
)
from sexton.producers._sequenced_rules import Boundary, Whose, observed, whose
from sexton.producers.testing import FakeStore

SEEN = Boundary(7, '"e"', is_seen=True)


def _read(body: bytes, etag: str = '"new"') -> StoredObject:
    return StoredObject(body, etag)


@pytest.mark.parametrize(
    ("nonce", "found", "expected"),
    [
        ("n", NoObject.ABSENT, Whose.ABSENT),
        ("n", StoredObject(b"body", "", "n"), Whose.OWN),
        ("n", StoredObject(b"body", "", "m"), Whose.ANOTHERS),
        ("n", StoredObject(b"body", ""), Whose.NOBODY_KNOWS),
        ("n", StoredObject(b"other", ""), Whose.ANOTHERS),
        (None, StoredObject(b"body", "", "n"), Whose.NOBODY_KNOWS),
        (None, StoredObject(b"other", "", "n"), Whose.ANOTHERS),
    ],
)
def test_b_7_whose_a_file_is(nonce: str | None, found: StoredObject | NoObject, expected: Whose) -> None:
    """B-7: the nonce tells, and without one only different bytes do."""
    assert whose(found, nonce, b"body") is expected


def test_b_4_what_a_boundary_may_become() -> None:
    """B-4: the same or higher; absent only if it was never seen."""
    assert observed(Boundary(), "k", NoObject.ABSENT) == Boundary()
    assert observed(Boundary(), "k", _read(b"0")) == Boundary(0, '"new"', is_seen=True)
    assert observed(SEEN, "k", NoObject.UNCHANGED) == SEEN
    assert observed(SEEN, "k", _read(b"7")) == Boundary(7, '"new"', is_seen=True)
    assert observed(SEEN, "k", _read(b"8\n")) == Boundary(8, '"new"', is_seen=True)
    assert observed(SEEN, "k", _read(b"8", "")) == Boundary(8, None, is_seen=True)
    for answer, error in (
        (NoObject.ABSENT, BoundaryVanished),
        (_read(b"6"), BoundaryLowered),
        (_read(b"x"), BoundaryUnreadable),
    ):
        with pytest.raises(error):
            observed(SEEN, "k", answer)
    with pytest.raises(BoundaryVanished):
        observed(Boundary(0, '"e"', is_seen=True), "k", NoObject.ABSENT)
    with pytest.raises(StoreUnavailable):
        observed(Boundary(), "k", NoObject.UNCHANGED)


class _History(FakeStore):
    """Remembers whose each id's file was first, and lets something else happen before each call."""

    def __init__(self, events: list[int]) -> None:
        super().__init__()
        self.events = events
        self.first: dict[int, bytes] = {}
        self.highest = 0

    def put_if_absent(self, bucket: str, key: str, body: bytes, nonce: str | None) -> bool:
        self._happen()
        return super().put_if_absent(bucket, key, body, nonce)

    def get_if_changed(self, bucket: str, key: str, etag: str | None) -> StoredObject | NoObject:
        self._happen()
        return super().get_if_changed(bucket, key, etag)

    def _put(self, bucket: str, key: str, body: bytes, nonce: str | None) -> bool:
        written = super()._put(bucket, key, body, nonce)
        id = MANIFESTS.id_of(key)
        if written and id is not None:
            self.first.setdefault(id, body)
            self.highest = max(self.highest, id)
        return written

    def _happen(self) -> None:
        """Collect up to below the newest, let late PUTs land, have another one write the next id."""
        event = self.events.pop() if self.events else 0
        if event == 1 and self.highest > 1:
            self.collect("bucket", "db", "manifest", self.highest - 1)
        elif event == 2:
            self.land()
        elif event == 3:
            self._put("bucket", MANIFESTS.key(self.highest + 1), b"another's", "another")


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([0, 0, 0, 1, 2, 3]), max_size=30),
    st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from([None, None, "before", "after", "late"]), st.booleans()),
        max_size=12,
    ),
)
def test_b_1_b_7_no_interleaving_confirms_a_file_that_another_one_had(
    events: list[int], steps: list[tuple[int, str | None, bool]]
) -> None:
    """B-1, B-7: who is told success wrote the first file of that id; an id is confirmed once."""
    store = _History(events)
    world = OnFake(store)
    writers = [world.writer(), world.writer()]
    confirmed: list[int] = []
    bodies: dict[int, bytes] = {}
    for number, (which, fails, is_stale) in enumerate(steps):
        writer, body = writers[which], b"%d of %d" % (number, which)
        id = max(1, store.highest if is_stale else store.highest + 1)
        store.put_fails = fails
        if _created(writer, id, body):
            assert store.first[id] == body
            confirmed.append(id)
            bodies[id] = body
    assert len(set(confirmed)) == len(confirmed)
    for id in confirmed:
        stands = world.get(MANIFESTS.key(id))
        assert stands == bodies[id] or id < store.highest


def _created(writer: SequencedWriter, id: int, body: bytes) -> bool:
    try:
        writer.create(id, body)
    except (SequencedConflict, SequencedUnknown):
        return False
    return True
