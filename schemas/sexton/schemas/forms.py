"""Events to plain values and back, driven by the type hints of the event classes.

Two forms share one walk: *avro* (what fastavro reads and writes: a union branch is `(full name, fields)`) and
*json* (what people read and write as JSON lines: a branch is `{"GenerationGuard": {...}}`, an instant is ISO
8601 with an offset, bytes are base64). Only the json form checks types: the avro reader has done so already.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

from sexton.schemas.checks import check_instant
from sexton.schemas.errors import InvalidEvent
from sexton.schemas.memo import cache

__all__ = ["NAMESPACE", "from_avro", "from_json", "names_once", "to_avro", "to_json"]

NAMESPACE = "sexton"
_Event = TypeVar("_Event")
_Convert = Callable[[Any], Any]
_MIN, _MAX = -(2**63), 2**63 - 1  # of what Avro writes as a long


def to_avro(event: Any) -> dict[str, Any]:
    """Return what fastavro writes for an event.

    Raises InvalidEvent that names the field: of another type than its hint says (fastavro itself would cut a
    float down to an integer, and take a text for a list of one-letter keys), a number of more than 64 bits,
    a naive datetime, or one outside the years 1 to 9999.
    """
    plain: dict[str, Any] = _plain_record(type(event))(event)
    return plain


def from_avro(cls: type[_Event], plain: Mapping[str, Any]) -> _Event:
    """Return the event that fastavro has read as `plain` with the current reader schema."""
    event: _Event = _avro_record(cls)(plain)
    return event


def names_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object's fields, as `object_pairs_hook` of `json.loads`.

    Raises InvalidEvent where a name stands twice: which of them is meant nobody can tell.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise InvalidEvent(f"a field stands twice: {next(name for name in names if names.count(name) > 1)}")
    return found


def to_json(value: Any) -> Any:
    """Return a value that `json.dumps` takes, in the form that `from_json` reads."""
    if dataclasses.is_dataclass(value):
        return {name: _json_branch(getattr(value, name), tagged) for name, tagged in _members(type(value))}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def _json_branch(value: Any, tagged: bool) -> Any:
    if not tagged:
        return to_json(value)
    if isinstance(value, list | tuple):
        return [_json_branch(item, True) for item in value]
    return {type(value).__name__: to_json(value)}


def from_json(cls: type[_Event], plain: Any, *, defaults: Mapping[str, Any] | None = None) -> _Event:
    """Return the event of a parsed JSON object; `defaults` fill absent top-level fields.

    Raises InvalidEvent that names the field: unknown, missing, of the wrong type; an instant that
    `check_instant` refuses.
    """
    event: _Event = _json_record(cls, cls.__name__)(plain, defaults or {})
    return event


# --- the walk over the hints -------------------------------------------------------------------------------


@cache
def _hints(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


@cache
def _members(cls: Any) -> tuple[tuple[str, bool], ...]:
    """Fields of a class, each with whether its value (or its items) is a branch of a union of records."""
    return tuple((name, _is_tagged(_item(hint))) for name, hint in _hints(cls).items())


def _item(hint: Any) -> Any:
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Sequence else hint


def _is_tagged(hint: Any) -> bool:
    return typing.get_origin(hint) is types.UnionType and type(None) not in typing.get_args(hint)


def _optional(hint: Any) -> Any | None:
    if typing.get_origin(hint) is types.UnionType and type(None) in typing.get_args(hint):
        return next(arg for arg in typing.get_args(hint) if arg is not type(None))
    return None


@cache
def _plain_record(cls: Any) -> _Convert:
    converters = tuple((name, _plain(hint, f"{cls.__name__}.{name}")) for name, hint in _hints(cls).items())

    def convert(event: Any) -> Any:
        return {name: f(getattr(event, name)) for name, f in converters}

    return convert


def _plain(hint: Any, path: str) -> _Convert:
    if (inner := _optional(hint)) is not None:
        f = _plain(inner, path)
        return lambda value: None if value is None else f(value)
    if _is_tagged(hint):
        return _plain_union(typing.get_args(hint), path)
    origin = typing.get_origin(hint)
    if origin is Sequence:
        return _plain_sequence(typing.get_args(hint)[0], path)
    if origin is Mapping:
        of = _plain(typing.get_args(hint)[1], f"{path}{{}}")
        return lambda value: {name: of(item) for name, item in _expect(value, dict, path).items()}
    if dataclasses.is_dataclass(hint):
        return _plain_union((typing.cast(type, hint),), path, tagged=False)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return lambda value: value if type(value) is hint else _symbol(hint, value, path)
    if hint is datetime:
        return lambda value: check_instant(
            value if isinstance(value, datetime) else _expect(value, datetime, path)
        )
    if hint is int:
        return lambda value: value if type(value) is int and _MIN <= value <= _MAX else _integer(value, path)
    return lambda value: value if type(value) is hint else _subtype(value, hint, path)


def _integer(value: Any, path: str) -> Any:
    _expect(value, int, path)
    raise InvalidEvent(f"{path}: a number of more than 64 bits: {str(value)[:80]}")


def _plain_union(branches: tuple[type, ...], path: str, *, tagged: bool = True) -> _Convert:
    by_class = {cls: (f"{NAMESPACE}.{cls.__name__}", _plain_record(cls)) for cls in branches}

    def convert(value: Any) -> Any:
        if (branch := by_class.get(type(value))) is None:
            names = " or ".join(cls.__name__ for cls in branches)
            raise InvalidEvent(f"{path}: expected {names}, not {_kind(value)}")
        return (branch[0], branch[1](value)) if tagged else branch[1](value)

    return convert


def _plain_sequence(hint: Any, path: str) -> _Convert:
    f = _plain(hint, f"{path}[]")

    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise InvalidEvent(f"{path}: expected a list, not {_kind(value)}")
        if hint is str:
            return value  # the hot path; the writer itself refuses what is not text
        return [f(item) for item in value]

    return convert


def _subtype(value: Any, cls: type, path: str) -> Any:
    # A subclass of text or bytes is written as what it is; a bool is no integer.
    return value if cls in (str, bytes) and isinstance(value, cls) else _expect(value, cls, path)


@cache
def _avro_record(cls: Any) -> _Convert:
    converters = tuple((name, _avro(hint)) for name, hint in _hints(cls).items())

    def convert(plain: Any) -> Any:
        try:
            return cls(*[plain[name] if f is None else f(plain[name]) for name, f in converters])
        except KeyError:
            # By an older version of ours, which lacks what has a default; anything else is raised again.
            there = ((name, f) for name, f in converters if name in plain)
            return cls(**{name: plain[name] if f is None else f(plain[name]) for name, f in there})

    return convert


def _avro(hint: Any) -> _Convert | None:
    if (inner := _optional(hint)) is not None:
        return _or_none(_avro(inner))
    if _is_tagged(hint):
        by_name = {f"{NAMESPACE}.{cls.__name__}": _avro_record(cls) for cls in typing.get_args(hint)}
        return lambda value: by_name[value[0]](value[1])
    if typing.get_origin(hint) is Sequence:
        return _each(_avro(typing.get_args(hint)[0]))
    if dataclasses.is_dataclass(hint):
        return _avro_record(typing.cast(type, hint))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint
    return None


def _or_none(f: _Convert | None) -> _Convert | None:
    return None if f is None else lambda value: None if value is None else f(value)


def _each(f: _Convert | None) -> _Convert | None:
    return None if f is None else lambda value: [f(item) for item in value]


@cache
def _json_record(cls: Any, path: str) -> Callable[[Any, Mapping[str, Any]], Any]:
    converters = {name: _json(hint, f"{path}.{name}") for name, hint in _hints(cls).items()}
    missing_ = dataclasses.MISSING
    optional = {
        field.name
        for field in dataclasses.fields(cls)
        if field.default is not missing_ or field.default_factory is not missing_
    }

    def convert(plain: Any, defaults: Mapping[str, Any]) -> Any:
        if not isinstance(plain, dict):
            raise InvalidEvent(f"{path}: expected an object, not {_kind(plain)}")
        if unknown := sorted(str(name) for name in plain if name not in converters):
            known = ", ".join(converters)
            raise InvalidEvent(f"{path}: unknown field: {unknown[0]}", hint=f"fields: {known}")
        values = dict(defaults)
        values.update({name: converters[name](value) for name, value in plain.items()})
        if missing := [name for name in converters if name not in values and name not in optional]:
            raise InvalidEvent(f"{path}: missing field: {missing[0]}")
        return cls(**values)

    return convert


def _json(hint: Any, path: str) -> _Convert:
    if (inner := _optional(hint)) is not None:
        f = _json(inner, path)
        return lambda value: None if value is None else f(value)
    if _is_tagged(hint):
        return _json_union(typing.get_args(hint), path)
    origin = typing.get_origin(hint)
    if origin is Sequence:
        return _json_sequence(typing.get_args(hint)[0], path)
    if origin is Mapping:
        return lambda value: dict(_expect(value, dict, path))
    if dataclasses.is_dataclass(hint):
        record = _json_record(typing.cast(type, hint), path)
        return lambda value: record(value, {})
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return lambda value: _symbol(hint, value, path)
    if hint is datetime:
        return lambda value: _instant(_expect(value, str, path), path)
    if hint is bytes:
        return lambda value: _bytes(_expect(value, str, path), path)
    return lambda value: _expect(value, hint, path)


def _json_union(branches: tuple[type, ...], path: str) -> _Convert:
    by_name = {cls.__name__: _json_record(cls, f"{path}.{cls.__name__}") for cls in branches}

    def convert(value: Any) -> Any:
        if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in by_name:
            raise InvalidEvent(f"{path}: expected one of {{name: fields}} with name in: {', '.join(by_name)}")
        name, fields = next(iter(value.items()))
        return by_name[name](fields, {})

    return convert


def _json_sequence(hint: Any, path: str) -> _Convert:
    f = _json(hint, f"{path}[]")
    return lambda value: tuple(f(item) for item in _expect(value, list, path))


def _expect(value: Any, cls: type, path: str) -> Any:
    if type(value) is not cls:
        raise InvalidEvent(f"{path}: expected {cls.__name__}, not {_kind(value)}")
    return value


def _symbol(cls: type[StrEnum], value: Any, path: str) -> StrEnum:
    try:
        return cls(_expect(value, str, path))
    except ValueError as error:
        raise InvalidEvent(f"{path}: {value!r} is not one of: {', '.join(cls)}") from error


def _instant(text: str, path: str) -> datetime:
    try:
        return check_instant(datetime.fromisoformat(text))
    except ValueError as error:
        raise InvalidEvent(f"{path}: not an ISO 8601 instant: {text!r}") from error


def _bytes(text: str, path: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidEvent(f"{path}: not base64") from error


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__
