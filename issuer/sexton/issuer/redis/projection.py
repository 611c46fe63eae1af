"""Redis: a projection of the fold, and proposals. It may lose or claim anything: the log alone decides.

All keys share the hash tag `{sexton:<id of the generations topic>}`, so a re-created log meets none of them.
The rules are the Lua scripts beside this module, each with its keys, arguments and answer in its header.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sexton.issuer.redis.connection import AS_IT_IS, Connection, ProjectionMissing, RedisUnavailable
from sexton.issuer.state.state import State, Tenant
from sexton.schemas.errors import SextonError
from sexton.schemas.events import Grant
from sexton.schemas.settings import Settings

__all__ = [
    "MAX_AHEAD",
    "Difference",
    "Entry",
    "EvictingRedis",
    "Projection",
    "ProposalStale",
    "entries_of",
    "entry",
]

MAX_AHEAD = 1000  # proposals that many numbers ahead of the log are damage, not other issuers at work
_CHUNK = 1000
_COMPARED = 10_000
_log = logging.getLogger("sexton.issuer.projection")

Entry = str
"""What the projection holds for a tenant: `<newest number>@<log offset of the event that issued it>`.

Of transactions the offset is that of the last Started or Committed event: Redis has to know of both.
"""


class EvictingRedis(RedisUnavailable):
    """Redis may throw keys away by itself."""


class ProposalStale(SextonError):
    """Redis and the fold do not say the same of a tenant: compare, repair, propose again."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A tenant of which Redis says something else than the fold; `raw` is what it holds, "" = nothing."""

    tenant: str
    expected: Entry
    raw: Entry

    @property
    def only_late(self) -> bool:
        """Whether Redis merely lags: it holds nothing, or an entry from an earlier place in the log."""
        seen, expected = _offset(self.raw), _offset(self.expected)
        return not self.raw or (seen is not None and expected is not None and seen < expected)


def entry(tenant: Tenant | None) -> Entry:
    """Return what the projection must hold for a tenant, "" for none."""
    at = tenant.proposed_after if tenant else None
    return f"{at[0]}@{at[1]}" if at else ""


