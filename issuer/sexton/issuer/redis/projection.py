"""Redis: a projection of the fold, and proposals. It may lose or claim anything: the log alone decides.

All keys share the hash tag `{sexton:<id of the generations topic>}`, so a re-created log meets none of them.
In a cluster of slots one node has them all: the projection goes where that node is.
The rules are the Lua scripts beside this module, each with its keys, arguments and answer in its header.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.exceptions import MovedError, NoScriptError, RedisError, ResponseError
from redis.retry import Retry

from sexton.issuer.state.state import State, Tenant
from sexton.schemas.errors import EnvironmentFault, SextonError
from sexton.schemas.events import Grant
from sexton.schemas.settings import Settings

__all__ = [
    "MAX_AHEAD",
    "Difference",
    "Entry",
    "EvictingRedis",
    "Projection",
    "ProjectionMissing",
    "ProposalStale",
    "RedisUnavailable",
    "entries_of",
    "entry",
]

MAX_AHEAD = 1000  # proposals that many numbers ahead of the log are damage, not other issuers at work
_CHUNK = 1000
_COMPARED = 10_000
_AS_IT_IS = "surrogateescape"  # what is no text must go back as it came: it is compared before it is set
_log = logging.getLogger("sexton.issuer.projection")

Entry = str
"""What the projection holds for a tenant: `<generation>@<log offset of the event that issued it>`."""


class RedisUnavailable(EnvironmentFault):
    """Redis does not answer, or answers that it cannot serve now."""

    usual_hint = "is Redis up, and SEXTON_REDIS_URL right? `sexton doctor` looks"


class EvictingRedis(RedisUnavailable):
    """Redis may throw keys away by itself."""


class ProjectionMissing(SextonError):
    """Redis holds no projection, or something else in its place: it has to be built from the log."""


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
    return f"{tenant.newest}@{tenant.issues[-1].log_offset}" if tenant and tenant.issues else ""


class Projection:
    """One log's projection in Redis. Every method raises RedisUnavailable when Redis cannot serve it."""

    def __init__(self, settings: Settings, log_id: str) -> None:
        self._log_id = log_id
        self._entrance = redis.Redis.from_url(
            settings.redis_url.get_secret_value(),
            socket_timeout=2.0,
            socket_connect_timeout=1.0,
            # A script whose answer was lost must not run again by itself: the authority decides.
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            max_connections=128,
            encoding_errors=_AS_IT_IS,
        )
        self._redis = self._entrance  # or the node of a cluster that owns the slot of our keys
        self._nodes: dict[tuple[str, int], redis.Redis] = {}
        tag = f"{{sexton:{log_id}}}"
        self._meta, self._newest, self._proposed = f"{tag}:meta", f"{tag}:newest", f"{tag}:proposed"
        self._probe = f"{tag}:probe"

    def close(self) -> None:
        """Close the connections."""
        for each in (self._entrance, *self._nodes.values()):
            each.close()

    def check_server(self) -> None:
        """Raise EvictingRedis when the server may evict keys, RedisUnavailable when it does not answer."""
        # It brings the connection to the node with our keys: that one is asked about its policy.
        self._command("EXISTS", self._meta)
        memory = cast(Mapping[str, Any], self._command("INFO", "memory"))
        policy = memory.get("maxmemory_policy")
        if policy != "noeviction":
            raise EvictingRedis(
                f"Redis may evict keys: maxmemory-policy is {policy}",
                hint="set `maxmemory-policy noeviction`",
            )

    def check_writable(self) -> None:
        """Raise RedisUnavailable when the server takes no writes: a replica, out of memory, a full disk."""
        self._command("SET", self._probe, "", "EX", 60)

    def propose(self, expected: Mapping[str, Entry]) -> list[Grant]:
        """Propose the next generation of each tenant; `expected` is the fold's entry for each.

        Raises ProjectionMissing, or ProposalStale when Redis has another entry for a tenant.
        """
        grants: list[Grant] = []
        for chunk in _chunks(list(expected), _CHUNK):
            arguments: list[str | int] = [self._log_id, MAX_AHEAD]
            arguments += [text for name in chunk for text in (name, expected[name])]
            reply = _texts(self._run("propose_v1", self._keys(), arguments))
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
            answers = self._run("compare_v2", self._keys()[:2], arguments)
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
            self._run("project_v1", self._keys()[1:], arguments)

    def repair(self, differences: Sequence[Difference]) -> None:
        """Set entries to what the log says, each only if it still is what was seen."""
        for chunk in _chunks(differences, _CHUNK):
            arguments = [text for d in chunk for text in (d.tenant, d.raw, d.expected)]
            self._run("repair_v1", self._keys()[1:], arguments)

    def withdraw(self, tenants: Iterable[str]) -> None:
        """Forget proposals whose event turned out void."""
        for chunk in _chunks(list(tenants), _CHUNK):
            self._run("withdraw_v1", [self._proposed], list(chunk))

    def is_whole(self) -> bool:
        """Return whether there is a projection of this log, and nothing else where its keys are."""
        return not self._misplaced() and self._is_marked()

    def rebuild(self, entries: Mapping[str, Entry], *, from_nothing: bool = False) -> None:
        """Build the projection from the fold's entries; the mark that it is whole is set last."""
        doomed = self._keys() if from_nothing else self._misplaced()
        if doomed:
            self._command("DEL", *doomed)
        self.project(entries)
        # Without the mark there is no projection, whatever is there already: who needs one builds it.
        self._command("HSET", self._meta, "log", self._log_id)
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
            cursor, page = self._command("HSCAN", self._newest, cursor, "COUNT", _CHUNK)
            texts = _texts(page if not isinstance(page, dict) else [t for pair in page.items() for t in pair])
            held.update(zip(texts[::2], texts[1::2], strict=True))
            if int(cursor) == 0:
                return held

    def _is_marked(self) -> bool:
        return bool(self._command("HGET", self._meta, "log") == self._log_id.encode())

    def _misplaced(self) -> list[str]:
        """Return the keys at which something of another type stands."""
        return [key for key in self._keys() if self._command("TYPE", key) not in (b"hash", b"none")]

    def _keys(self) -> list[str]:
        return [self._meta, self._newest, self._proposed]

    def _run(self, name: str, keys: Sequence[str], arguments: Sequence[str | int]) -> Any:
        """Run a script once; EVAL follows only when the server said that it did not have it."""
        text, digest = _script(name)
        rest = [str(len(keys)), *keys, *map(str, arguments)]
        try:
            return self._guarded(lambda: self._send(["EVALSHA", digest, *rest]))
        except NoScriptError:
            return self._command("EVAL", text, *rest)

    def _send(self, parts: Sequence[str]) -> Any:
        """Send a command that is packed here: the client library takes five times as long for each part."""
        pool = self._redis.connection_pool
        connection = pool.get_connection()
        try:
            connection.send_packed_command([_packed(parts)])  # type: ignore[no-untyped-call]
            return connection.read_response()
        except ResponseError:
            raise
        except BaseException:
            # An answer may still come, and would be taken for that of the next call.
            connection.disconnect()  # type: ignore[no-untyped-call]
            raise
        finally:
            pool.release(connection)

    def _command(self, *parts: Any) -> Any:
        try:
            return self._guarded(lambda: self._redis.execute_command(*parts))  # type: ignore[no-untyped-call]
        except NoScriptError as error:
            raise RedisUnavailable(f"Redis: {error}") from error

    def _guarded(self, call: Callable[[], Any]) -> Any:
        try:
            return self._at_the_owner(call)
        except NoScriptError:
            raise
        except ResponseError as error:
            if "WRONGTYPE" in str(error):  # somebody planted a key of another type where ours should be
                raise ProjectionMissing(f"Redis: {error}") from error
            raise RedisUnavailable(f"Redis: {error}") from error
        except RedisError as error:
            # A node may be gone for good, and another one own the slot: the one that is configured knows.
            self._redis = self._entrance
            raise RedisUnavailable(f"Redis: {error}") from error

    def _at_the_owner(self, call: Callable[[], Any]) -> Any:
        """Do it, again at another node if this one said that the slot is there: it has done nothing itself.

        A slot that is just being moved (ASK, TRYAGAIN) is waited for as any other trouble is.
        """
        try:
            return call()
        except MovedError as moved:
            self._redis = self._node(moved.host, moved.port)
            return call()

    def _node(self, host: str, port: int) -> redis.Redis:
        pool = self._entrance.connection_pool
        address = {**pool.connection_kwargs, "port": port}
        if host:  # without one it is the host that was asked
            address["host"] = host
        place = (address["host"], port)
        if place not in self._nodes:
            self._nodes[place] = redis.Redis(
                connection_pool=redis.ConnectionPool(
                    connection_class=pool.connection_class, max_connections=pool.max_connections, **address
                )
            )
        return self._nodes[place]


