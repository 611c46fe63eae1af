"""The bytes of each version, which stand in topics for years."""

from __future__ import annotations

import pytest
from tests.schemas.samples import GOLDEN, OLDER, SAMPLES, golden

from sexton.schemas.codec import _CLASSES, SCHEMAS, Codec, schema_of
from sexton.schemas.forms import from_json, to_json


@pytest.mark.parametrize("name", SAMPLES)
def test_an_event_is_written_as_its_golden_bytes(name: str) -> None:
    """Encoding gives the bytes of the version's first release, byte for byte."""
    assert Codec().encode(SAMPLES[name]) == golden(name)


@pytest.mark.parametrize("name", SAMPLES)
def test_golden_bytes_are_read_as_the_event(name: str) -> None:
    """Bytes of the version's first release still give the same event."""
    assert Codec().decode(golden(name), type(SAMPLES[name])) == SAMPLES[name]


@pytest.mark.parametrize(("name", "version"), OLDER)
def test_golden_bytes_of_older_versions_are_read_as_ever(name: str, version: int) -> None:
    """Older bytes give the same event as then, and what was added since has its default."""
    event = OLDER[name, version]

    assert Codec().decode(golden(name, version), type(event)) == event


def test_every_schema_has_golden_bytes() -> None:
    """No event is without golden bytes, and no golden file without its event."""
    sampled = {type(event).__name__ for event in SAMPLES.values()}

    assert sampled == set(_CLASSES) == {schema.name for schema in SCHEMAS}
    newest = {f"{name}.v{schema_of(type(event)).version}.hex" for name, event in SAMPLES.items()}
    assert {path.name for path in GOLDEN.iterdir()} == newest | {
        f"{name}.v{version}.hex" for name, version in OLDER
    }
    assert {(type(event).__name__, version) for (_, version), event in OLDER.items()} == {
        (schema.name, schema.version)
        for schema in SCHEMAS
        if schema.version < schema_of(_CLASSES[schema.name]).version
    }


@pytest.mark.parametrize("name", SAMPLES)
def test_an_event_survives_its_json_form(name: str) -> None:
    """The form of JSON lines holds everything that the bytes hold."""
    event = SAMPLES[name]
    again = from_json(type(event), to_json(event))

    assert Codec().encode(again) == golden(name)
