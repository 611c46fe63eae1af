"""Records of a newer writer, through the registry's framing."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import pytest
from tests.schemas.samples import INTENT, OLDER, SAMPLES, golden
from tests.support.versions import (
    FixedSource,
    body,
    confluent,
    newer,
    with_condition,
    with_field,
    with_guard,
    with_mode,
)

from sexton.schemas import codec as codec_module
from sexton.schemas import events
from sexton.schemas.codec import _VERSIONS, SCHEMAS, Codec, Schema, schema_of
from sexton.schemas.errors import UndecodableRecord
from sexton.schemas.forms import to_avro

GUARD = events.GenerationGuard("t", 1)
KNOWN = schema_of(events.DeletionIntent).text
NEWER = newer(with_field)


def test_f_3_a_newer_version_is_read_by_an_older_reader() -> None:
    """F-3: a field that the reader does not know is skipped, by the writer's own schema."""
    codec = Codec(FixedSource({2: NEWER}))

    assert codec.decode(confluent(2, body(NEWER, INTENT, priority=9)), events.DeletionIntent) == INTENT


def test_f_3_versions_and_framings_interleave() -> None:
    """F-3: each record is decoded by its own writer's schema, whatever came before it."""
    codec = Codec(FixedSource({1: KNOWN, 2: NEWER}))
    first, second = confluent(1, body(KNOWN, INTENT)), confluent(2, body(NEWER, INTENT))
    single = golden("deletion_intent")

    read = [codec.decode(data, events.DeletionIntent) for data in (first, second, single, second, first)]

    assert read == [INTENT] * 5


def test_f_3_a_schema_id_is_read_whole() -> None:
    """F-3: two ids that differ in their highest byte are two schemas."""
    high = 7 << 24 | 1
    codec = Codec(FixedSource({1: NEWER, high: KNOWN}))

    assert codec.decode(confluent(high, body(KNOWN, INTENT)), events.DeletionIntent) == INTENT
    assert codec.decode(confluent(1, body(NEWER, INTENT)), events.DeletionIntent) == INTENT


def test_f_3_a_writer_with_its_fields_in_another_order_is_read_by_name() -> None:
    """F-3: the shortcut knows one order of fields; under another one, id and tenant would be each other's."""

    def turned(raw: dict[str, Any]) -> None:
        first, second, *rest = raw["fields"]
        raw["fields"] = [second, first, *rest]

    text = newer(turned)
    plain = events.DeletionIntent(
        "the id", "the tenant", INTENT.emitted_at, "e", [GUARD], events.DeleteObjects("bucket", [["k"]])
    )
    codec = Codec(FixedSource({2: text}))

    assert codec.decode(confluent(2, body(text, plain)), events.DeletionIntent) == plain


def test_f_3_the_wrong_writers_schema_is_not_guessed() -> None:
    """F-3: bytes of a newer version under an older one's id are undecodable, not almost right."""
    codec = Codec(FixedSource({1: KNOWN}))

    with pytest.raises(UndecodableRecord):
        codec.decode(confluent(1, body(NEWER, INTENT)), events.DeletionIntent)


def test_a_field_that_may_narrow_a_guard_is_never_dropped() -> None:
    """A newer writer's field inside a known guard is named in the dead letter: dropped, it would widen it."""
    text = newer(with_condition)
    codec = Codec(FixedSource({2: text}))
    guard = ("sexton.GenerationGuard", {**to_avro(GUARD), "only_if": "x"})

    with pytest.raises(UndecodableRecord, match=r"GenerationGuard\.only_if") as caught:
        codec.decode(confluent(2, body(text, INTENT, guards=[guard])), events.DeletionIntent)

    assert caught.value.reason == "unknown-field"


def test_a_schema_is_asked_for_once() -> None:
    """The registry is asked once for each id, not for each record."""
    source = FixedSource({2: NEWER})
    codec = Codec(source)
    for _ in range(3):
        codec.decode(confluent(2, body(NEWER, INTENT)), events.DeletionIntent)

    assert source.asked == [2]


def test_f_5_an_unknown_enum_symbol_is_named() -> None:
    """F-5: an unknown delete mode is a dead letter that names it, never a plain delete."""
    text = newer(with_mode)
    action = to_avro(INTENT)["action"][1] | {"mode": "shred"}
    data = confluent(1, body(text, INTENT, action=("sexton.DeleteObjects", action)))

    with pytest.raises(UndecodableRecord, match="shred") as caught:
        Codec(FixedSource({1: text})).decode(data, events.DeletionIntent)

    assert caught.value.reason == "malformed"


def test_f_5_an_unknown_union_branch_is_named() -> None:
    """F-5: an unknown guard is a dead letter that names it, never an intent without it."""
    text = newer(with_guard)
    guards = [*to_avro(INTENT)["guards"], ("sexton.MoonGuard", {"phase": "full"})]
    data = confluent(1, body(text, INTENT, guards=guards))

    with pytest.raises(UndecodableRecord, match="MoonGuard") as caught:
        Codec(FixedSource({1: text})).decode(data, events.DeletionIntent)

    assert len(str(caught.value)) < 400


