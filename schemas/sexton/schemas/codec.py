"""Avro bytes to events and back, with either framing.

Single-object encoding is `C3 01`, the CRC-64-AVRO fingerprint of the writer's schema (8 bytes, little endian)
and the body (Avro specification 1.12, "Single object encoding"). The Confluent header is `00` and the
registry's schema id (4 bytes, big endian). A reader takes both, each record by its own writer's schema.
A record is decoded to its last byte: whatever is left over makes it undecodable, as two records glued
together or one cut short must never turn into a delete.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Protocol, TypeVar, cast

import fastavro
from fastavro.schema import SchemaParseException, fingerprint, parse_schema, to_parsing_canonical_form

from sexton.schemas import events, packing
from sexton.schemas.errors import InvalidEvent, UndecodableRecord
from sexton.schemas.forms import NAMESPACE, from_avro, to_avro
from sexton.schemas.memo import cache

__all__ = ["EVENTS", "SCHEMAS", "Codec", "Schema", "SchemaSource", "schema_of"]

_Event = TypeVar("_Event", bound=events.Event)
_SINGLE_OBJECT = b"\xc3\x01"
_SINGLE_OBJECT_HEADER = 10
_CONFLUENT_HEADER = 5
_SCHEMAS_KEPT = 1_000  # of a registry; one that falls out costs a request when it is met again
_LONGEST_REASON = 300  # fastavro may put both schemas into its message
_VERSIONS = {  # the newest version of each record; the reader's schema
    events.DeletionIntent: 3,
    events.DeferredIntent: 5,
    events.Outcome: 2,
    events.DeadLetter: 2,
    events.Genesis: 1,
    events.Issued: 1,
    events.Barrier: 1,
    events.Detached: 1,
    events.Dropped: 1,
    events.SnapshotChunk: 2,
    events.SnapshotManifest: 2,
    events.IssuedFirstForm: 1,
    events.NodeRegistered: 1,
    events.Fenced: 1,
    events.Imported: 1,
    events.TransactionStarted: 1,
    events.TransactionCommitted: 1,
    events.TransactionAcknowledged: 1,
    events.NodeDecommissioned: 1,
    events.TransactionCollected: 1,
    events.TransactionsImported: 1,
}


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of one record's schema; `header` starts its single-object encoding."""

    name: str
    version: int
    text: str
    parsed: Any
    header: bytes

    @classmethod
    def parse(cls, text: str) -> Schema:
        """Return the schema of an `.avsc` text; raises UndecodableRecord when it is none."""
        try:
            raw = json.loads(text)
            parsed: Any = parse_schema(raw)
            print_ = bytes.fromhex(fingerprint(to_parsing_canonical_form(raw), "CRC-64-AVRO"))
        except (SchemaParseException, ValueError, TypeError, KeyError) as error:
            raise UndecodableRecord("bad-schema", f"the writer's schema is not Avro: {error}") from error
        if not isinstance(raw, dict) or raw.get("type") != "record":
            raise UndecodableRecord("bad-schema", "the writer's schema is not a record")
        name = str(parsed["name"]).removeprefix(f"{NAMESPACE}.")
        return cls(name, int(raw.get("version", 0)), text, parsed, _SINGLE_OBJECT + print_)


class SchemaSource(Protocol):
    """What the codec needs of a schema registry."""

    def schema(self, schema_id: int) -> str | None:
        """Return a schema's text, None if there is no such id; raises EnvironmentFault when away."""

    def register(self, subject: str, text: str) -> int:
        """Register a schema under a subject and return its id; raises EnvironmentFault when away."""


@cache
def schema_of(cls: type) -> Schema:
    """Return the newest schema of an event class."""
    snake = "".join("_" + c.lower() if c.isupper() else c for c in cls.__name__).lstrip("_")
    file = resources.files("sexton.schemas") / "avro" / f"{snake}.v{_VERSIONS[cls]}.avsc"
    return Schema.parse(file.read_text(encoding="utf-8"))


def _load_all() -> tuple[Schema, ...]:
    folder = resources.files("sexton.schemas") / "avro"
    return tuple(
        Schema.parse(file.read_text(encoding="utf-8"))
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".avsc")
    )


