"""What comes in over HTTP: bodies without a bound, clients that hang up, odd names, watched on a process."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import psutil
import pytest
from tests.support.issuing import serving

from sexton.deploy.local import Installation
from sexton.issuer.client import IssuerClient

pytestmark = pytest.mark.real
MIB = 1024 * 1024


def peak(pid: int) -> int:
    """The most memory that a process ever had, bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def total(url: str, name: str) -> float:
    """The sum of a metric over its labels."""
    text = httpx.get(f"{url}/metrics", trust_env=False).text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


def test_a_chunked_body_has_a_bound(fresh: Installation) -> None:
    """A body that does not tell its length is refused at the limit, and no more of it is kept."""

    def chunks() -> Iterator[bytes]:
        for _ in range(200):
            yield bytes(MIB)

    with serving(fresh) as issuer:
        httpx.post(f"{issuer.url}/v1/attach", content=b"{}", trust_env=False)
        before = peak(issuer.process.pid)
        try:
            reply = httpx.post(f"{issuer.url}/v1/attach", content=chunks(), trust_env=False, timeout=30)
            assert (reply.status_code, reply.json()["type"]) == (413, "too-large")
        except httpx.WriteError:
            pass  # the answer came while the rest was being sent, and the connection was closed
        assert psutil.pid_exists(issuer.process.pid)
        assert peak(issuer.process.pid) - before < 110 * MIB


def answer(url: str, sent: bytes, within_s: float) -> bytes:
    """What comes back until the connection is closed, for a request that is never finished."""
    address = httpx.URL(url)
    assert address.port is not None
    with socket.create_connection((address.host, address.port)) as connection:
        connection.settimeout(within_s)
        connection.sendall(sent)
        received, part = b"", b"-"
        while part:
            part = connection.recv(10_000)
            received += part
    return received


def test_a_body_that_stops_half_way(fresh: Installation) -> None:
    """A call has its time to come in too: then it is refused, and the connection is closed."""
    with serving(fresh, SEXTON_ISSUER_TIMEOUT_S="1") as issuer:
        head = b"POST /v1/attach HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
        received = answer(issuer.url, head + b'{"node":', 20)
        alive = httpx.post(f"{issuer.url}/v1/attach", json={"node": "n", "tenant": "t"}, trust_env=False)

    assert b" 408 " in received.splitlines()[0]
    assert b'"type":"too-slow"' in received
    assert alive.json()["generation"] == 1


@pytest.mark.parametrize("path", ["/upcall/v1/re-attach", "/v1/attach"])
@pytest.mark.parametrize("inside", ['{"register":', '{"node_id":"n","later":', '{"node":"n","tenant":'])
def test_a_body_that_is_nested_too_deeply(shared: Installation, path: str, inside: str) -> None:
    """Known fields or unknown ones: it is a wrong request, not a fault of the issuer."""
    body = inside + "[" * 200_000 + "]" * 200_000 + "}"

    reply = httpx.post(f"{shared.settings.issuer_url}{path}", content=body, trust_env=False)

    assert (reply.status_code, reply.json()["type"]) == (400, "invalid-request")


@pytest.mark.parametrize("call", ["import", "barrier"])
def test_an_event_larger_than_the_log_takes(shared: Installation, unique: str, call: str) -> None:
    """What can never be appended is refused for good, so that nobody tries again."""
    topic_id = httpx.post(f"{shared.settings.issuer_url}/v1/barrier", json={}, trust_env=False).json()[
        "topic_id"
    ]
    names = [f"{unique}-{number}".ljust(512, "x") for number in range(10_000)]
    body = {
        "import": {"tenants": [{"tenant": name, "generation": 1, "node": name} for name in names]},
        "barrier": {"unsettled": {"topic_id": topic_id, "offsets": [2**62] * 1_000_000}},
    }[call]

    reply = httpx.post(f"{shared.settings.issuer_url}/v1/{call}", json=body, trust_env=False, timeout=30)

    assert (reply.status_code, reply.json()["type"]) == (413, "too-large")


def test_what_other_methods_are_told(shared: Installation) -> None:
    """A load balancer may ask with HEAD, and who uses a wrong method learns the right one."""
    url = shared.settings.issuer_url
    for path in ("/healthz", "/readyz", "/metrics"):
        reply = httpx.head(f"{url}{path}", trust_env=False)
        assert (reply.status_code, reply.content) == (200, b"")

    wrong = httpx.get(f"{url}/v1/attach", trust_env=False)
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


def test_a_client_that_hangs_up(fresh: Installation) -> None:
    """A connection that ends in the middle of a body is no fault of the issuer: no traceback, no count."""
    with serving(fresh) as issuer:
        address = httpx.URL(issuer.url)
        assert address.port is not None
        with socket.create_connection((address.host, address.port)) as connection:
            connection.sendall(b"POST /v1/attach HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            time.sleep(0.3)
        until = time.monotonic() + 10
        while not any("client-gone" in line for line in issuer.lines):
            assert time.monotonic() < until
            time.sleep(0.05)
        refused = total(issuer.url, "sexton_issuer_refused_total")

    assert refused == 0
    assert "Traceback" not in "".join(issuer.lines)
    assert all(json.loads(line)["level"] != "ERROR" for line in issuer.lines)


@pytest.mark.parametrize("name", ["a\nb", "a\n", "\r\n", "\n"])
def test_names_with_line_breaks(shared: Installation, issuer: IssuerClient, unique: str, name: str) -> None:
    """A tenant and a node with a line break in the name can be verified as every other."""
    tenant, node = f"{unique}{name}", f"{unique}{name}"
    issuer.attach("n", tenant)
    issuer.register_node(node)
    found, number = issuer.tenant(tenant), issuer.node(node)
    unknown = httpx.get(f"{shared.settings.issuer_url}/v1/tenants/{quote('no' + name)}", trust_env=False)

    assert (found and found.tenant, found and found.generation) == (tenant, 1)
    assert number is not None
    assert unknown.json()["type"] == "unknown-tenant"


@pytest.mark.parametrize("node_id", ["", -1, 2**64, 2**70])
def test_published_re_attach_of_what_is_no_node(shared: Installation, node_id: int | str) -> None:
    """The published engine's numbers are u64, and a node has a name."""
    url = f"{shared.settings.issuer_url}/upcall/v1/re-attach"

    reply = httpx.post(url, content=json.dumps({"node_id": node_id}), trust_env=False)

    assert (reply.status_code, reply.json()["type"]) == (400, "invalid-request")
