"""Test-only later versions of the intent's schema, as a newer writer would have them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import fastavro
from fastavro.schema import to_parsing_canonical_form

from sexton.schemas import events
from sexton.schemas.codec import Schema, schema_of
from sexton.schemas.forms import to_avro

__all__ = [
    "FixedSource",
    "body",
    "canonical",
    "confluent",
    "newer",
    "with_condition",
    "with_field",
    "with_guard",
    "with_identifier",
    "with_mode",
    "with_time_of_day",
    "without_logical_types",
]


class FixedSource:
    """A registry in memory: schema texts by id."""

    def __init__(self, texts: Mapping[int, str]) -> None:
        self._texts = dict(texts)
        self.asked: list[int] = []

    def schema(self, schema_id: int) -> str | None:
        """Return the text of an id."""
        self.asked.append(schema_id)
        return self._texts.get(schema_id)

    def register(self, subject: str, text: str) -> int:
        """Return the id of a text, a new one if it has none."""
        for schema_id, known in self._texts.items():
            if known == text:
                return schema_id
        self._texts[len(self._texts) + 1] = text
        return len(self._texts)


def newer(*changes: Callable[[dict[str, Any]], None]) -> str:
    """Return the intent's schema as the next version, changed."""
    raw = json.loads(schema_of(events.DeletionIntent).text)
    raw["version"] += 1
    for change in changes:
        change(raw)
    return json.dumps(raw)


def canonical(text: str) -> str:
    """Return a schema as some registries keep it: in canonical form: no logical types, no defaults."""
    return to_parsing_canonical_form(json.loads(text))


def without_logical_types(raw: Any) -> None:
    """Leave out what tells an instant from a number."""
    if isinstance(raw, dict):
        raw.pop("logicalType", None)
        for value in raw.values():
            without_logical_types(value)
    elif isinstance(raw, list):
        for value in raw:
            without_logical_types(value)


def with_identifier(raw: dict[str, Any]) -> None:
    """Read the intent's id as a UUID."""
    raw["fields"][0]["type"] = {"type": "string", "logicalType": "uuid"}


def with_time_of_day(raw: dict[str, Any]) -> None:
    """Read the generation of a guard as a time of day."""
    guards = next(field for field in raw["fields"] if field["name"] == "guards")
    generation = guards["type"]["items"][0]["fields"][1]
    generation["type"] = {"type": "long", "logicalType": "time-micros"}


def with_field(raw: dict[str, Any]) -> None:
    """Add a field with a default, in the middle: the usual change."""
    raw["fields"].insert(2, {"name": "priority", "type": "int", "default": 0})


def with_mode(raw: dict[str, Any]) -> None:
    """Add a symbol to the delete mode."""
    action = next(field for field in raw["fields"] if field["name"] == "action")
    mode = next(field for field in action["type"][0]["fields"] if field["name"] == "mode")
    mode["type"]["symbols"].append("shred")


def with_guard(raw: dict[str, Any]) -> None:
    """Add a kind of guard."""
    guards = next(field for field in raw["fields"] if field["name"] == "guards")
    guards["type"]["items"].append(
        {"type": "record", "name": "MoonGuard", "fields": [{"name": "phase", "type": "string"}]}
    )


def with_condition(raw: dict[str, Any]) -> None:
    """Add a field to a known guard."""
    guards = next(field for field in raw["fields"] if field["name"] == "guards")
    known = next(guard for guard in guards["type"]["items"] if guard["name"] == "GenerationGuard")
    known["fields"].append({"name": "only_if", "type": "string", "default": ""})


def body(text: str, event: events.Event, **changes: Any) -> bytes:
    """Return the Avro body of an event as the writer of that schema would write it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, Schema.parse(text).parsed, {**to_avro(event), **changes})
    return out.getvalue()


def confluent(schema_id: int, body: bytes) -> bytes:
    """Return a body in the registry's framing."""
    return b"\0" + schema_id.to_bytes(4, "big") + body
