"""The service as a service: a policy that changes at run time, TLS, time-outs, overload, a graceful stop."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from tests.support.issuing import Serve, attach, refused, start
from tests.support.servers import Server

from sexton.deploy.local import Installation
from sexton.issuer import service as service_module
from sexton.issuer.client import IssuerClient
from sexton.issuer.deadline import Deadline
from sexton.issuer.http import app as http_module
from sexton.issuer.http.app import create_app
from sexton.issuer.log.positions import Positions
from sexton.issuer.log.reader import LogReader
from sexton.issuer.redis.connection import RedisUnavailable
from sexton.issuer.service import Service
from sexton.issuer.snapshots.store import Snapshots
from sexton.issuer.state.request_ids import new_id
from sexton.schemas.errors import EnvironmentFault, IssuerUnavailable, KafkaUnavailable
from sexton.schemas.events import Genesis

pytestmark = pytest.mark.real


def test_i_10_a_policy_that_evicts_at_run_time(
    fresh: Installation, own_redis: Server, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I-10: while Redis may evict keys nothing is answered, and it continues when the policy is right
    again.
    """
    monkeypatch.setattr(service_module, "_CHECK_S", 0.05)
    service = serve(own_redis.settings(fresh))

    def attach_until(deadline: float) -> None:
        while time.monotonic() < deadline:
            attach(service, "n", "t")

    own_redis.client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(RedisUnavailable, match="allkeys-lru"):
        attach_until(time.monotonic() + 5)

    own_redis.client.config_set("maxmemory-policy", "noeviction")
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            assert attach(service, "n", "t") > 1
            break
        except EnvironmentFault:
            time.sleep(0.05)
    else:
        pytest.fail("it did not continue")


def test_a_graceful_stop_answers_calls_in_flight(fresh: Installation) -> None:
    """After SIGTERM what was asked before is answered, and the process ends by itself with 0."""
    process, url, _ = start(fresh)
    with IssuerClient(url) as issuer, ThreadPoolExecutor(8) as pool:
        issuer.attach("n", "t")
        calls = [pool.submit(issuer.attach, "n", f"t{i}", deadline=10) for i in range(8)]
        answers: list[int] = []
        while not answers:
            answers = [1 for call in calls if call.running() or call.done()]
        process.send_signal(signal.SIGTERM)
        ended = process.wait(15)
        outcomes = [call.exception() for call in calls]

    assert ended == 0
    assert all(error is None or isinstance(error, IssuerUnavailable) for error in outcomes)


@pytest.mark.parametrize("waits_for", ["fold", "kafka"])
def test_a_stop_before_it_is_ready(
    fresh: Installation, monkeypatch: pytest.MonkeyPatch, waits_for: str
) -> None:
    """A long log that is being folded, or a Kafka that went away, does not hold the stop up."""

    def away(*_: object) -> None:
        raise KafkaUnavailable("away")

    checked = Service._read_genesis

    def then_away(self: Service, deadline: Deadline) -> Genesis:
        genesis = checked(self, deadline)
        monkeypatch.setattr(Positions, "_read_once", away)
        return genesis

    if waits_for == "fold":
        monkeypatch.setattr(LogReader, "_step", lambda _: time.sleep(0.01))
    else:
        monkeypatch.setattr(Service, "_read_genesis", then_away)
    service = Service(fresh.settings)
    assert not service.wait_ready(1)
    begun = time.monotonic()
    service.stop()

    assert time.monotonic() - begun < 20


def test_a_slow_call_is_answered_during_the_stop(fresh: Installation, serve: Serve) -> None:
    """A call that is being carried out when the application stops gets its answer first."""
    service = serve(fresh.settings)
    workers = http_module._Workers()
    done: list[int] = []

    def slow() -> None:
        time.sleep(0.5)
        done.append(attach(service, "n", "t"))

    workers._pool.submit(slow)
    workers.close()

    assert done == [1]


