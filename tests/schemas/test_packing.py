"""Keys and outcomes as bytes without the library: where numbers take another byte, and what no number is."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime

import fastavro
import pytest
from tests.schemas.samples import INTENT, OUTCOME
from tests.schemas.test_codec import by_the_library, read
from tests.support.versions import body

from sexton.schemas import events, packing
from sexton.schemas.codec import Codec, schema_of
from sexton.schemas.forms import to_avro


@pytest.mark.parametrize("size", [1, 63, 64, 65, 127, 128, 1023, 1024])
def test_sizes_where_a_number_takes_another_byte(size: int) -> None:
    """Keys of so many bytes, so many keys, and a receipt at such an offset are written as Avro does."""
    schema = schema_of(events.DeletionIntent)
    for phase in (["k" * size, "x"], ["k" * size] * 2, [f"{i}" for i in range(size)]):
        # With a veto the library would write it, and there would be nothing to compare.
        intent = replace(INTENT, action=events.DeleteObjects("bucket", [phase]), vetoes=[])
        assert packing.take_keys(to_avro(intent)) is not None
        assert Codec().encode(intent) == schema.header + body(schema.text, intent)
    for number in (size, 8191, 8192, 8255):
        outcome = replace(OUTCOME, position=replace(OUTCOME.position, offset=number))
        assert Codec().decode(Codec().encode(outcome), events.Outcome) == outcome


@pytest.mark.parametrize(
    "sizes", [(70, 55), (64, 1), (1, 64, 65), (128, 127, 129), (1024, 63, 1023), (70, 63, 1)]
)
@pytest.mark.parametrize("letter", ["k", "p", "n"])
def test_keys_of_mixed_sizes_are_read_as_they_were_written(sizes: tuple[int, ...], letter: str) -> None:
    """Each ends where its size says, whatever letters stand there: else other keys would be deleted."""
    keys = [letter * size for size in sizes]
    guards, action = [events.GenerationGuard("t", 3)], events.DeleteObjects("bucket", [keys])
    intent = events.DeletionIntent("i", "t", datetime(2026, 3, 1, tzinfo=UTC), "e", guards, action)

    assert packing.read_intent(Codec().encode(intent), len(packing.LAYOUT)) == intent


@pytest.mark.parametrize("generation", [2**62 - 1, 2**62, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("instant", [0, 2**58, 2**63 - 1, -(2**63)])
def test_numbers_of_any_size_are_read_or_refused(generation: int, instant: int) -> None:
    """Neither a generation of ten bytes nor a year that no calendar has ends the job."""
    guards, action = [events.GenerationGuard("t", generation)], events.DeleteObjects("bucket", [["a"]])
    intent = events.DeletionIntent("i", "t", datetime(1970, 1, 1, tzinfo=UTC), "e", guards, action)
    schema, out = schema_of(events.DeletionIntent), io.BytesIO()
    fastavro.schemaless_writer(out, schema.parsed, {**to_avro(intent), "emitted_at": instant})
    data = schema.header + out.getvalue()

    assert repr(read(data)) == repr(by_the_library(data))
    assert (read(data) == intent) if not instant else (read(data) == "malformed")
