"""The fields of a file of faults: what each means, what it may hold, and with what it goes together.

One table, as data: the reader of the file goes by it, and docs/faults.md shows it.
"""

from __future__ import annotations

import difflib
import fnmatch
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sexton.deploy.local.faults.request import OPERATIONS, WRITES
from sexton.deploy.local.faults.rules import (
    CODES,
    Cut,
    Empty,
    Error,
    InvalidFaults,
    KeyFailure,
    KeyPlay,
    LeftOut,
    Renamed,
    Rule,
    Throttle,
    Torn,
    When,
    WholePlay,
    status_of,
)

__all__ = ["FIELDS", "THROTTLE_FIELDS", "Field", "parse", "read", "table_markdown"]

_METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE")


@dataclass(frozen=True, slots=True)
class Field:
    """One field: `kind` is what it holds; `goes_with` are the plays (or fields) that give it a sense."""

    name: str
    kind: str
    meaning: str
    goes_with: tuple[str, ...] = ()


_COUNTED = ("error", "key_error", "empty", "leave_out", "stranger", "cut", "torn_after", "latency_ms")
FIELDS = (
    Field("name", "text", "what the log calls the rule; default: `rule 1`, `rule 2`, ..."),
    Field("bucket", "texts", "buckets, `*` and `?` stand for any characters; default: all"),
    Field(
        "operation",
        "texts",
        "names of the S3 API (`DeleteObjects`, `HeadObject`, `List*`, ...) or methods (`PUT`); default: any, "
        "for `throttle` the writes, for `key_error`, `leave_out` and `stranger` the deletes",
    ),
    Field("key", "texts", "exact keys; a DeleteObjects matches when one of its keys does"),
    Field("prefix", "texts", "beginnings of keys"),
    Field("glob", "texts", "patterns of keys; `*` stands for slashes too"),
    Field("times", "count", "play on the first so many matches, then never again", _COUNTED),
    Field("after", "count", "leave the first so many matches alone", _COUNTED),
    Field(
        "probability",
        "share",
        "play on this share of the matches, 0 to 1: of requests, or (plays on keys) of keys",
        _COUNTED,
    ),
    Field("seed", "whole", "another number, another choice by `probability` and `jitter_ms`; default 0"),
    Field(
        "when",
        "when",
        '`"before"` (default): the store never sees it. `"after"`: the store has acted, the answer is what '
        "goes wrong",
        _COUNTED,
    ),
    Field("latency_ms", "number", "wait so long, before or after the store acts; alone, or with a play"),
    Field("jitter_ms", "number", "wait up to so much longer", ("latency_ms",)),
    Field("error", "text", "play: the whole request gets this S3 error code"),
    Field("status", "status", "its HTTP status; known for the usual codes", ("error",)),
    Field("message", "text", "its message", ("error", "key_error")),
    Field("retry_after", "number", "seconds in a `Retry-After` header", ("error",)),
    Field(
        "key_error",
        "text",
        "play: the matching keys get this code inside a 200, the others are deleted; a call about one key "
        "gets it as its whole answer",
    ),
    Field("leave_out", "true", "play: the reply does not name the matching keys"),
    Field("stranger", "text", "play: the reply names this key as deleted in place of each matching one"),
    Field("empty", "true", "play: a 200 without a body"),
    Field("cut", "true", "play: the connection ends without an answer"),
    Field("torn_after", "count", "play: the connection ends after so many bytes of the store's body"),
    Field("throttle", "throttle", "play: so many writes a second; a table, see below"),
)
THROTTLE_FIELDS = (
    Field("writes_per_s", "number", "writes per second and prefix, each key of a DeleteObjects being one"),
    Field("burst", "number", "writes that may come at once after a quiet time; default: those of one second"),
    Field("prefix_parts", "count", "a prefix ends at this slash of the key; 0: the bucket; default 1"),
    Field("refuse", "refuse", '`"request"` (default) or `"key"`: the keys that are too many, inside a 200'),
    Field("error", "text", "the code; default `SlowDown`"),
    Field("retry_after", "number", "seconds in a `Retry-After` header"),
)
_PLAYS = ("error", "key_error", "leave_out", "stranger", "empty", "cut", "torn_after", "throttle")
_DELETES = frozenset({"DeleteObjects", "DeleteObject"})