SCHEMAS: tuple[Schema, ...] = _load_all()
_BY_HEADER: Mapping[bytes, Schema] = {schema.header: schema for schema in SCHEMAS}
EVENTS: tuple[type[events.Event], ...] = tuple(_VERSIONS)
_CLASSES = {cls.__name__: cls for cls in _VERSIONS}


class Codec:
    """Encodes and decodes events; with a registry it writes its header, else single-object encoding."""

    def __init__(self, registry: SchemaSource | None = None) -> None:
        self._registry = registry
        self._by_id: dict[int, Schema] = {}
        self._ids: dict[tuple[str, str], int] = {}

    def encode(self, event: events.Event, topic: str = "") -> bytes:
        """Return the framed bytes of an event.

        Raises InvalidEvent for a field of the wrong type, a naive datetime or text that UTF-8 cannot carry;
        EnvironmentFault when the registry is away.
        """
        if type(event) not in _VERSIONS:
            raise InvalidEvent(f"not an event: {type(event).__name__}")
        schema = schema_of(type(event))
        header = schema.header if self._registry is None else self._confluent_header(schema, topic)
        if isinstance(event, events.Outcome) and (packed := packing.write_outcome(event)) is not None:
            return header + packed
        out = io.BytesIO()
        out.write(header)
        plain = to_avro(event)
        keys = packing.take_keys(plain) if type(event) is events.DeletionIntent else None
        try:
            fastavro.schemaless_writer(out, schema.parsed, plain, strict=True)
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InvalidEvent(f"not a {schema.name}: {error}") from error
        return out.getvalue() if keys is None else packing.splice(out.getvalue(), keys)

    def _confluent_header(self, schema: Schema, topic: str) -> bytes:
        registry = cast(SchemaSource, self._registry)
        subject = f"{topic}-value" if topic else schema.name
        if (subject, schema.name) not in self._ids:
            self._ids[subject, schema.name] = registry.register(subject, schema.text)
        return b"\0" + self._ids[subject, schema.name].to_bytes(4, "big")

    def decode(self, data: bytes | None, *expected: type[_Event]) -> _Event:
        """Return the event in `data`, which must be one whole record of one of the expected classes.

        Raises UndecodableRecord with a stable reason: `null`, `empty`, `unframed`, `unknown-schema`,
        `no-registry`, `bad-schema`, `wrong-type`, `unknown-field`, `malformed`, `trailing-bytes`.
        """
        event, left = self.decode_first(data, *expected)
        if left:
            raise UndecodableRecord("trailing-bytes", f"bytes left after the record: {left}")
        return event

    def decode_first(self, data: bytes | None, *expected: type[_Event]) -> tuple[_Event, int]:
        """Return the event at the start of `data`, and how many bytes are left after it.

        For people who look at a dead letter; what is processed is read by `decode`. Raises what it raises.
        """
        writer, start = self._writer(data)
        cls = _CLASSES.get(writer.name)
        if cls is None or cls not in expected:
            names = " or ".join(c.__name__ for c in expected)
            raise UndecodableRecord("wrong-type", f"expected {names}, not {writer.name}")
        reader = schema_of(cls)
        # Our own older versions lack nothing but fields that have defaults: leaving these to the events is
        # several times as fast as Avro's resolution.
        ours = writer.header in _BY_HEADER
        if not ours and (unknown := _unknown_part(writer, reader)):
            raise UndecodableRecord("unknown-field", f"a newer writer's field that may narrow it: {unknown}")
        if writer.header == packing.LAYOUT and (intent := packing.read_intent(cast(bytes, data), start)):
            return cast(_Event, intent), 0
        stream = io.BytesIO(cast(bytes, data))
        stream.seek(start)
        try:
            plain = fastavro.schemaless_reader(
                stream,
                writer.parsed,
                None if ours else reader.parsed,
                return_record_name=True,
                return_record_name_override=True,
            )
            event = from_avro(cls, cast(Any, plain))
            if not ours:
                _check_types(event, reader)
        except Exception as error:
            # fastavro raises whatever the bytes led it to; each is the same fact: not this record.
            why = _unknown_branch(writer, reader, cast(bytes, data), start)
            why = why or f"{type(error).__name__}: {str(error)[:_LONGEST_REASON]}"
            raise UndecodableRecord("malformed", f"not a {writer.name}: {why}") from error
        return event, len(cast(bytes, data)) - stream.tell()

    def _writer(self, data: bytes | None) -> tuple[Schema, int]:
        if data is None:
            raise UndecodableRecord("null", "the record has no value")
        if not data:
            raise UndecodableRecord("empty", "the record's value is empty")
        if schema := _BY_HEADER.get(data[:_SINGLE_OBJECT_HEADER]):
            return schema, _SINGLE_OBJECT_HEADER
        if data[:2] == _SINGLE_OBJECT and len(data) >= _SINGLE_OBJECT_HEADER:
            raise UndecodableRecord("unknown-schema", f"unknown schema fingerprint: {data[2:10].hex()}")
        if data[0] == 0 and len(data) >= _CONFLUENT_HEADER:
            return self._by_registry(int.from_bytes(data[1:5], "big")), _CONFLUENT_HEADER
        raise UndecodableRecord("unframed", f"neither framing: starts with {data[:4].hex()}")

    def _by_registry(self, schema_id: int) -> Schema:
        known = self._by_id.get(schema_id)
        if known is not None:
            return known
        if self._registry is None:
            raise UndecodableRecord("no-registry", f"no registry to look up schema id: {schema_id}")
        text = self._registry.schema(schema_id)
        if text is None:
            raise UndecodableRecord("unknown-schema", f"the registry has no schema id: {schema_id}")
        found = Schema.parse(text)
        # A registry may keep our schema in canonical form, without what tells an instant from a number.
        # By its fingerprint it is ours, and is read as ours.
        found = _BY_HEADER.get(found.header, found)
        if len(self._by_id) >= _SCHEMAS_KEPT:
            self._by_id.clear()
        self._by_id[schema_id] = found
        return found


