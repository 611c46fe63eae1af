"""The HTTP face: problem documents, the published engine's calls, health, metrics, OpenAPI."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from sexton.deploy.local import Installation
from sexton.issuer.client import IssuerClient
from sexton.issuer.http.app import problem_of
from sexton.issuer.log.positions import WrongTopic
from sexton.issuer.redis.connection import RedisUnavailable
from sexton.issuer.service import NotReady
from sexton.schemas.errors import (
    InvalidEvent,
    IssuerUnavailable,
    KafkaUnavailable,
    LogBroken,
    RequestRefused,
    SextonError,
    UsageError,
)


@pytest.fixture
def http(shared: Installation) -> Iterator[httpx.Client]:
    """A plain HTTP client of the shared issuer."""
    with httpx.Client(base_url=shared.settings.issuer_url, trust_env=False, timeout=20) as client:
        yield client


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        (LogBroken("x"), "log-broken", 503),
        (WrongTopic("x"), "wrong-topic", 503),
        (NotReady(), "not-ready", 503),
        (RedisUnavailable("x"), "redis-unavailable", 503),
        (KafkaUnavailable("x"), "kafka-unavailable", 503),
        (UsageError("x"), "invalid-request", 400),
        (InvalidEvent("x"), "invalid-request", 400),
        (RequestRefused("not-held", "x", status=409), "not-held", 409),
        (SextonError("x"), "internal-error", 500),
    ],
)
def test_each_error_has_its_problem_type(error: SextonError, kind: str, status: int) -> None:
    """The problem types and statuses that clients rely on."""
    problem = problem_of(error)

    assert (problem.type, problem.status) == (kind, status)


@pytest.mark.real
def test_a_wrong_parameter_is_told_in_plain_words(http: httpx.Client) -> None:
    """The parameter is named with what it must be; no outcome of the validating library is reported."""
    problem = http.get("/v1/tenants/nobody?history=x").json()

    assert problem["detail"] == "history: a whole number is needed: 'x'"


@pytest.mark.real
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/attach", b""),
        ("/v1/attach", b"[]"),
        ("/v1/attach", b'{"node": "n"}'),
        ("/v1/attach", b'{"node": "n", "tenant": "t", "tenants": ["t"]}'),
        ("/v1/attach", b'{"node": "n", "tenants": ["t", "t"]}'),
        ("/v1/attach", b'{"node": "n", "tenant": 5}'),
        ("/v1/attach", b'{"node": "n", "tenant": "t", "generatoin": 3}'),
        ("/v1/attach", b'{"node": "n", "tenant": "\\ud800"}'),
        ("/v1/attach", b'{"node": "n", "tenant": "\xff"}'),
        ("/v1/validate", b'{"subjects": [], "at_leest": 5}'),
        ("/v1/validate", b'{"subjects": [{"tenant": "t", "generation": 1, "partition": -1}]}'),
        ("/v1/validate", b'{"subjects": [{"tenant": "t", "generation": 1.5, "partition": 0}]}'),
        ("/v1/import", b"{}"),
        ("/v1/import", b'{"tenants": [], "nodes": []}'),
        ("/v1/barrier", b'{"unsettled": {"topic_id": "x", "offsets": [-1]}}'),
    ],
)
def test_wrong_requests_are_told_so(http: httpx.Client, path: str, body: bytes) -> None:
    """A request with a wrong, missing or unknown field is a 400 with a problem document."""
    reply = http.post(path, content=body)

    assert (reply.status_code, reply.json()["type"]) == (400, "invalid-request")
    assert reply.headers["content-type"] == "application/problem+json"


@pytest.mark.real
@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/v1/nothing", 404, "not-found"),
        ("GET", "/v1/attach", 405, "method-not-allowed"),
        ("GET", "/v1/tenants/nobody?history=x", 400, "invalid-request"),
        ("GET", "/v1/tenants/nobody", 404, "unknown-tenant"),
    ],
)
def test_wrong_addresses(http: httpx.Client, method: str, path: str, status: int, kind: str) -> None:
    """What is not there is a problem document too."""
    reply = http.request(method, path)

    assert (reply.status_code, reply.json()["type"]) == (status, kind)


@pytest.mark.real
def test_too_many_subjects(http: httpx.Client) -> None:
    """More than 10,000 subjects in one call are refused."""
    subject = {"tenant": "t", "generation": 1, "partition": 0}

    assert http.post("/v1/validate", json={"subjects": [subject] * 10_001}).status_code == 400
    assert http.post("/v1/validate", json={"subjects": [subject] * 10_000}).json()["answers"] == []


@pytest.mark.real
def test_answers_as_documented(http: httpx.Client, unique: str) -> None:
    """The field names of answers: `from` and `until`, absent where there is no such offset."""
    first = http.post("/v1/attach", json={"node": "n", "tenant": unique}).json()
    http.post("/v1/attach", json={"node": "n", "tenants": [unique, f"{unique}-2"]})
    subjects = [{"tenant": unique, "generation": g, "partition": 1} for g in (1, 2, 3)]
    validation = http.post("/v1/validate", json={"subjects": subjects}).json()

    assert (first["tenant"], first["generation"]) == (unique, 1)
    assert [set(answer) - {"tenant", "generation", "partition"} for answer in validation["answers"]] == [
        {"newest", "from", "until"},
        {"newest", "from"},
        {"newest"},
    ]
    assert [answer["newest"] for answer in validation["answers"]] == [False, True, False]


@pytest.mark.real
def test_published_re_attach_and_validate(http: httpx.Client, unique: str) -> None:
    """The published engine's field names: numbers for nodes, unknown ids left out."""
    node = abs(hash(unique)) % 10**9
    http.post("/v1/attach", json={"node": str(node), "tenant": unique})
    body = {"node_id": node, "register": {"listen_pg_addr": "x"}, "empty_local_disk": False}

    reply = http.post("/upcall/v1/re-attach", json=body).json()
    assert [(t["id"], t["gen"], t["mode"]) for t in reply["tenants"]] == [(unique, 2, "AttachedSingle")]
    asked = [{"id": unique, "gen": 1}, {"id": "nobody", "gen": 1}, {"id": unique, "gen": 2}]
    reply = http.post("/upcall/v1/validate", json={"tenants": asked}).json()
    assert reply == {"tenants": [{"id": unique, "valid": False}, {"id": unique, "valid": True}]}


