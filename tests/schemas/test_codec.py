"""Bytes that are not exactly one known record."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schemas.samples import INTENT, SAMPLES, golden
from tests.support.versions import FixedSource, body, confluent

from sexton.schemas import events, packing
from sexton.schemas.codec import SCHEMAS, Codec, schema_of
from sexton.schemas.errors import InvalidEvent, UndecodableRecord

GOOD = golden("deletion_intent")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
INSTANT = st.integers(0, 2**52).map(lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us))
LONG = st.integers(-(2**63), 2**63 - 1)
GUARDS = st.one_of(
    st.builds(events.GenerationGuard, TEXT, LONG, st.none() | TEXT, st.none() | LONG),
    st.builds(events.TransactionGuard, TEXT, LONG, st.sampled_from(events.TransactionState)),
    st.builds(events.NotBeforeGuard, INSTANT),
    st.builds(events.BoundaryGuard, TEXT, LONG),
    st.builds(events.PromiseGuard, TEXT),
)
ACTIONS = st.one_of(
    st.builds(
        events.DeleteObjects,
        TEXT,
        st.lists(st.lists(TEXT, min_size=1, max_size=5), min_size=1, max_size=3),
        st.sampled_from(events.DeleteMode),
        st.booleans(),
    ),
    st.builds(events.DeletePrefix, TEXT, TEXT, st.sampled_from(events.DeleteMode), st.booleans(), TEXT),
    st.builds(events.AdvanceHorizon, TEXT, LONG),
)
REPLAY_OF = st.none() | st.builds(
    events.ReplayOf, TEXT, TEXT, st.integers(0, 2**31 - 1), LONG, st.none() | TEXT
)
INTENTS = st.builds(
    events.DeletionIntent,
    TEXT,
    TEXT,
    INSTANT,
    TEXT,
    st.lists(GUARDS, min_size=1, max_size=4),
    ACTIONS,
    REPLAY_OF,
)


def reason(data: bytes | None, codec: Codec | None = None) -> str:
    """Return the stable reason for which an intent cannot be decoded."""
    with pytest.raises(UndecodableRecord) as caught:
        (codec or Codec()).decode(data, events.DeletionIntent)
    return caught.value.reason


@given(INTENTS)
def test_any_intent_round_trips(intent: events.DeletionIntent) -> None:
    """Whatever the encoder takes comes back equal, in either framing."""
    registered = Codec(FixedSource({}))

    assert Codec().decode(Codec().encode(intent), events.DeletionIntent) == intent
    assert registered.decode(registered.encode(intent, "t"), events.DeletionIntent) == intent


@given(INTENTS, st.binary(min_size=1, max_size=3))
def test_f_4_bytes_after_a_record_make_it_undecodable(intent: events.DeletionIntent, more: bytes) -> None:
    """F-4: a record with anything appended is no record."""
    assert reason(Codec().encode(intent) + more) == "trailing-bytes"


def test_f_4_two_records_glued_together_are_undecodable() -> None:
    """F-4: two records in one value are no record."""
    assert reason(GOOD + GOOD) == "trailing-bytes"


@given(st.integers(0, len(GOOD) - 1))
def test_f_3_a_truncated_record_is_undecodable(length: int) -> None:
    """F-3: a record cut short anywhere is no record."""
    assert reason(GOOD[:length]) in ("empty", "unframed", "malformed")


@given(st.binary(max_size=200))
def test_garbage_never_raises_anything_else(data: bytes) -> None:
    """F-3: any bytes give an event or a typed refusal."""
    codec = Codec(FixedSource({7: schema_of(events.DeletionIntent).text}))
    for candidate in (data, GOOD[:10] + data, confluent(7, data)):
        with contextlib.suppress(UndecodableRecord):
            codec.decode(candidate, events.DeletionIntent)


def test_f_2_null_empty_and_nul_each_have_a_reason() -> None:
    """F-2: a null value, an empty one and a lone zero byte are told apart."""
    assert [reason(None), reason(b""), reason(b"\0")] == ["null", "empty", "unframed"]


def test_an_unknown_fingerprint_is_named() -> None:
    """A single-object header of a schema that nobody here has is not guessed at."""
    assert reason(b"\xc3\x01" + b"\x01" * 8 + GOOD[10:]) == "unknown-schema"


def test_a_schema_id_without_a_registry_is_undecodable() -> None:
    """A registry's framing cannot be read where no registry is configured."""
    assert reason(confluent(1, GOOD[10:])) == "no-registry"