class Projection:
    """One log's projection in Redis. Every method raises RedisUnavailable when Redis cannot serve it."""

    def __init__(self, settings: Settings, log_id: str) -> None:
        self._log_id = log_id
        self._redis = Connection(settings.redis_url.get_secret_value())
        tag = f"{{sexton:{log_id}}}"
        self._meta, self._newest, self._proposed = f"{tag}:meta", f"{tag}:newest", f"{tag}:proposed"
        self._probe = f"{tag}:probe"

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def check_server(self) -> None:
        """Raise EvictingRedis when the server may evict keys, RedisUnavailable when it does not answer."""
        # It brings the connection to the node with our keys: that one is asked about its policy.
        self._redis.command("EXISTS", self._meta)
        memory = cast(Mapping[str, Any], self._redis.command("INFO", "memory"))
        policy = memory.get("maxmemory_policy")
        if policy != "noeviction":
            raise EvictingRedis(
                f"Redis may evict keys: maxmemory-policy is {policy}",
                hint="set `maxmemory-policy noeviction`",
            )

    def check_writable(self) -> None:
        """Raise RedisUnavailable when the server takes no writes: a replica, out of memory, a full disk."""
        self._redis.command("SET", self._probe, "", "EX", 60)

    def propose(self, expected: Mapping[str, Entry]) -> list[Grant]:
        """Propose the next generation of each tenant; `expected` is the fold's entry for each.

        Raises ProjectionMissing, or ProposalStale when Redis has another entry for a tenant.
        """
        grants: list[Grant] = []
        for chunk in _chunks(list(expected), _CHUNK):
            arguments: list[str | int] = [self._log_id, MAX_AHEAD]
            arguments += [text for name in chunk for text in (name, expected[name])]
            reply = _texts(self._redis.run("propose_v1", self._keys(), arguments))
            if reply[0] == "missing":
                raise ProjectionMissing
            if reply[0] != "ok" or len(reply) != 1 + 2 * len(chunk):
                raise ProposalStale
            for i, name in enumerate(chunk):
                supersedes, new = int(reply[1 + 2 * i]), int(reply[2 + 2 * i])
                none = supersedes == 0 and not expected[name]  # an imported tenant may be at generation 0
                grants.append(Grant(name, new, None if none else supersedes))
        return grants

    def compare(self, expected: Mapping[str, Entry]) -> list[Difference]:
        """Return the tenants of which Redis holds something else than expected.

        Raises ProjectionMissing when it holds no projection at all.
        """
        names, found = list(expected), []
        for call in _chunks(names, _COMPARED):
            chunks = list(_chunks(call, _CHUNK))
            arguments = [self._log_id]
            for chunk in chunks:
                arguments += [str(len(chunk)), " ".join([expected[name] for name in chunk]), *chunk]
            answers = self._redis.run("compare_v2", self._keys()[:2], arguments)
            if answers == [b"missing"]:
                raise ProjectionMissing
            for chunk, answer in zip(chunks, answers, strict=True):
                if answer != b"=":
                    found += _differences(chunk, expected, _texts(answer))
        return found

    def project(self, entries: Mapping[str, Entry]) -> None:
        """Bring entries up to the fold's; a newer one in Redis stays."""
        for chunk in _chunks([name for name in entries if entries[name]], _CHUNK):
            arguments = [text for name in chunk for text in (name, *entries[name].split("@"))]
            self._redis.run("project_v1", self._keys()[1:], arguments)

    def repair(self, differences: Sequence[Difference]) -> None:
        """Set entries to what the log says, each only if it still is what was seen."""
        for chunk in _chunks(differences, _CHUNK):
            arguments = [text for d in chunk for text in (d.tenant, d.raw, d.expected)]
            self._redis.run("repair_v1", self._keys()[1:], arguments)

    def withdraw(self, tenants: Iterable[str]) -> None:
        """Forget proposals whose event turned out void."""
        for chunk in _chunks(list(tenants), _CHUNK):
            self._redis.run("withdraw_v1", [self._proposed], list(chunk))

    def is_whole(self) -> bool:
        """Return whether there is a projection of this log, and nothing else where its keys are."""
        return not self._misplaced() and self._is_marked()

    def rebuild(self, entries: Mapping[str, Entry], *, from_nothing: bool = False) -> None:
        """Build the projection from the fold's entries; the mark that it is whole is set last."""
        doomed = self._keys() if from_nothing else self._misplaced()
        if doomed:
            self._redis.command("DEL", *doomed)
        self.project(entries)
        # Without the mark there is no projection, whatever is there already: who needs one builds it.
        self._redis.command("HSET", self._meta, "log", self._log_id)
        _log.info("projection built from the log: %d tenants", len(entries))

    def everything(self) -> dict[str, Entry]:
        """Return all entries, none when there is no whole projection of this log."""
        try:
            return self._entries() if self._is_marked() else {}
        except ProjectionMissing:
            return {}

    def _entries(self) -> dict[str, Entry]:
        held: dict[str, Entry] = {}
        cursor: Any = 0
        while True:
            cursor, page = self._redis.command("HSCAN", self._newest, cursor, "COUNT", _CHUNK)
            texts = _texts(page if not isinstance(page, dict) else [t for pair in page.items() for t in pair])
            held.update(zip(texts[::2], texts[1::2], strict=True))
            if int(cursor) == 0:
                return held

    def _is_marked(self) -> bool:
        return bool(self._redis.command("HGET", self._meta, "log") == self._log_id.encode())

    def _misplaced(self) -> list[str]:
        """Return the keys at which something of another type stands."""
        return [key for key in self._keys() if self._redis.command("TYPE", key) not in (b"hash", b"none")]

    def _keys(self) -> list[str]:
        return [self._meta, self._newest, self._proposed]


def _differences(
    names: Sequence[str], expected: Mapping[str, Entry], raws: Sequence[Entry]
) -> list[Difference]:
    found = zip(names, raws, strict=True)
    return [Difference(name, expected[name], raw) for name, raw in found if raw != expected[name]]


def entries_of(state: State, tenants: Iterable[str] | None = None) -> dict[str, Entry]:
    """Return the entries of some tenants, or of all that were ever issued a number."""
    if tenants is None:
        return {tenant.name: found for tenant in state if (found := entry(tenant))}
    return {name: entry(state.tenant(name)) for name in tenants}


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _texts(reply: Any) -> list[str]:
    return [item.decode("utf-8", AS_IT_IS) for item in reply]


def _offset(raw: Entry) -> int | None:
    generation, at, offset = raw.partition("@")
    if not at or not _is_number(generation) or not _is_number(offset):
        return None
    return int(offset)


def _is_number(text: str) -> bool:
    """Return whether an issuer wrote it so: the scripts would order one with zeros in front otherwise."""
    return len(text) <= 20 and text.isascii() and text.isdigit() and text == str(int(text))
