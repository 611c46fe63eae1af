"""Records of a newer writer, through the registry's framing."""

from __future__ import annotations

import pytest
from tests.schemas.samples import INTENT, golden
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

from sexton.schemas import events
from sexton.schemas.codec import Codec, schema_of
from sexton.schemas.errors import UndecodableRecord
from sexton.schemas.forms import to_avro

GUARD = events.GenerationGuard("t", 1)
V1 = schema_of(events.DeletionIntent).text
V2 = newer(with_field)


def test_f_3_a_second_version_is_read_by_the_first() -> None:
    """F-3: a field that the reader does not know is skipped, by the writer's own schema."""
    codec = Codec(FixedSource({2: V2}))

    assert codec.decode(confluent(2, body(V2, INTENT, priority=9)), events.DeletionIntent) == INTENT


def test_f_3_versions_and_framings_interleave() -> None:
    """F-3: each record is decoded by its own writer's schema, whatever came before it."""
    codec = Codec(FixedSource({1: V1, 2: V2}))
    first, second = confluent(1, body(V1, INTENT)), confluent(2, body(V2, INTENT))
    single = golden("deletion_intent")

    read = [codec.decode(data, events.DeletionIntent) for data in (first, second, single, second, first)]

    assert read == [INTENT] * 5


def test_f_3_the_wrong_writers_schema_is_not_guessed() -> None:
    """F-3: bytes of version 2 under the id of version 1 are undecodable, not almost right."""
    codec = Codec(FixedSource({1: V1}))

    with pytest.raises(UndecodableRecord):
        codec.decode(confluent(1, body(V2, INTENT)), events.DeletionIntent)


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
    source = FixedSource({2: V2})
    codec = Codec(source)
    for _ in range(3):
        codec.decode(confluent(2, body(V2, INTENT)), events.DeletionIntent)

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
    """F-5: an outcome word of a newer version is not folded as another one."""
    from tests.schemas.samples import SAMPLES

    text = schema_of(events.Outcome).text
    data = schema_of(events.Outcome).header + body(text, SAMPLES["outcome"], outcome="vanished")

    with pytest.raises(UndecodableRecord, match="vanished"):
        Codec().decode(data, events.Outcome)