def test_an_unknown_schema_id_is_undecodable() -> None:
    """An id that the registry does not have makes the record undecodable, and is not an outage."""
    assert reason(confluent(9, GOOD[10:]), Codec(FixedSource({}))) == "unknown-schema"


@pytest.mark.parametrize("text", ["{", '"string"', '{"type": "record"}', '{"type": "enum", "name": "E"}'])
def test_a_writers_schema_that_is_none_is_undecodable(text: str) -> None:
    """A registry entry that is no record schema dead-letters the record, not the job."""
    assert reason(confluent(1, GOOD[10:]), Codec(FixedSource({1: text}))) == "bad-schema"


@pytest.mark.parametrize("name", [name for name in SAMPLES if not name.startswith("deletion_intent")])
def test_another_kind_of_record_is_not_an_intent(name: str) -> None:
    """A valid record of another kind is refused by its type, never read as an intent."""
    assert reason(golden(name)) == "wrong-type"


def test_fingerprints_are_those_of_the_specification() -> None:
    """The header is C3 01 and the CRC-64-AVRO of the canonical form, little endian (`"int"` is published)."""
    from fastavro.schema import fingerprint

    assert fingerprint('"int"', "CRC-64-AVRO") == "8f5c393f1ad57572"
    assert len({schema.header for schema in SCHEMAS}) == len(SCHEMAS)
    assert all(schema.header.startswith(b"\xc3\x01") for schema in SCHEMAS)


def test_equal_bytes_for_equal_intents() -> None:
    """Encoding is deterministic: a replayed intent has the same bytes."""
    assert Codec().encode(INTENT) == Codec().encode(INTENT)


KEY = st.text(st.characters(codec="ascii"), max_size=9) | st.text(st.characters(exclude_categories=["Cs"]))


@given(
    st.lists(st.lists(KEY, max_size=6) | st.just(["k" * 1_024]) | st.just(["k" * 70] * 70), max_size=4),
    REPLAY_OF,
)
def test_packed_keys_have_the_bytes_that_avro_gives_them(
    phases: list[list[str]], replay_of: events.ReplayOf | None
) -> None:
    """The shortcut for keys writes what the Avro library writes, byte for byte."""
    intent = replace(INTENT, action=events.DeleteObjects("bucket", phases), replay_of=replay_of)
    schema = schema_of(events.DeletionIntent)

    assert Codec().encode(intent) == schema.header + body(schema.text, intent)


ASCII = st.text(st.characters(codec="ascii"), min_size=1, max_size=9)
WIDE = st.integers(1, 300).flatmap(
    lambda n: st.lists(st.text(st.characters(codec="ascii"), min_size=n, max_size=n), min_size=1, max_size=5)
)
PLAIN = st.builds(
    events.DeletionIntent,
    TEXT | st.just("i" * 70),
    TEXT,
    INSTANT,
    TEXT,
    st.builds(events.GenerationGuard, TEXT, st.integers(0, 2**32 - 1)).map(lambda guard: [guard]),
    st.builds(
        events.DeleteObjects,
        TEXT,
        st.lists(st.lists(ASCII, min_size=1, max_size=6) | WIDE, min_size=1, max_size=1),
    ),
)


def by_the_library(data: bytes) -> events.DeletionIntent | str:
    """Return what is read without the shortcut: the intent, or the reason why there is none."""
    with patch.object(packing, "read_intent", return_value=None):
        return read(data)


def read(data: bytes) -> events.DeletionIntent | str:
    """Return the intent in the data, or the reason why there is none."""
    try:
        return Codec().decode(data, events.DeletionIntent)
    except UndecodableRecord as error:
        return error.reason


def damaged(data: bytes) -> Iterator[bytes]:
    """Yield the data with each byte of its body changed in some ways, left out, or with one before it."""
    yield data
    for at in range(10, len(data)):
        for byte in {0, 1, 2, 3, 4, 0x7F, 0x80, 0xFF, *(data[at] ^ 1 << bit for bit in range(8))}:
            yield data[:at] + bytes([byte]) + data[at + 1 :]
        yield data[:at] + data[at + 1 :]
        yield from (data[:at] + more + data[at:] for more in (b"\0", b"\2", b"a", b"\x80"))


