"""The bytes of version 1, which stand in topics for years."""

from __future__ import annotations

import pytest
from tests.schemas.samples import GOLDEN, SAMPLES, golden

from sexton.schemas.codec import _CLASSES, SCHEMAS, Codec
from sexton.schemas.forms import from_json, to_json


@pytest.mark.parametrize("name", SAMPLES)
def test_an_event_is_written_as_its_golden_bytes(name: str) -> None:
    """Encoding gives the bytes of the first release, byte for byte."""
    assert Codec().encode(SAMPLES[name]) == golden(name)


@pytest.mark.parametrize("name", SAMPLES)
def test_golden_bytes_are_read_as_the_event(name: str) -> None:
    """Bytes of the first release still give the same event."""
    assert Codec().decode(golden(name), type(SAMPLES[name])) == SAMPLES[name]


def test_every_schema_has_golden_bytes() -> None:
    """No event is without golden bytes, and no golden file without its event."""
    sampled = {type(event).__name__ for event in SAMPLES.values()}

    assert sampled == set(_CLASSES) == {schema.name for schema in SCHEMAS}
    assert {path.name for path in GOLDEN.iterdir()} == {f"{name}.v1.hex" for name in SAMPLES}


@pytest.mark.parametrize("name", SAMPLES)
def test_an_event_survives_its_json_form(name: str) -> None:
    """The form of JSON lines holds everything that the bytes hold."""
    event = SAMPLES[name]
    again = from_json(type(event), to_json(event))

    assert Codec().encode(again) == golden(name)
