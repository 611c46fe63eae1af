"""Two processes, one real Redis and a store that throttles, over real HTTP: the simulation's figures again.

    python -m benchmarks.throttling_real store --limit 20000
    python -m benchmarks.throttling_real send --port 9500 --redis redis://127.0.0.1:6379/0 --seconds 30

`measure` starts a Valkey, the store and two senders and returns what the store counted, second by second.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import queue
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sexton.deploy.local import LocalStack
from sexton.schemas.settings import load
from sexton.streaming_jobs.budget import open_budget

__all__ = ["main", "measure"]

_BUCKET = "bench-bucket"
_BATCH = 1_000
_THREADS = 8
_LATENCY_S = 0.05
_BURST_S = 0.5
_BODY = (
    b"<Delete>" + b"".join(b"<Object><Key>k/%06d</Key></Object>" % n for n in range(_BATCH)) + b"</Delete>"
)
_CLEAN = b"<DeleteResult></DeleteResult>"
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


# --- the store ---------------------------------------------------------------------------------------------


class _Limited:
    """A token bucket in front of nothing."""

    def __init__(self, limit: float) -> None:
        self._limit, self._tokens, self._at = limit, limit * _BURST_S, time.monotonic()
        self.seconds: dict[int, list[int]] = {}

    def delete(self) -> bool:
        now = time.monotonic()
        self._tokens = min(self._tokens + self._limit * (now - self._at), self._limit * _BURST_S)
        self._at = now
        taken = self._tokens >= _BATCH
        self._tokens -= _BATCH if taken else 0
        counted = self.seconds.setdefault(int(now), [0, 0])
        counted[0] += 1
        counted[1] += not taken
        return taken


async def _serve(limit: float) -> None:
    limited = _Limited(limit)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    (int(h[15:]) for h in head.lower().split(b"\r\n") if h[:15] == b"content-length:"), 0
                )
                await reader.readexactly(length)
                status, body = b"200 OK", json.dumps(limited.seconds).encode()
                if head.startswith(b"POST"):
                    taken = limited.delete()
                    await asyncio.sleep(_LATENCY_S)
                    status, body = (b"200 OK", _CLEAN) if taken else (b"503 Slow Down", _SLOW_DOWN)
                writer.write(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# --- a sender ----------------------------------------------------------------------------------------------


def _send(port: int, redis_url: str, seconds: float) -> dict[str, float]:
    """Delete as fast as the budget allows; one thread asks it, others send."""
    budget = open_budget(load({"SEXTON_REDIS_URL": redis_url}), tasks=2)
    replies: queue.SimpleQueue[tuple[bool, float]] = queue.SimpleQueue()
    idle: queue.SimpleQueue[http.client.HTTPConnection] = queue.SimpleQueue()
    for _ in range(_THREADS):
        idle.put(http.client.HTTPConnection("127.0.0.1", port, timeout=30))

    def post() -> None:
        connection, begun = idle.get(), time.monotonic()
        connection.request("POST", f"/{_BUCKET}?delete", _BODY)
        reply = connection.getresponse()
        reply.read()
        idle.put(connection)
        replies.put((reply.status == 503, time.monotonic() - begun))

    out, in_budget, calls, until = 0, 0.0, 0, time.monotonic() + seconds
    with ThreadPoolExecutor(_THREADS) as pool:
        while time.monotonic() < until:
            wait = 0.05
            while out < budget.in_flight_limit(_BUCKET):
                begun = time.perf_counter()
                wait = budget.take(_BUCKET, _BATCH)
                in_budget += time.perf_counter() - begun
                calls += 1
                if wait:
                    break
                pool.submit(post)
                out += 1
            try:
                throttled, took = replies.get(timeout=min(wait or 1.0, 1.0))
            except queue.Empty:
                continue
            out -= 1
            begun = time.perf_counter()
            budget.report(_BUCKET, _BATCH, throttled=throttled, retry_after_s=None, seconds=took)
            in_budget += time.perf_counter() - begun
    return {"calls": calls, "budget_s": in_budget}


# --- both --------------------------------------------------------------------------------------------------


def measure(limit: float = 20_000.0, seconds: float = 32.0, settle_s: float = 10.0) -> dict[str, Any]:
    """Return what the store counted after `settle_s`: achieved of allowed, share of throttled requests."""
    here = [sys.executable, "-m", "benchmarks.throttling_real"]
    with tempfile.TemporaryDirectory(prefix="sexton-bench-throttling-") as folder:
        stack = LocalStack.start(
            Path(folder) / "stack", without={"kafka", "issuer", "s3", "topics", "bucket"}, environ={}
        )
        store = subprocess.Popen([*here, "store", "--limit", str(limit)], stdout=subprocess.PIPE, text=True)
        try:
            assert store.stdout is not None
            port = store.stdout.readline().strip()
            url = stack.settings.redis_url.get_secret_value()
            command = [*here, "send", "--port", port, "--redis", url, "--seconds", str(seconds)]
            senders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
            sent = [json.loads(sender.communicate(timeout=seconds + 60)[0]) for sender in senders]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/counted") as reply:
                counted: dict[str, list[int]] = json.load(reply)
        finally:
            store.kill()
            store.wait()
            if store.stdout is not None:
                store.stdout.close()
            stack.stop()
    first = min(map(int, counted))
    rows = [counted.get(str(first + n), [0, 0]) for n in range(int(seconds))]
    steady = rows[int(settle_s) : -1]  # the last second is cut off
    requests, throttled = sum(r for r, _ in steady), sum(t for _, t in steady)
    return {
        "limit": limit,
        "achieved": (requests - throttled) * _BATCH / (limit * len(steady)),
        "throttled": throttled / max(1, requests),
        "budget_us_per_request": sum(s["budget_s"] for s in sent) * 1e6 / sum(r for r, _ in rows),
        "seconds": rows,
    }


def main() -> None:
    """Be the store or a sender."""
    parser = argparse.ArgumentParser(description="parts of the throttling benchmark over real HTTP")
    parser.add_argument("part", choices=["store", "send"])
    parser.add_argument("--limit", type=float, default=20_000.0)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--redis", default="redis://127.0.0.1:6379/0")
    parser.add_argument("--seconds", type=float, default=30.0)
    args = parser.parse_args()
    if args.part == "store":
        asyncio.run(_serve(args.limit))
    else:
        print(json.dumps(_send(args.port, args.redis, args.seconds)))


if __name__ == "__main__":
    main()