def read(path: Path) -> tuple[Rule, ...]:
    """Return the rules in a file: JSON where its name ends in `.json`, else TOML. Raises InvalidFaults."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidFaults(f"the file of faults cannot be read: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidFaults(f"the file of faults is no UTF-8: {path}: {error}") from error
    try:
        raw = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise InvalidFaults(f"the file of faults cannot be parsed: {path}: {error}") from error
    return parse(raw, str(path))


def parse(raw: object, where: str = "faults") -> tuple[Rule, ...]:
    """Return the rules of a parsed file; raises InvalidFaults for what is unknown, misspelt or at odds."""
    if not isinstance(raw, Mapping):
        raise InvalidFaults(f"{where}: not a table of rules")
    for name in raw:
        if name != "rule":
            raise InvalidFaults(f"{where}: unknown field: {name}", hint="rules are [[rule]] tables")
    rules = raw.get("rule", [])
    if not isinstance(rules, list) or not all(isinstance(each, Mapping) for each in rules):
        raise InvalidFaults(f"{where}: rules are [[rule]] tables")
    return tuple(_rule(each, number, where) for number, each in enumerate(rules, 1))


def table_markdown(fields: tuple[Field, ...]) -> str:
    """Return fields as a Markdown table."""
    lines = ["| field | holds | meaning |", "|---|---|---|"]
    lines += [f"| `{field.name}` | {_KINDS[field.kind]} | {field.meaning} |" for field in fields]
    return "\n".join(lines) + "\n"


_KINDS = {
    "text": "text",
    "texts": "text, or a list",
    "count": "whole number ≥ 0",
    "whole": "whole number",
    "number": "number ≥ 0",
    "share": "0 to 1",
    "status": "200 to 599",
    "true": "`true`",
    "when": '`"before"`, `"after"`',
    "refuse": '`"request"`, `"key"`',
    "throttle": "table",
}


def _rule(raw: Mapping[str, Any], number: int, where: str) -> Rule:
    name = raw.get("name", f"rule {number}")
    here = f"{where}: {name}" if name == f"rule {number}" else f"{where}: rule {number} ({name})"
    _check_fields(raw, FIELDS, here)
    plays = [play for play in _PLAYS if play in raw]
    if len(plays) > 1:
        raise InvalidFaults(f"{here}: a rule plays one thing: {', '.join(plays)}", hint="write two rules")
    if not plays and "latency_ms" not in raw:
        raise InvalidFaults(f"{here}: plays nothing", hint=f"give it one of {', '.join(_PLAYS)}, latency_ms")
    _check_company(raw, here)
    when = When(raw.get("when", "before"))
    if "torn_after" in raw and raw.get("when") == "before":
        raise InvalidFaults(f"{here}: torn_after needs the store's answer: when = before")
    play = _play(raw, here)
    return Rule(
        name=name,
        operations=_operations(raw, play, here),
        buckets=_texts(raw, "bucket"),
        keys=frozenset(_texts(raw, "key")),
        prefixes=_texts(raw, "prefix"),
        globs=_texts(raw, "glob"),
        times=raw.get("times"),
        after=raw.get("after", 0),
        probability=float(raw.get("probability", 1)),
        seed=raw.get("seed", 0),
        when=When.AFTER if "torn_after" in raw else when,
        latency_ms=float(raw.get("latency_ms", 0)),
        jitter_ms=float(raw.get("jitter_ms", 0)),
        play=play,
    )


def _play(raw: Mapping[str, Any], here: str) -> WholePlay | KeyPlay | Throttle | None:
    if "error" in raw:
        return _error(raw, here)
    if "key_error" in raw:
        return KeyFailure(raw["key_error"], raw.get("message", _message(raw["key_error"])))
    if "stranger" in raw:
        return Renamed(raw["stranger"])
    if "torn_after" in raw:
        return Torn(raw["torn_after"])
    if "throttle" in raw:
        return _throttle(raw["throttle"], here)
    simple: dict[str, WholePlay | KeyPlay] = {"leave_out": LeftOut(), "empty": Empty(), "cut": Cut()}
    return next((play for name, play in simple.items() if name in raw), None)


def _error(raw: Mapping[str, Any], here: str) -> Error:
    code = raw["error"]
    if code not in CODES and "status" not in raw:
        close = difflib.get_close_matches(code, CODES, n=1)
        hint = f"did you mean {close[0]}? Any other code needs a status" if close else "give it a status"
        raise InvalidFaults(f"{here}: no status is known for error: {code}", hint=hint)
    status = raw.get("status", status_of(code))
    return Error(code, status, raw.get("message", _message(code)), raw.get("retry_after"))


def _throttle(raw: Mapping[str, Any], here: str) -> Throttle:
    here = f"{here}: throttle"
    _check_fields(raw, THROTTLE_FIELDS, here)
    rate = raw.get("writes_per_s", 0)
    if rate <= 0:
        raise InvalidFaults(f"{here}: writes_per_s must be above 0: {rate}")
    burst = raw.get("burst", max(rate, 1))
    if burst < 1:
        raise InvalidFaults(f"{here}: burst must be at least 1: {burst}")
    error = _error({"error": "SlowDown", **raw}, here)
    return Throttle(float(rate), float(burst), raw.get("prefix_parts", 1), raw.get("refuse") == "key", error)


def _operations(
    raw: Mapping[str, Any], play: WholePlay | KeyPlay | Throttle | None, here: str
) -> frozenset[str]:
    named = _texts(raw, "operation")
    if not named or "any" in named:
        if isinstance(play, Throttle):
            return WRITES
        return _DELETES if isinstance(play, KeyFailure | LeftOut | Renamed) and not named else frozenset()
    found: set[str] = set()
    for name in named:
        # A method is kept as a field of its own: a request has both.
        hits = {name} if name in _METHODS else set(fnmatch.filter(OPERATIONS, name))
        if not hits:
            close = difflib.get_close_matches(name, [*OPERATIONS, *_METHODS, "any"], n=1)
            raise InvalidFaults(
                f"{here}: no such operation: {name}", hint=f"did you mean {close[0]}?" if close else None
            )
        found |= hits
    return frozenset(found)


def _check_fields(raw: Mapping[str, Any], fields: tuple[Field, ...], here: str) -> None:
    known = {field.name: field for field in fields}
    for name, value in raw.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            raise InvalidFaults(
                f"{here}: unknown field: {name}",
                hint=f"did you mean {close[0]}?" if close else f"fields: {', '.join(known)}",
            )
        kind = known[name].kind
        if not _holds(kind, value):
            raise InvalidFaults(f"{here}: {name} must be {_KINDS[kind].replace('`', '')}: {value!r}")


def _check_company(raw: Mapping[str, Any], here: str) -> None:
    for field in FIELDS:
        if field.name in raw and field.goes_with and not any(name in raw for name in field.goes_with):
            raise InvalidFaults(f"{here}: has no sense without {' or '.join(field.goes_with)}: {field.name}")


def _holds(kind: str, value: object) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    number = whole or isinstance(value, float)
    match kind:
        case "text":
            return isinstance(value, str) and value != ""
        case "texts":
            listed = value if isinstance(value, list) else [value]
            return bool(listed) and all(isinstance(each, str) and each for each in listed)
        case "count" | "whole":
            return whole and (kind == "whole" or value >= 0)  # type: ignore[operator]
        case "number":
            return number and 0 <= value < float("inf")  # type: ignore[operator]
        case "share":
            return number and 0 <= value <= 1  # type: ignore[operator]
        case "status":
            return whole and 200 <= value <= 599  # type: ignore[operator]
        case "true":
            return value is True
        case "when":
            return value in ("before", "after")
        case "refuse":
            return value in ("request", "key")
        case _:
            return isinstance(value, Mapping)


def _texts(raw: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = raw.get(name, ())
    return (value,) if isinstance(value, str) else tuple(value)


def _message(code: str) -> str:
    return CODES.get(code, (0, ""))[1]
