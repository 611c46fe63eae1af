"""Parts of the issuer's benchmark that look at size and at Redis: see `benchmarks.issuer`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psutil
import redis
from benchmarks.harness import Bench, median, say
from confluent_kafka import Producer

from sexton.deploy.topics import create_installation
from sexton.issuer.client import IssuerClient
from sexton.issuer.deadline import Deadline
from sexton.issuer.log.positions import Positions
from sexton.issuer.log.reader import open_reader
from sexton.issuer.redis.projection import Projection, entries_of
from sexton.issuer.snapshots.store import Snapshots
from sexton.issuer.state import request_ids
from sexton.issuer.state.state import Issue, Request, State
from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.settings import Settings, load

__all__ = ["at_rate", "attach_at_rate", "compare_with_mget", "re_attach_all", "start_from_snapshot"]

_PER_CALL = 10_000
_NODES = 1000
_REQUESTS = 100_000
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


# --- Redis -------------------------------------------------------------------------------------------------


def compare_with_mget(settings: Settings, runs: int = 7) -> dict[str, float]:
    """Compare every tenant of the log with the projection, and MGET keys of the same names and values.

    Both go through one client library, 10,000 in a call; MGET is one pipeline. Seconds for all, and server
    CPU microseconds by tenant.
    """
    deadline = Deadline.after(60)
    reader = open_reader(settings, Positions(settings), deadline)
    reader.wait_for(Positions(settings).read(deadline).log_end - 1, deadline)
    with reader.state() as state:
        entries, genesis = entries_of(state), state.genesis
    reader.stop()
    assert genesis is not None
    projection = Projection(settings, genesis.generations_topic_id)
    client = redis.Redis.from_url(settings.redis_url.get_secret_value())
    chunks = [list(entries)[at : at + _PER_CALL] for at in range(0, len(entries), _PER_CALL)]
    for chunk in chunks:
        client.mset({f"bench:{name}": entries[name] for name in chunk})
    lua: list[float] = []
    mget: list[float] = []
    cpu: dict[str, list[float]] = {"evalsha": [], "mget": []}
    for _ in range(runs):
        for command, times, work in (
            ("evalsha", lua, lambda: _compare(projection, entries, chunks)),
            ("mget", mget, lambda: _mget(client, chunks)),
        ):
            before = _server_us(client, command)
            times.append(_timed(work))
            cpu[command].append((_server_us(client, command) - before) / len(entries))
    for chunk in chunks:
        client.delete(*(f"bench:{name}" for name in chunk))
    projection.close()
    client.close()
    return {
        "lua_100k_s": median(lua) * 100_000 / len(entries),
        "mget_100k_s": median(mget) * 100_000 / len(entries),
        "lua_server_us": median(cpu["evalsha"]),
        "mget_server_us": median(cpu["mget"]),
    }


def _compare(projection: Projection, entries: dict[str, str], chunks: list[list[str]]) -> None:
    for chunk in chunks:
        if projection.compare({name: entries[name] for name in chunk}):
            raise RuntimeError("redis and the log differ")


def _mget(client: Any, chunks: list[list[str]]) -> None:
    pipeline = client.pipeline(transaction=False)
    for chunk in chunks:
        pipeline.mget([f"bench:{name}" for name in chunk])
    if any(None in values for values in pipeline.execute()):
        raise RuntimeError("a key is missing")


def _server_us(client: Any, command: str) -> float:
    return float(client.info("commandstats").get(f"cmdstat_{command}", {}).get("usec", 0))


def _timed(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


# --- calls -------------------------------------------------------------------------------------------------


def at_rate(
    url: str,
    rate: float,
    seconds: float,
    call: Callable[[IssuerClient, int, int], object],
    threads: int = 24,
) -> tuple[float, list[float]]:
    """Make a call `rate` times a second, each at its moment whatever the others do.

    `call` is given a client, its thread's number and the turn. Returns how many a second were carried out,
    and the milliseconds from the moment at which each was due, sorted: what waits for a free thread counts.
    """
    total, taken, times = int(rate * seconds), iter(range(int(rate * seconds))), []
    lock, begun = threading.Lock(), time.perf_counter() + 0.5

    def work(number: int) -> None:
        with IssuerClient(url, timeout_s=30) as client:
            while True:
                with lock:
                    turn = next(taken, None)
                if turn is None:
                    return
                due = begun + turn / rate
                time.sleep(max(0.0, due - time.perf_counter()))
                call(client, number, turn)
                times.append((time.perf_counter() - due) * 1000)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return total / (time.perf_counter() - begun), sorted(times)


def attach_at_rate(url: str, rate: float, seconds: float, prefix: str) -> dict[str, float]:
    """Attach a new tenant `rate` times a second; see `at_rate`."""
    carried_out, times = at_rate(
        url, rate, seconds, lambda client, n, turn: client.attach(f"node-r{n}", f"{prefix}-{turn:06d}")
    )
    return {
        "attach_rate_per_s": carried_out,
        "attach_500_p50_ms": times[len(times) // 2],
        "attach_500_p99_ms": times[len(times) * 99 // 100],
    }


def re_attach_all(client: IssuerClient, node: str, expected: int) -> float:
    """Re-attach a node that holds so many tenants; return the seconds it took."""
    begun = time.perf_counter()
    granted = client.re_attach(node)
    took = time.perf_counter() - begun
    if len(granted) != expected:
        raise RuntimeError(f"re-attached {len(granted)} tenants, not {expected}")
    return took


# --- start from a snapshot ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Site:
    """A log of its own on the benchmark's servers."""

    settings: Settings
    environ: dict[str, str]