def test_tls(fresh: Installation, tmp_path: Path) -> None:
    """With a certificate the service speaks TLS; clients trust the CA that they are given, and no other."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    made += ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    tls = {"SEXTON_ISSUER_TLS_CERT": str(certificate), "SEXTON_ISSUER_TLS_KEY": str(key)}
    process, url, _ = start(fresh, **tls)
    try:
        assert url.startswith("https://127.0.0.1:")
        with IssuerClient(url, ca=certificate) as issuer:
            assert issuer.attach("n", "t").generation == 1
        with IssuerClient(url, timeout_s=1) as stranger, pytest.raises(IssuerUnavailable):
            stranger.attach("n", "t")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0


def test_logs_are_json_lines(fresh: Installation) -> None:
    """Each line of the log is one JSON object; a call that changes something leaves one, without its body."""
    process, url, lines = start(fresh)
    with IssuerClient(url) as issuer:
        issuer.attach("secret-node", "secret-tenant")
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0
    time.sleep(0.2)

    rows = [json.loads(line) for line in lines]
    (call,) = [row for row in rows if row.get("path") == "/v1/attach"]
    assert {"time", "level", "logger", "message", "caller", "ms"} <= set(call)
    assert "secret" not in "".join(lines)


def test_too_many_calls_are_refused(
    fresh: Installation, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit of waiting calls a call is refused at once with 503 and a time to come back."""
    from fastapi.testclient import TestClient

    monkeypatch.setattr(http_module, "_WAITING", 0)
    with TestClient(create_app(serve(fresh.settings))) as client:
        reply = client.post("/v1/attach", json={"node": "n", "tenant": "t"})

    assert (reply.status_code, reply.json()["type"]) == (503, "overloaded")
    assert reply.headers["retry-after"] == "1"


def test_a_call_that_waited_too_long_is_not_carried_out(
    fresh: Installation, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that finds no thread in its time is told so in that time, and changes nothing."""
    from fastapi.testclient import TestClient

    answered = threading.Event()

    class Busy(ThreadPoolExecutor):
        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__(1)
            self.submit(answered.wait, 20)

    service = serve(fresh.settings)
    monkeypatch.setattr(service, "settings", service.settings.model_copy(update={"issuer_timeout_s": 0.5}))
    monkeypatch.setattr(http_module, "ThreadPoolExecutor", Busy)
    with TestClient(create_app(service)) as client:
        begun = time.monotonic()
        reply = client.post("/v1/attach", json={"node": "n", "tenant": "t"})
        took = time.monotonic() - begun
        answered.set()

    assert (reply.status_code, reply.json()["type"], took < 10) == (503, "overloaded", True)
    with service.reader.state() as state:
        assert not state.known("t")


def test_not_ready_until_the_fold_has_caught_up(fresh: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a snapshot loads and the log is folded calls and /readyz are 503 `not-ready`; /healthz is 200."""
    from fastapi.testclient import TestClient

    go_on = threading.Event()
    load = Snapshots.start
    monkeypatch.setattr(Snapshots, "start", lambda *arguments: (go_on.wait(20), load(*arguments))[1])
    service = service_module.Service(fresh.settings)
    try:
        with TestClient(create_app(service)) as client:
            refusals = [client.get("/readyz"), client.post("/v1/barrier", json={})]
            assert [(r.status_code, r.json()["type"]) for r in refusals] == [(503, "not-ready")] * 2
            assert client.get("/healthz").status_code == 200
            assert "sexton_issuer_ready 0.0" in client.get("/metrics").text
            go_on.set()
            assert service.ready.wait(20)
            assert client.get("/readyz").status_code == 200
    finally:
        go_on.set()
        service.stop()


def test_binds_to_loopback(fresh: Installation) -> None:
    """Unless told otherwise nobody but this machine reaches it."""
    process, url, _ = start(fresh)
    try:
        assert httpx.URL(url).host == "127.0.0.1"
        port = httpx.URL(url).port
        assert port is not None
        with socket.socket() as other:
            other.settimeout(1)
            assert other.connect_ex(("127.0.0.2", port)) != 0
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(15)


@pytest.mark.filterwarnings("ignore:You should not use the 'timeout'")
def test_a_client_takes_a_new_id_for_one_that_came_too_late(fresh: Installation, serve: Serve) -> None:
    """Ids that overtake each other cost a call nothing, unless the caller has made the id."""
    from fastapi.testclient import TestClient

    service = serve(fresh.settings)
    with TestClient(create_app(service)) as http, IssuerClient("http://testserver") as issuer:
        issuer._clients[os.getpid()] = cast(Any, http)
        request_id = new_id()
        with service.reader.state() as state:
            state.requests.mark = int(time.time() * 1000) + 300  # as if newer calls had filled the memory

        with refused("request-expired"):
            issuer.attach("n", "t", request_id)
        assert issuer.attach("n", "t").generation == 1
