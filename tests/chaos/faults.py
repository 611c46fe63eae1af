"""The faults, by kind. Each returns when what it broke has been put right again, as far as anybody would."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import redis

from sexton.deploy.local import LocalStack
from sexton.schemas.errors import EnvironmentFault

__all__ = ["KINDS", "Faults"]

KINDS = {
    "issuer killed": 14,
    "issuer stopped and woken": 8,
    "redis killed": 8,
    "redis killed and wiped": 6,
    "redis set back": 6,
    "redis flushed": 14,
    "redis key deleted": 12,
    "redis scripts flushed": 12,
    "redis refuses": 12,
    "redis busy": 4,
    "broker restarted": 1,
}
_BUSY = "local n = 0; while n < tonumber(ARGV[1]) do n = n + 1 end"
_REFUSALS = (
    ("maxmemory", "1", "0"),  # OOM
    ("min-replicas-to-write", "3", "0"),  # NOREPLICAS
    ("maxmemory-policy", "allkeys-lru", "noeviction"),  # the issuer refuses by itself
)


class Faults:
    """Breaks one stack's servers and issuers; `issuers` are replaced in place when they are killed."""

    def __init__(
        self,
        stack: LocalStack,
        issuers: list[subprocess.Popen[bytes]],
        start: Callable[[int], subprocess.Popen[bytes]],
        seed: int,
        stopped_s: float,
    ) -> None:
        self._stack = stack
        self._issuers = issuers
        self._start = start
        self._random = random.Random(seed)
        self._stopped_s = stopped_s
        self._folder = stack.directory / "redis" / "appendonlydir"
        self._old = stack.directory / "redis-old"
        self._redis: Any = redis.Redis.from_url(stack.env["SEXTON_REDIS_URL"], socket_timeout=5)

    def choose(self, allowed: list[str]) -> str:
        """Choose a kind by its weight."""
        return self._random.choices(allowed, [KINDS[kind] for kind in allowed])[0]

    def inject(self, kind: str) -> None:
        """Do it."""
        with suppress(redis.RedisError):  # a script that is still busy: the fault has had its effect
            getattr(self, "_" + kind.replace(" ", "_"))()

    def _issuer_killed(self) -> None:
        number = self._random.randrange(len(self._issuers))
        self._issuers[number].kill()
        self._issuers[number].wait()
        self._issuers[number] = self._start(number)

    def _issuer_stopped_and_woken(self) -> None:
        process = self._random.choice(self._issuers)
        process.send_signal(signal.SIGSTOP)
        wake = threading.Timer(self._stopped_s, lambda: process.send_signal(signal.SIGCONT))
        wake.daemon = True
        wake.start()

    def _restart_redis(self) -> None:
        for left in (3, 2, 1, 0):
            try:
                self._stack.restart("redis")
                return
            except EnvironmentFault:  # its port was taken by somebody's connection meanwhile
                if not left:
                    raise
                time.sleep(1.0)

    def _redis_killed(self) -> None:
        self._stack.kill("redis")
        if not self._old.exists():
            shutil.copytree(self._folder, self._old)
        self._restart_redis()

    def _redis_killed_and_wiped(self) -> None:
        self._stack.kill("redis")
        shutil.rmtree(self._folder, ignore_errors=True)
        self._restart_redis()

    def _redis_set_back(self) -> None:
        self._stack.kill("redis")
        if self._old.exists():
            shutil.rmtree(self._folder, ignore_errors=True)
            shutil.move(self._old, self._folder)
        else:
            shutil.copytree(self._folder, self._old)
        self._restart_redis()

    def _redis_flushed(self) -> None:
        self._redis.flushall()

    def _redis_key_deleted(self) -> None:
        keys = self._redis.keys()
        if keys:
            self._redis.delete(self._random.choice(sorted(keys)))

    def _redis_scripts_flushed(self) -> None:
        self._redis.script_flush()

    def _redis_refuses(self) -> None:
        name, wrong, right = self._random.choice(_REFUSALS)
        self._redis.config_set(name, wrong)
        try:
            time.sleep(0.1)
        finally:
            self._redis.config_set(name, right)

    def _redis_busy(self) -> None:
        self._redis.config_set("lua-time-limit", 10)
        self._redis.eval(_BUSY, 0, 10_000_000)

    def _broker_restarted(self) -> None:
        self._stack.kill("kafka")
        self._stack.restart("kafka")

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()