def test_f_5_a_known_intent_of_the_newer_writer_is_read() -> None:
    """F-5: what uses no new symbol and no new branch is read as ever."""
    for change in (with_mode, with_guard):
        text = newer(change)
        data = confluent(1, body(text, INTENT))

        assert Codec(FixedSource({1: text})).decode(data, events.DeletionIntent) == INTENT


def test_an_unknown_outcome_word_is_named() -> None:
    """F-5: an outcome of a newer version is not folded as another one."""
    text = schema_of(events.Outcome).text
    data = schema_of(events.Outcome).header + body(text, SAMPLES["outcome"], outcome="vanished")

    with pytest.raises(UndecodableRecord, match="vanished"):
        Codec().decode(data, events.Outcome)


def _older(cls: type[events.Event], version: int) -> Schema:
    return next(schema for schema in SCHEMAS if (schema.name, schema.version) == (cls.__name__, version))


@pytest.mark.parametrize(("name", "version"), OLDER)
def test_f_3_a_record_of_an_older_version_has_the_defaults_of_the_newest(name: str, version: int) -> None:
    """F-3: what an older writer has written is read with defaults, in either framing."""
    event = OLDER[name, version]
    older = _older(type(event), version)
    plain = {field["name"]: to_avro(event)[field["name"]] for field in older.parsed["fields"]}
    data = body(older.text, event)

    assert set(to_avro(event)) > set(plain)
    assert Codec(FixedSource({4: older.text})).decode(confluent(4, data), type(event)) == event
    assert Codec().decode(older.header + data, type(event)) == event


NARROWED = {name for name in SAMPLES if name.startswith("deletion_intent")}


@pytest.mark.parametrize(("name", "version"), [*OLDER, ("deletion_intent_replay", 1)])
def test_f_3_a_reader_of_an_older_version_reads_the_newest(
    name: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-3, F-5: an older reader skips what it does not know, unless that may narrow a delete."""
    sample = SAMPLES[name]
    text, older = schema_of(type(sample)).text, _older(type(sample), version)
    data = confluent(9, body(text, sample))
    with monkeypatch.context() as patch:  # a process that has only ever had the older version
        patch.setattr(codec_module, "schema_of", lambda cls: older)
        patch.setattr(codec_module, "_BY_HEADER", {older.header: older})
        patch.setattr(codec_module, "from_avro", lambda cls, plain: plain)
        patch.setattr(codec_module, "_check_types", lambda event, reader: None)  # of the class
        if name in NARROWED:
            # Dropped, a veto, a pause or a floor would let more be deleted than was asked for.
            with pytest.raises(UndecodableRecord) as unread:
                Codec(FixedSource({9: text})).decode(data, type(sample))
            assert unread.value.reason == "unknown-field"
        else:
            read = Codec(FixedSource({9: text})).decode(data, type(sample))
            assert read == Codec().decode(older.header + body(older.text, sample), type(sample))
        with pytest.raises(UndecodableRecord) as caught:
            Codec().decode(golden(name), type(sample))

    assert caught.value.reason == "unknown-schema"


def _without_additions(one: Any, other: Any) -> Any:
    """A newer version's schema without those fields, at the ends of its records, that have a default."""
    if isinstance(other, list):
        return [_without_additions(a, b) for a, b in zip(one, other, strict=True)]
    if not isinstance(other, dict):
        return other
    found = {key: value for key, value in other.items() if key not in ("version", "doc")}
    if "fields" in other:
        added = other["fields"][len(one["fields"]) :]
        assert all("default" in field for field in added)
        found["fields"] = [
            _without_additions(a, b) for a, b in zip(one["fields"], other["fields"], strict=False)
        ]
    for key in ("type", "items"):
        if isinstance(other.get(key), dict | list):
            found[key] = _without_additions(one[key], other[key])
    return found


def _plain(schema: Any) -> Any:
    """A schema without what is for people."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _plain(value) for key, value in schema.items() if key not in ("version", "doc")}


def test_versions_differ_in_fields_with_defaults_at_the_end() -> None:
    """A version adds fields to records, at their ends, with defaults that the event class has too."""
    for cls in _VERSIONS:
        versions = sorted((s for s in SCHEMAS if s.name == cls.__name__), key=lambda s: s.version)
        for one, other in itertools.pairwise(json.loads(schema.text) for schema in versions):
            assert _without_additions(one, other) == _plain(one)
        assert [s.version for s in versions] == list(range(1, _VERSIONS[cls] + 1))
        (newest,) = (json.loads(s.text)["fields"] for s in versions[-1:])
        in_schema = {field["name"]: field["default"] for field in newest if "default" in field}
        assert in_schema == _defaults_of(cls)


def _defaults_of(cls: type[events.Event]) -> dict[str, object]:
    found: dict[str, object] = {}
    for field in dataclasses.fields(cls):
        if field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
        elif field.default is not dataclasses.MISSING:
            found[field.name] = field.default
    return found
