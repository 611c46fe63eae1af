"""The rules, as their file says them, and what they play on a request."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from sexton.deploy.local.faults.requests import OPERATIONS, S3Request
from sexton.schemas.errors import UsageError

__all__ = ["STATUSES", "InvalidFaults", "Memory", "Plan", "Rule", "decide", "read"]

# The HTTP status that goes with an S3 error code.
STATUSES = {
    **dict.fromkeys(("BadDigest", "ExpiredToken", "InvalidRequest", "MalformedXML", "RequestTimeout"), 400),
    **dict.fromkeys(("AccessDenied", "RequestTimeTooSkewed", "SignatureDoesNotMatch"), 403),
    **dict.fromkeys(("NoSuchBucket", "NoSuchKey"), 404),
    **dict.fromkeys(("ServiceUnavailable", "SlowDown"), 503),
    "InternalError": 500,
}
_PLAYS = ("error", "key_error", "leave_out", "unexpected_key", "cut", "torn_after", "writes_per_s")
_DELETES = ("DeleteObjects", "DeleteObject")
_WRITES = (*_DELETES, "PutObject", "CopyObject", "*MultipartUpload", "UploadPart*")

_Text = Annotated[str, Field(min_length=1)]
_Listed = BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
_Texts = Annotated[tuple[_Text, ...], Field(min_length=1, strict=False), _Listed]
_Count = Annotated[int, Field(ge=0)]
_Number = Annotated[float, Field(ge=0)]
_FILE = TypeAdapter(dict[Literal["rule"], list["Rule"]])


class InvalidFaults(UsageError):
    """A file of faults that cannot be played as it stands."""


class Rule(BaseModel):
    """What is matched, how often, and what is played on it; docs/faults.md says what each field means."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: _Text = ""
    bucket: _Texts = ("*",)
    operation: _Texts = ("*",)
    key: _Texts = ()
    prefix: _Texts = ()
    glob: _Texts = ()
    times: _Count | None = None
    after: _Count = 0
    probability: Annotated[float, Field(ge=0, le=1)] = 1.0
    seed: int = 0
    when: Literal["before", "after"] = "before"
    latency_ms: _Number = 0.0
    jitter_ms: _Number = 0.0
    error: _Text | None = None
    status: Annotated[int, Field(ge=200, le=599)] | None = None
    message: str = ""
    retry_after: _Number | None = None
    key_error: _Text | None = None
    leave_out: Literal[True] | None = None
    unexpected_key: _Text | None = None
    cut: Literal[True] | None = None
    torn_after: _Count | None = None
    writes_per_s: Annotated[float, Field(gt=0)] | None = None

    @property
    def plays(self) -> list[str]:
        """The names of the plays that it has; none where it only waits."""
        return [play for play in _PLAYS if getattr(self, play) is not None]

    @property
    def on_keys(self) -> bool:
        """True when it plays on what becomes of single keys."""
        return bool(self.key_error or self.leave_out or self.unexpected_key)


