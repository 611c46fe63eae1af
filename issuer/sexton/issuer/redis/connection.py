"""Redis as the projection reaches it: commands and scripts, each sent once, where the log's keys are.

All keys of a log share a hash tag. In a cluster of slots one node has them all: the connection goes there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import MovedError, NoScriptError, RedisError, ResponseError
from redis.retry import Retry

from sexton.schemas.errors import EnvironmentFault, SextonError

__all__ = ["AS_IT_IS", "Connection", "ProjectionMissing", "RedisUnavailable"]

AS_IT_IS = "surrogateescape"  # what is no text must go back as it came: it is compared before it is set


class RedisUnavailable(EnvironmentFault):
    """Redis does not answer, or answers that it cannot serve now."""

    usual_hint = "is Redis up, and SEXTON_REDIS_URL right? `sexton doctor` looks"


class ProjectionMissing(SextonError):
    """Redis holds no projection, or something else in its place: it has to be built from the log."""


class Connection:
    """Connections to one Redis.

    What is sent raises RedisUnavailable when Redis cannot serve it, ProjectionMissing where a key of another
    type is in the way.
    """

    def __init__(self, url: str) -> None:
        self._entrance = redis.Redis.from_url(
            url,
            socket_timeout=2.0,
            socket_connect_timeout=1.0,
            # A script whose answer was lost must not run again by itself: the authority decides.
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            max_connections=128,
            encoding_errors=AS_IT_IS,
        )
        self._redis = self._entrance  # or the node of a cluster that owns the slot of our keys
        self._nodes: dict[tuple[str, int], redis.Redis] = {}

    def close(self) -> None:
        """Close the connections."""
        for each in (self._entrance, *self._nodes.values()):
            each.close()

    def run(self, name: str, keys: Sequence[str], arguments: Sequence[str | int]) -> Any:
        """Run a script once; EVAL follows only when the server said that it did not have it."""
        text, digest = _script(name)
        rest = [str(len(keys)), *keys, *map(str, arguments)]
        try:
            return self._guarded(lambda: self._send(["EVALSHA", digest, *rest]))
        except NoScriptError:
            return self.command("EVAL", text, *rest)

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

    def command(self, *parts: Any) -> Any:
        """Send a command and return its answer."""
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


@cache
def _script(name: str) -> tuple[str, str]:
    file = resources.files("sexton.issuer.redis") / "lua" / f"{name}.lua"
    text = file.read_text(encoding="utf-8")
    return text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _packed(parts: Sequence[str]) -> bytes:
    """Return a command as it goes over the wire (RESP, "RESP arrays" of "bulk strings")."""
    encoded = [part.encode("utf-8", AS_IT_IS) for part in parts]
    lines = [b"$%d\r\n%b\r\n" % (len(part), part) for part in encoded]
    return b"*%d\r\n%b" % (len(lines), b"".join(lines))
