"""The board in Redis. This is the one module of the jobs that imports redis."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import astuple
from importlib import resources
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError
from redis.retry import Retry

from sexton.schemas.memo import cache
from sexton.streaming_jobs.budget import aimd
from sexton.streaming_jobs.budget.board import BoardUnavailable

__all__ = ["RedisBoard", "key_of"]

# A sender waits for the answer. What takes longer than this is not worth it: the local share is there.
_TIMEOUT_S = 0.25
_PLAIN = re.compile(r"[a-z0-9][a-z0-9.-]{1,62}", re.ASCII)


class RedisBoard:
    """Budgets as one hash for each bucket, changed by one script; every call is one round trip."""

    def __init__(self, url: str, rule: aimd.Rule = aimd.RULE) -> None:
        self._redis = redis.Redis.from_url(
            url,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            # A lease whose answer was lost is lost: taking it twice would cost another task its turn.
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
        )
        self._rule = [repr(value) for value in astuple(rule)]

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def peek(self, bucket: str) -> float | None:
        """Return the rate in force, None for a bucket that was not throttled so far."""
        _, *answer = self.run(bucket, "peek")
        return float(answer[1]) if answer[0] == "rate" else None

    def lease(self, bucket: str, keys: int, known: float) -> aimd.Lease | aimd.Wait | None:
        """Reserve time for `keys`."""
        _, kind, *numbers = self.run(bucket, "lease", keys, known)
        if kind == "none":
            return None
        first, second, rate = map(float, numbers)
        return aimd.Lease(first, second, rate) if kind == "lease" else aimd.Wait(first, second, rate)

    def throttled(self, bucket: str, reply: aimd.Throttle) -> float:
        """Take a throttled reply in and return the rate in force after it."""
        _, _, rate = self.run(bucket, "throttled", reply.ago, reply.estimate, reply.retry_after, reply.known)
        return float(rate)

    def run(self, bucket: str, what: str, *numbers: float) -> list[str]:
        """Run the script and return its answer, the server's time first."""
        text, digest = _script()
        rest = ["1", key_of(bucket), what, *self._rule, *map(repr, numbers)]
        try:
            return _texts(self._send(["EVALSHA", digest, *rest], text))
        except (RedisError, OSError) as error:
            raise BoardUnavailable(f"Redis: {error}") from error

    def _send(self, command: Sequence[str], text: str) -> Any:
        try:
            return self._redis.execute_command(*command)  # type: ignore[no-untyped-call]
        except NoScriptError:
            return self._redis.execute_command("EVAL", text, *command[2:])  # type: ignore[no-untyped-call]


def key_of(bucket: str) -> str:
    """Return the key of a bucket's hash; what is no bucket's name by S3's rules is hashed."""
    name = bucket if _PLAIN.fullmatch(bucket) else "sha256:" + hashlib.sha256(_bytes(bucket)).hexdigest()
    return f"sexton:budget:{{{name}}}"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@cache
def _script() -> tuple[str, str]:
    text = (resources.files("sexton.streaming_jobs.budget") / "lua" / "budget_v1.lua").read_text("utf-8")
    return text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _texts(reply: Any) -> list[str]:
    return [item.decode("ascii") if isinstance(item, bytes) else str(item) for item in reply]