@dataclass(slots=True)
class Memory:
    """What a rule remembers: how often requests (None) and keys came, its plays, writes left to a bucket."""

    seen: Counter[str | None] = field(default_factory=Counter)
    plays: int = 0
    budgets: dict[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(slots=True)
class Plan:
    """The play on the whole request, and those on keys by index; `withheld` ones never reach the store."""

    answer: Rule | None = None
    unasked: bool = False
    keys: dict[int, Rule] = field(default_factory=dict)
    withheld: set[int] = field(default_factory=set)
    waits_ms: dict[str, float] = field(default_factory=lambda: {"before": 0.0, "after": 0.0})
    played: list[dict[str, object]] = field(default_factory=list)


def read(path: Path) -> list[Rule]:
    """Return the rules in a file; raises InvalidFaults for what is unknown, misspelt or at odds."""
    hint = "rules are [[rule]] tables; docs/faults.md has their fields"
    try:
        rules = _FILE.validate_python(tomllib.loads(path.read_text(encoding="utf-8"))).get("rule", [])
    except ValidationError as error:
        where, told = error.errors()[0]["loc"], error.errors()[0]["msg"].lower()
        at = "".join(f"rule {part + 1}: " for part in where[1:2] if isinstance(part, int))
        if error.errors()[0]["type"] == "extra_forbidden":
            told = "unknown field"
            for close in get_close_matches(str(where[-1]), Rule.model_fields, n=1):
                hint = f"did you mean {close}?"
        named = ".".join(str(part) for part in where[2:] or where[:1])
        raise InvalidFaults(f"{path}: {at}{told}: {named}", hint=hint) from error
    except (OSError, ValueError) as error:
        raise InvalidFaults(f"the file of faults cannot be read: {path}: {error}") from error
    for number, rule in enumerate(rules, 1):
        if problem := _problem(rule):
            raise InvalidFaults(f"{path}: rule {number}: {problem}", hint=hint)
    return rules


def decide(rules: Mapping[Rule, Memory], request: S3Request, now: float) -> Plan:
    """Return what is played, by rules in order until one answers; of several about a key the first counts."""
    plan, keys = Plan(), request.keys
    for place, (rule, memory) in enumerate(rules.items(), 1):
        chosen = _matches(rule, request)
        if chosen is None:
            continue
        hit = [i for i in chosen if rule.on_keys and i not in plan.keys and _due(rule, memory, keys[i])]
        if rule.writes_per_s:
            playing = not _take(rule.writes_per_s, memory, request.bucket, len(chosen), now)
        else:
            playing = bool(hit) if rule.on_keys else _due(rule, memory, None)
        if not playing:
            continue
        name, memory.plays = rule.name or f"rule {place}", memory.plays + 1
        if rule.latency_ms:
            wait_ms = rule.latency_ms + rule.jitter_ms * _draw(rule, f"wait {memory.plays}")
            plan.waits_ms[rule.when] += wait_ms
            plan.played.append({"rule": name, "what": f"latency_ms = {wait_ms:.0f}", "keys": []})
        for play in rule.plays:
            what, hits = f"{play} = {getattr(rule, play)}", [keys[index] for index in hit]
            plan.played.append({"rule": name, "what": what, "keys": hits})
            if not hit or request.operation != "DeleteObjects":  # a call about one key has one answer
                plan.answer, plan.unasked = rule, rule.when == "before" and rule.torn_after is None
                return plan
            plan.keys.update(dict.fromkeys(hit, rule))
            plan.withheld.update(hit if rule.when == "before" else ())
    return plan


def _problem(rule: Rule) -> str | None:
    if len(rule.plays) > 1 or not (rule.plays or rule.latency_ms):
        return f"plays one of {', '.join(_PLAYS)}, or waits latency_ms: {', '.join(rule.plays) or 'nothing'}"
    if rule.error and rule.status is None and rule.error not in STATUSES:
        return f"no status is known for this error, give it one: {rule.error}"
    odd = [
        name for name in rule.operation if not any(fnmatchcase(known, name) for known in OPERATIONS.values())
    ]
    return f"no such operation: {odd[0]}" if odd else None


def _matches(rule: Rule, request: S3Request) -> list[int] | None:
    """Return the indexes of the keys that it is about, None when it is not about the request."""
    usual = _WRITES if rule.writes_per_s else ("*",)
    about = _DELETES if rule.key_error else _DELETES[:1] if rule.on_keys else usual
    criteria = (request.operation, about), (request.operation, rule.operation), (request.bucket, rule.bucket)
    if not all(_any(text, patterns) for text, patterns in criteria):
        return None
    chooses = rule.key or rule.prefix or rule.glob
    globs, named = rule.glob if chooses else ("*",), enumerate(request.keys)
    found = [i for i, k in named if k in rule.key or k.startswith(rule.prefix) or _any(k, globs)]
    return None if chooses and not found else found


def _any(text: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def _due(rule: Rule, memory: Memory, key: str | None) -> bool:
    """Count a match, of a key or (None) of a request, and return whether the rule plays on it."""
    number = memory.seen[key]
    if key is None or rule.times is not None or rule.after:
        memory.seen[key] += 1
    drawn = _draw(rule, f"{number}" if key is None else key) < rule.probability
    return drawn and number >= rule.after and (rule.times is None or number < rule.after + rule.times)


def _take(rate: float, memory: Memory, bucket: str, writes: int, now: float) -> bool:
    """Count the writes of a request if there is room for them, or for none more in a second; else none."""
    left, since = memory.budgets.get(bucket, (rate, now))
    left = min(rate, left + (now - since) * rate)
    room = left >= min(writes, rate)
    memory.budgets[bucket] = (left - writes * room, now)
    return room


def _draw(rule: Rule, what: str) -> float:
    """Return a number in [0, 1) that depends on nothing else: not on the order in which requests come."""
    digest = blake2b(what.encode(), key=f"{rule.seed}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
