"""What a transaction's handle may do when, what is kept of it, and which keys are its own: pure rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sexton.producers import (
    CommitBegun,
    CommitRejected,
    Delivered,
    HandleUnusable,
    IndexFateUnknown,
    InvalidEvent,
    StateNotSaved,
    TransactionLost,
    TransactionOver,
    UsageError,
)
from sexton.producers._deadlist import ends_behind
from sexton.producers._transaction_names import OwnNames, check_prefix
from sexton.producers._transaction_state import (
    MAX_DISCARDED,
    Call,
    Phase,
    State,
    digest,
    refusal,
    resumed,
)
from sexton.schemas.events import NumberPlace, PartitionOffsets

GOLDEN = Path(__file__).parent / "golden" / "transaction_state_1.json"
OWN = ("tenants/tenant-42/a.23", "tenants/tenant-42/b.23")
KEPT = State(
    "tenant-42",
    23,
    "node-7",
    22,
    "tenants/tenant-42/",
    NumberPlace.LAST,
    6,
    Phase.COMMIT,
    PartitionOffsets("fake-intents", (0, 0, 17)),
    frozenset(map(digest, OWN)),
)
FIRST, LAST = NumberPlace.FIRST, NumberPlace.LAST
# Of each phase: what key, delete, discard, commit, read-and-commit and acknowledge raise; None: allowed.
TABLE: dict[Phase, tuple[type[HandleUnusable] | None, ...]] = {
    Phase.OPEN: (None, None, None, None, None, None),
    Phase.PUT: (None, None, IndexFateUnknown, IndexFateUnknown, None, None),
    Phase.WRITTEN: (CommitBegun, CommitBegun, CommitBegun, None, None, None),
    Phase.DEADLIST: (CommitBegun, CommitBegun, CommitBegun, None, None, None),
    Phase.COMMIT: (CommitBegun, CommitBegun, CommitBegun, None, None, None),
    Phase.TORN: (CommitBegun, None, CommitBegun, CommitBegun, None, None),
    Phase.LEFT: (*[TransactionLost] * 5, None),
    Phase.LOST: (*[TransactionLost] * 5, None),
    Phase.REJECTED: (*[CommitRejected] * 5, None),
    Phase.ACKNOWLEDGE: (*[TransactionOver] * 5, None),
    Phase.COMMITTED: (*[TransactionOver] * 3, None, None, TransactionOver),
    Phase.OVER: (*[TransactionOver] * 6,),
    Phase.CLOSED: (*[StateNotSaved] * 6,),
}


@pytest.mark.parametrize("phase", Phase)
def test_m_18_what_a_phase_allows(phase: Phase) -> None:
    """M-18: of every call, and what is said of those that are refused names the transaction."""
    said = [refusal(phase, call, "transaction 23 of t") for call in Call]

    assert tuple(None if why is None else type(why) for why in said) == TABLE[phase]
    assert all("transaction 23 of t" in str(why) and why.hint for why in said if why)


@pytest.mark.parametrize(
    ("kept", "then"),
    [
        (Phase.OPEN, Phase.OPEN),
        (Phase.PUT, Phase.PUT),
        (Phase.DEADLIST, Phase.TORN),
        (Phase.COMMIT, Phase.COMMIT),
        (Phase.ACKNOWLEDGE, Phase.ACKNOWLEDGE),
    ],
)
def test_m_14_a_resumed_handle_has_lost_a_deadlist_that_went_out(kept: Phase, then: Phase) -> None:
    """M-14: everything else stands in the state."""
    assert resumed(kept) is then


def test_a_state_is_kept_as_its_golden_text_and_read_from_it() -> None:
    """Whatever is changed here is another format."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))

    assert KEPT.to_dict() == golden
    assert State.from_dict(golden) == KEPT
    assert State.from_dict(json.loads(json.dumps(KEPT.to_dict()))) == KEPT


def test_the_offsets_behind_a_deadlist_are_those_of_its_last_intents() -> None:
    """By partition, up to the last one that has any; whatever the order in which they were acknowledged."""
    where = [Delivered(2, 5), Delivered(0, 1), Delivered(2, 3)]

    assert ends_behind("t", where) == PartitionOffsets("t", (2, 0, 6))


