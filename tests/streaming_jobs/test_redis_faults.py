"""Whatever Redis answers intents wait: nothing becomes a dead letter, and all continues by itself."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from pyspark.sql import SparkSession
from tests.support.chain import Chain
from tests.support.issuing import serving
from tests.support.running import Running, running
from tests.support.s3_recorder import S3Recorder
from tests.support.servers import Server

from sexton.deploy.local import Installation, LocalStack
from sexton.issuer.client import IssuerClient
from sexton.schemas import events

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.faults]

BUSY = "while true do end"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[list[Server]]:
    """The issuer's Redis, and one that can be its master; no AOF, so that a dump is what is loaded."""
    servers = []
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
        servers.append(Server(tmp_path / name, "--appendonly", "no", "--lua-time-limit", "5"))
    yield servers
    for each in servers:
        each.kill()
        each.client.close()


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ResponseError:
        return False


@contextmanager
def busy(own: Server, other: Server) -> Iterator[None]:
    """Somebody's script does not end."""
    client = redis.Redis(port=own.port, socket_timeout=None)
    with ThreadPoolExecutor(1) as pool:
        script = pool.submit(client.eval, BUSY, 0)
        try:
            while _answers(own.client):
                time.sleep(0.01)
            yield
        finally:
            own.client.script_kill()
        script.exception(20)
    client.close()


@contextmanager
def loading(own: Server, other: Server) -> Iterator[None]:
    """It was started again and has a dump of 100,000 keys to load from a slow disk."""
    own.client.eval("for i = 1, 100000 do redis.call('SET', 'x' .. i, 'y') end", 0)
    own.client.save()
    own.kill()
    slowly = ("--key-load-delay", "40", "--loading-process-events-interval-bytes", "1024")
    assert own.start(*slowly, loading=True)
    yield
    until = time.monotonic() + 30
    while own.client.info("persistence")["loading"]:
        assert time.monotonic() < until
        time.sleep(0.05)


@contextmanager
def replica(own: Server, other: Server) -> Iterator[None]:
    """It follows a master, which has nothing of what it had."""
    own.client.replicaof("127.0.0.1", str(other.port))
    until = time.monotonic() + 20
    while own.client.info("replication")["master_link_status"] != "up":
        assert time.monotonic() < until
        time.sleep(0.02)
    yield
    own.client.replicaof("NO", "ONE")


@contextmanager
def too_few_replicas(own: Server, other: Server) -> Iterator[None]:
    """Too few replicas follow it for it to take writes."""
    own.client.config_set("min-replicas-to-write", 1)
    yield
    own.client.config_set("min-replicas-to-write", 0)


@contextmanager
def out_of_memory(own: Server, other: Server) -> Iterator[None]:
    """It has used all that it may use, and evicts nothing."""
    own.client.config_set("maxmemory", own.client.info("memory")["used_memory"] // 2)
    yield
    own.client.config_set("maxmemory", 0)


Trouble = Callable[[Server, Server], Any]
TROUBLES: dict[str, Trouble] = {
    "BUSY": busy,
    "READONLY": replica,
    "NOREPLICAS": too_few_replicas,
    "OOM": out_of_memory,
    "LOADING": loading,
}
SAID = {
    "BUSY": "[Bb]usy",
    "LOADING": "loading",
    "READONLY": "read only|READONLY",
    "NOREPLICAS": "[Nn]ot enough good replicas|NOREPLICAS",
    "OOM": "OOM|maxmemory",
}


HOLDS = ("BUSY", "READONLY", "LOADING")  # the judge asks Redis for nothing that the others refuse


def test_i_13_what_redis_cannot_do_now_is_waited_for(
    stack: LocalStack, spark: SparkSession, s3: S3Recorder, own: list[Server]
) -> None:
    """I-13: BUSY, READONLY, NOREPLICAS, OOM, LOADING: 503 and no number; intents wait, no dead letters."""
    made = Installation.start(stack, "redis-troubles", with_issuer=False)
    s3.create_bucket("bucket")
    redis_url = f"redis://127.0.0.1:{own[0].port}/0"
    with serving(made, SEXTON_REDIS_URL=redis_url) as issuer, IssuerClient(issuer.url) as client:
        changes = {"issuer_url": issuer.url, "s3_endpoint_url": s3.url, "reaper_trigger_s": 0.1}
        chain = Chain(made.settings.model_copy(update=changes), spark, "bucket")
        generation = client.attach("n", "t").generation
        with running(chain) as reaper:
            for name, trouble in TROUBLES.items():
                _live_through(name, trouble(*own), chain, s3, reaper, generation)
                generation = client.attach("n", "t").generation
        assert generation == 1 + len(TROUBLES)
        assert list(chain.words().values()) == ["deleted"] * len(TROUBLES)
        assert chain.dead_letters() == []
    made.stop()


def _live_through(
    name: str, trouble: Any, chain: Chain, s3: S3Recorder, reaper: Running, generation: int
) -> None:
    """Ask for a number and write an intent while the trouble lasts; return once the intent is carried out."""
    log, held = chain.generation_events(), len(reaper.events("held"))
    s3.buckets.fill("bucket", {name: b"x"})
    with trouble:
        refused = httpx.post(
            f"{chain.settings.issuer_url}/v1/attach", json={"node": "n", "tenant": "t"}, timeout=20
        )
        assert (refused.status_code, refused.json()["type"]) == (503, "redis-unavailable")
        assert re.search(SAID[name], refused.json()["detail"]), refused.text
        (asked,) = chain.emit(chain.intent("t", generation, [name]))
        if name in HOLDS:
            reaper.until(lambda: len(reaper.events("held")) > held)
            assert name in s3.objects("bucket")
            assert asked not in chain.words()
        issued = [event for event in chain.generation_events() if not isinstance(event, events.Barrier)]
        assert issued == [event for event in log if not isinstance(event, events.Barrier)]
    reaper.until(lambda: asked in chain.words())
    assert name not in s3.objects("bucket")