def start_from_snapshot(bench: Bench, tenants: int, tail: int) -> dict[str, float]:
    """Start an issuer of so many tenants from a snapshot and `tail` events after it.

    The state is made up and written by the issuer's own code: what is left of any number of events once
    history was cut is a window for each tenant, here each from an event of its own, a second one for every
    tenth tenant, and 100,000 request ids. The events after it are real ones. Starts twice: with an empty
    Redis, and with one that holds the projection already.
    """
    site = _site(bench, "scale.")
    say(f"making a state of {tenants:,} tenants")
    state, deadline = _state(site.settings, tenants), Deadline.after(600)
    begun = time.perf_counter()
    taken = Snapshots(site.settings, Positions(site.settings)).take(state, deadline)
    written_s = time.perf_counter() - begun
    del state
    size_mib = sum(taken.manifest.sizes) / 2**20
    say(f"snapshot of {size_mib:.0f} MiB in {written_s:.1f} s; {tail:,} events after it")
    _append_tail(site.settings, tenants, tail)
    first_s, resident = _start(site.environ)
    again_s, _ = _start(site.environ)
    bare_s, bare = _start(_site(bench, "bare.").environ)
    say(f"an issuer without tenants: {bare_s:.1f} s, {bare / 2**20:.0f} MiB")
    return {
        "start_redis_empty_s": first_s,
        "start_s": again_s,
        "bytes_per_tenant": (resident - bare) / tenants,
        "snapshot_mib": size_mib,
        "snapshot_write_s": written_s,
    }


def _site(bench: Bench, prefix: str) -> _Site:
    redis_url = bench.settings.redis_url.get_secret_value().rpartition("/")[0]
    environ = bench.environment(
        SEXTON_TOPIC_PREFIX=prefix,
        SEXTON_REDIS_URL=f"{redis_url}/{1 + len(prefix) % 7}",
        SEXTON_ISSUER_BIND="127.0.0.1:0",
        SEXTON_ISSUER_SNAPSHOT_EVENTS="0",
    )
    settings = load(environ)
    create_installation(settings, partitions=8)
    return _Site(settings, environ)


def _state(settings: Settings, tenants: int) -> State:
    reader = open_reader(settings, Positions(settings), Deadline.after(30))
    reader.wait_for(0, Deadline.after(30))
    with reader.state() as state:
        made = state
    reader.stop()
    ends, topic = [0] * 8, made.genesis.intents_topic_id if made.genesis else ""
    for number in range(tenants + tenants // 10):
        tenant, node = number % tenants, f"node-{number % _NODES}"
        ends[number % 8] += 5
        made._raise_high(events.PartitionOffsets(topic, ends))
        owned = made._own(_name(tenant))
        made._add(owned, Issue(number, node, made.high))
        made._hold(owned, node)
        if number < _REQUESTS:
            request = Request("host/1/abc", "attach", node, 1, {0: number}, {owned.name: 1})
            made.requests.bind(request_ids.new_id(), request, 1)
    return made


def _append_tail(settings: Settings, tenants: int, count: int) -> None:
    codec, producer = Codec(), Producer(settings.kafka(**{"linger.ms": 20, "acks": "all"}))
    ends = Positions(settings).read(Deadline.after(30)).intents
    attach = events.IssueOperation.ATTACH
    for number in range(count):
        event = events.Issued(
            request_ids.new_id(),
            "host/1/abc",
            attach,
            f"node-{number % _NODES}",
            0,
            1,
            [events.Grant(_name(tenants - 1 - number), 2, 1)],
            ends,
            _NOW,
        )
        while True:
            try:
                producer.produce(settings.topic(records.GENERATIONS), codec.encode(event), partition=0)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("the events were not written")


@contextmanager
def _serving(environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "sexton.deploy.main", "issuer", "serve"]
    process = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _start(environ: dict[str, str]) -> tuple[float, int]:
    """Start an issuer; return the seconds until it was ready, and its resident bytes then."""
    begun = time.perf_counter()
    with _serving(environ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if re.search(r"issuer ready: http", line):
                took = time.perf_counter() - begun
                return took, int(psutil.Process(process.pid).memory_info().rss)
        raise RuntimeError("the issuer did not start")


def _name(number: int) -> str:
    return f"tenant-{number:07d}"


if __name__ == "__main__":  # one part alone, for profiling: the settings come from the environment
    print(json.dumps(compare_with_mget(load(os.environ))))