@pytest.mark.real
@pytest.mark.parametrize("node", [4_000_000_000, 2**64 - 1, "nobody"])
def test_published_re_attach_of_an_unknown_node(http: httpx.Client, node: int | str) -> None:
    """A node that holds nothing gets an empty list, whatever else it sends."""
    body = {"node_id": node, "register": None, "empty_local_disk": True, "later": {"field": 1}}

    reply = http.post("/upcall/v1/re-attach", json=body)

    assert (reply.status_code, reply.json()) == (200, {"tenants": []})


@pytest.mark.real
def test_published_re_attach_names_every_field(http: httpx.Client, unique: str) -> None:
    """Each tenant comes with its id, generation, mode and stripe size."""
    http.post("/v1/attach", json={"node": f"n-{unique}", "tenant": unique})

    reply = http.post("/upcall/v1/re-attach", json={"node_id": f"n-{unique}"}).json()

    tenant = {"id": unique, "gen": 2, "mode": "AttachedSingle", "stripe_size": 32768}
    assert reply == {"tenants": [tenant]}


@pytest.mark.real
def test_published_calls_about_tenants_of_the_first_form(http: httpx.Client, unique: str) -> None:
    """They have no place for a node generation: nothing of such a tenant is valid or handed out."""
    node = f"n-{unique}"
    registered = http.post("/v1/register-node", json={"node": node}).json()
    attach = {"node": node, "tenant": unique, "node_generation": registered["node_generation"]}
    http.post("/v1/attach", json=attach)
    asked = {"tenants": [{"id": unique, "gen": 1}]}

    for _ in "12":
        reply = http.post("/upcall/v1/validate", json=asked).json()
        assert reply == {"tenants": [{"id": unique, "valid": False}]}
        refusal = http.post("/upcall/v1/re-attach", json={"node_id": node})
        assert (refusal.status_code, refusal.json()["type"]) == (409, "other-form")
        http.post("/v1/register-node", json={"node": node})
    assert http.get(f"/v1/tenants/{unique}").json()["generation"] == 1


@pytest.mark.real
def test_health_metrics_and_openapi(http: httpx.Client, issuer: IssuerClient, unique: str) -> None:
    """Health, readiness, metrics and the API's description are served."""
    issuer.attach("n", unique)

    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json()["log_offset"] >= 1
    assert "sexton_issuer_numbers_issued_total" in http.get("/metrics").text
    document = http.get("/openapi.json").json()
    assert {"/v1/attach", "/v1/validate", "/upcall/v1/validate"} <= set(document["paths"])
    references = {
        part.split('"')[0] for part in http.get("/openapi.json").text.split("#/components/schemas/")[1:]
    }
    assert references <= set(document["components"]["schemas"])


def test_an_issuer_that_is_away() -> None:
    """A client that reaches nobody says so in time, with a hint."""
    with (
        IssuerClient("http://127.0.0.1:1", timeout_s=0.3) as issuer,
        pytest.raises(IssuerUnavailable) as away,
    ):
        issuer.attach("n", "t")

    assert "sexton issuer serve" in str(away.value.hint)
    assert not issuer.ready()
    issuer.close()