def _check_types(event: Any, reader: Schema) -> None:
    """Raise what a writer raises for a value of another type than the reader's schema has.

    A writer's schema may lack a logical type, or have another one: then what Avro reads is a number where an
    instant should be, or an identifier that is no text, and everything behind would stumble over it.
    """
    fastavro.schemaless_writer(io.BytesIO(), reader.parsed, to_avro(event))


def _unknown_part(writer: Schema, reader: Schema) -> str | None:
    """Return the first field that only the writer knows inside a guard, an action or another nested record.

    Avro's resolution drops such a field. At the top of a record that is how versions live together; inside a
    guard it may be the very condition that keeps the object, and dropping it would make the guard wider.
    """
    known = _nested(reader.parsed, top=True)
    for name, fields in sorted(_nested(writer.parsed, top=True).items()):
        if unknown := sorted(fields - known.get(name, fields)):
            return f"{name.removeprefix(f'{NAMESPACE}.')}.{unknown[0]}"
    return None


def _nested(schema: Any, *, top: bool = False) -> dict[str, set[str]]:
    """Return the field names of every record below the top one."""
    found: dict[str, set[str]] = {}
    if isinstance(schema, list):
        for branch in schema:
            found |= _nested(branch)
    elif isinstance(schema, dict):
        fields = schema.get("fields", ())
        if fields and not top:
            found[str(schema["name"])] = {field["name"] for field in fields}
        for inner in (*(field["type"] for field in fields), schema.get("items"), schema.get("values")):
            found |= _nested(inner)
        if isinstance(schema.get("type"), dict | list):
            found |= _nested(schema["type"])
    return found


def _unknown_branch(writer: Schema, reader: Schema, data: bytes, start: int) -> str | None:
    """Return the name of a union branch that only the writer's schema knows, for the dead letter."""
    if writer.header == reader.header:
        return None
    stream = io.BytesIO(data)
    stream.seek(start)
    try:
        plain = fastavro.schemaless_reader(
            stream, writer.parsed, None, return_record_name=True, return_record_name_override=True
        )
    except Exception:  # noqa: BLE001 - cannot be read by its own schema either: the first error says it all
        return None
    unknown = sorted(_branches(plain) - {f"{NAMESPACE}.{name}" for name in events.__all__})
    return f"unknown union branch: {', '.join(unknown)}" if unknown else None


def _branches(plain: Any) -> set[str]:
    if isinstance(plain, tuple):
        return {str(plain[0])} | _branches(plain[1])
    items = plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ()
    return {name for item in items for name in _branches(item)}