def _differences(
    names: Sequence[str], expected: Mapping[str, Entry], raws: Sequence[Entry]
) -> list[Difference]:
    found = zip(names, raws, strict=True)
    return [Difference(name, expected[name], raw) for name, raw in found if raw != expected[name]]


def entries_of(state: State, tenants: Iterable[str] | None = None) -> dict[str, Entry]:
    """Return the entries of some tenants, or of all that were ever issued a generation."""
    if tenants is None:
        return {tenant.name: entry(tenant) for tenant in state if tenant.issues}
    return {name: entry(state.tenant(name)) for name in tenants}


@cache
def _script(name: str) -> tuple[str, str]:
    file = resources.files("sexton.issuer.redis") / "lua" / f"{name}.lua"
    text = file.read_text(encoding="utf-8")
    return text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _packed(parts: Sequence[str]) -> bytes:
    """Return a command as it goes over the wire (RESP, "RESP arrays" of "bulk strings")."""
    encoded = [part.encode("utf-8", _AS_IT_IS) for part in parts]
    lines = [b"$%d\r\n%b\r\n" % (len(part), part) for part in encoded]
    return b"*%d\r\n%b" % (len(lines), b"".join(lines))


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _texts(reply: Any) -> list[str]:
    return [item.decode("utf-8", _AS_IT_IS) for item in reply]


def _offset(raw: Entry) -> int | None:
    generation, at, offset = raw.partition("@")
    if not at or not _is_number(generation) or not _is_number(offset):
        return None
    return int(offset)


def _is_number(text: str) -> bool:
    """Return whether an issuer wrote it so: the scripts would order one with zeros in front otherwise."""
    return len(text) <= 20 and text.isascii() and text.isdigit() and text == str(int(text))