@pytest.mark.parametrize(
    "keys", [["a"], ["aa", "bb"], ["a", "bb"], ["k" * 70] * 2, ["k" * 70, "x"], ["é", "e"]], ids=str
)
def test_f_4_the_shortcut_reads_what_the_library_reads(keys: list[str]) -> None:
    """F-4: whole, or with any byte changed, lost or added: the same intent, or the same reason for none."""
    guards, action = [events.GenerationGuard("t", 3)], events.DeleteObjects("bucket", [keys])
    intent = events.DeletionIntent("i", "t", datetime(2026, 3, 1, tzinfo=UTC), "e", guards, action)

    for data in damaged(Codec().encode(intent)):
        # As text: an intent that is equal but holds another type would not be the same.
        assert repr(read(data)) == repr(by_the_library(data))


@given(PLAIN)
def test_the_shortcut_is_taken_for_plain_intents(intent: events.DeletionIntent) -> None:
    """A plain delete of ASCII keys under one generation does not need the library, whatever their sizes."""
    header = schema_of(events.DeletionIntent).header

    assert header == packing.LAYOUT
    assert packing.read_intent(Codec().encode(intent), len(header)) == intent


NUMBERS = st.dictionaries(TEXT, LONG, max_size=3)
OUTCOMES = st.builds(
    events.Outcome,
    TEXT | st.just("i" * 1_025),
    TEXT,
    TEXT,
    st.sampled_from(events.OutcomeKind),
    LONG,
    NUMBERS,
    st.just([])
    | st.builds(events.KeyOutcome, TEXT, st.sampled_from(events.OutcomeKind), TEXT).map(lambda k: [k]),
    st.builds(events.Verdict, st.sampled_from(events.VerdictResult), TEXT, TEXT, st.none() | LONG),
    st.builds(events.Position, TEXT, st.integers(0, 2**31 - 1), LONG),
    st.lists(TEXT, max_size=3),
    INSTANT,
    NUMBERS,
)
OUTCOME = events.Outcome(
    "i",
    "t",
    "b",
    events.OutcomeKind.DELETED,
    1,
    {"deleted": 1},
    [],
    events.Verdict(events.VerdictResult.PASS, "pass", "", 5),
    events.Position("topic", 1, 2),
    ["request"],
    datetime(2026, 3, 1, tzinfo=UTC),
    {"deleted": 1},
)
STRANGE: tuple[Any, ...] = (
    None,
    -1,
    2**31,
    2**63,
    2.5,
    True,
    "x",
    "\ud800",
    b"x",
    (),
    ("x",),
    ["x"],
    {},
    {"x": "y"},
    {"x": True},
    {1: 1},
    datetime(2026, 3, 1),  # noqa: DTZ001  # naive on purpose
    datetime(1960, 1, 1, tzinfo=UTC),
)


def written(outcome: events.Outcome) -> bytes | str:
    """Return the bytes of an outcome, or why it has none."""
    try:
        return Codec().encode(outcome)
    except InvalidEvent as error:
        return str(error)


@given(OUTCOMES)
def test_a_packed_outcome_has_the_bytes_that_avro_gives_it(outcome: events.Outcome) -> None:
    """The shortcut for outcomes writes what the Avro library writes, byte for byte."""
    with patch.object(packing, "write_outcome", return_value=None):
        expected = Codec().encode(outcome)

    assert Codec().encode(outcome) == expected
    assert Codec().decode(expected, events.Outcome) == outcome


def _with(whole: Any, field: str, value: object) -> Any:
    """Return a copy with another value in one field, whatever its type."""
    return replace(whole, **{field: value})


def test_a_strange_outcome_is_refused_as_ever() -> None:
    """Any field of another type or range than it should have is refused as it is without the shortcut."""
    strange = [_with(OUTCOME, field, value) for field in OUTCOME.__slots__ for value in STRANGE]
    for part in ("verdict", "position"):
        whole = getattr(OUTCOME, part)
        changed = [_with(whole, field, value) for field in whole.__slots__ for value in STRANGE]
        strange += [_with(OUTCOME, part, each) for each in changed]
    found = [written(outcome) for outcome in strange]
    with patch.object(packing, "write_outcome", return_value=None):
        expected = [written(outcome) for outcome in strange]

    assert packing.write_outcome(OUTCOME) is not None
    assert found == expected
    assert sum(isinstance(each, str) for each in found) > len(found) / 2