def _changed(**fields: Any) -> dict[str, Any]:
    return {**KEPT.to_dict(), **fields}


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (_changed(format=2), "unknown format: 2"),
        ({name: value for name, value in KEPT.to_dict().items() if name != "format"}, "unknown format: None"),
        (_changed(unheard=1), "unheard"),
        ({name: value for name, value in KEPT.to_dict().items() if name != "deadlist"}, "deadlist"),
        (_changed(phase="torn"), "torn"),
        (_changed(transaction="23"), "transaction"),
        (_changed(number_place="middle"), "middle"),
        (_changed(deadlist={"topic_id": "t"}), "offsets"),
        ("{}", "must be a dict"),
    ],
)
def test_another_format_is_refused_and_never_guessed(kept: Any, said: str) -> None:
    """A newer Sexton's state, or none: a field that this one does not know may be what forbids a commit."""
    with pytest.raises(UsageError, match=said):
        State.from_dict(kept)


def test_discarded_names_have_a_bound() -> None:
    """The state stays small; one name twice counts once."""
    many = KEPT.without(f"k{n}" for n in range(MAX_DISCARDED - 2))

    assert len(many) == MAX_DISCARDED
    assert KEPT.without(OWN) == KEPT.discarded
    with pytest.raises(UsageError, match="at most"):
        KEPT.without(f"k{n}" for n in range(MAX_DISCARDED - 1))


@pytest.mark.parametrize(
    ("place", "name", "key"),
    [
        (LAST, "seg", "tenants/t/seg.23"),
        (LAST, "timelines/23/x", "tenants/t/timelines/23/x.23"),
        (LAST, "23", "tenants/t/23.23"),
        (LAST, "23a/x", "tenants/t/23a/x.23"),
        (LAST, "٢٣/x", None),
        (LAST, "a//b", None),
        (LAST, "../u/x", None),
        (FIRST, "../24/x", None),
        (FIRST, "a/./b", None),
        (FIRST, "a/", "tenants/t/23/a/"),
        (LAST, "24/x", None),
        (LAST, "007/x", None),
        (LAST, "", None),
        (LAST, "/a", None),
        (FIRST, "seg", "tenants/t/23/seg"),
        (FIRST, "24/x", "tenants/t/23/24/x"),
        (FIRST, "", None),
        (FIRST, "/a", None),
        (LAST, 7, None),
    ],
)
def test_m_6_a_key_carries_its_number_where_the_tenants_keys_do(
    place: NumberPlace, name: Any, key: str | None
) -> None:
    """M-6: and one that a reader could take for another transaction's is refused."""
    own = OwnNames("tenants/t/", 23, place)
    if key is None:
        with pytest.raises(InvalidEvent):
            own.key(name)
    else:
        assert own.key(name) == key
        assert own.carries(key)


@pytest.mark.parametrize(
    ("place", "key"),
    [
        (LAST, "tenants/t/seg.24"),
        (LAST, "tenants/t/seg.023"),
        (LAST, "tenants/t/seg.23/x"),
        (LAST, "tenants/t/seg.123"),
        (LAST, "tenants/t/24/seg.23"),
        (LAST, "tenants/OTHER/seg.23"),
        (LAST, "seg.23"),
        (FIRST, "tenants/t/24/timelines/23/x"),
        (FIRST, "tenants/t/023/x"),
        (FIRST, "tenants/t/23"),
        (FIRST, "tenants/t/23/"),
        (FIRST, "tenants/t/24/seg.23"),
        (FIRST, "tenants/OTHER/23/x"),
    ],
)
def test_m_6_what_is_not_its_own(place: NumberPlace, key: str) -> None:
    """M-6: another number, tenant or place."""
    assert not OwnNames("tenants/t/", 23, place).carries(key)


def test_a_folder_is_of_one_transaction_alone() -> None:
    """With the number first it has a prefix; with the number last no prefix is its own."""
    first = OwnNames("tenants/t/", 23, FIRST)

    assert first.folder("") == "tenants/t/23/"
    assert first.folder("a/b") == first.folder("a/b/") == "tenants/t/23/a/b/"
    with pytest.raises(UsageError, match="no prefix"):
        OwnNames("tenants/t/", 23, LAST).folder("a")


@pytest.mark.parametrize(
    ("prefix", "place"),
    [
        ("tenants/t", LAST),
        ("/t/", LAST),
        ("/", FIRST),
        ("", FIRST),
        (7, LAST),
        ("tenants//t/", LAST),
        ("tenants/../t/", FIRST),
        ("./t/", LAST),
    ],
)
def test_a_prefix_that_is_none_is_refused(prefix: Any, place: NumberPlace) -> None:
    """It ends in a slash; with the number first there must be one."""
    with pytest.raises(UsageError):
        check_prefix(prefix, place)
    check_prefix("", LAST)
    check_prefix("tenants/t/", FIRST)
