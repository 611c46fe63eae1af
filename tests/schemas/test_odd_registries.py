"""P-7: registries that are not Confluent's own, and what answers in the place of one.

The dialects are protocol stand-ins: how Apicurio, Karapace and Redpanda word what they have not, as users of
theirs have reported it.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.schemas.samples import INTENT
from tests.support.raw_server import raw_server
from tests.support.registry import SchemaRegistry
from tests.support.versions import canonical, confluent

from sexton.schemas import codec as codec_module
from sexton.schemas import events
from sexton.schemas.codec import SCHEMAS, Codec, schema_of
from sexton.schemas.errors import EnvironmentFault, InvalidSettings, UndecodableRecord
from sexton.schemas.registry import Registry, _properties, open_codec
from sexton.schemas.settings import load

ONCE = {"max.retries": "0"}
TEXT = schema_of(events.DeletionIntent).text
JSON, HTML = {"Content-Type": "application/vnd.schemaregistry.v1+json"}, {"Content-Type": "text/html"}


def said(status: int, body: object, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """An answer: a text is a page."""
    if isinstance(body, str):
        return status, {**HTML, **headers}, body.encode()
    return status, {**JSON, **headers}, json.dumps(body).encode()


# What answers in a registry's place, and what the hint has to name.
NO_REGISTRY = {
    "a login page": (said(200, "<html>please log in"), "Confluent's interface"),
    "another API": (said(200, {}), "Confluent's interface"),
    "a list": (said(200, []), "Confluent's interface"),
    "nothing": (said(200, None), "Confluent's interface"),
    "no content": ((204, {}, b""), "Confluent's interface"),
    "a number for a schema": (said(200, {"schema": 7, "id": None}), "Confluent's interface"),
    "an ingress": (said(404, "default backend - 404"), "Confluent's interface"),
    "a path that is not one": (said(404, {"error_code": 404, "message": "HTTP 404 Not Found"}), "its path"),
    "moved": (said(301, "", Location="https://registry/"), "https://"),
    "a redirect of the method, too": (said(308, "<html>", Location="https://registry/"), "https://"),
    "a single sign-on": (said(302, "", Location="https://sso/login"), "redirects to"),
    "a proxy's page": (said(401, "<html>Unauthorized"), "basic.auth.user.info"),
    "a gateway": (said(502, "<html>Bad Gateway"), None),
    "too many requests": (said(429, {"error_code": 42901, "message": "slow down"}), None),
    "no leader": (said(500, {"error_code": 50004, "message": "no master"}), None),
    "a timeout": (said(504, ""), None),
}


@pytest.mark.parametrize("what", NO_REGISTRY)
def test_p_7_what_is_no_registrys_answer_says_nothing_of_a_record(what: str) -> None:
    """P-7: the job is held, and no intent a dead letter, while something else stands at the address."""
    answer, hint = NO_REGISTRY[what]
    with SchemaRegistry() as registry:
        schema_id = registry.add("s", TEXT)
        registry.instead = lambda *_: answer
        codec = Codec(Registry(registry.url, ONCE))

        with pytest.raises(EnvironmentFault, match="does not answer") as held:
            codec.decode(confluent(schema_id, b"x"), events.DeletionIntent)
        with pytest.raises(EnvironmentFault) as refused:
            codec.encode(INTENT, "sexton.intents")

        assert hint is None or hint in (held.value.hint or "")
        assert hint is None or refused.value.hint
        registry.instead = lambda *_: None
        assert codec.decode(codec.encode(INTENT, "s"), events.DeletionIntent) == INTENT  # nothing was kept


def apicurio(status: int, code: int | None, message: str) -> Any:
    """Older ones had the HTTP status for a code."""
    return {"message": message, "error_code": status if status == 404 else code}


def karapace(status: int, code: int | None, message: str) -> Any:
    """Its codes are Confluent's."""
    return {"error_code": code, "message": message}


def redpanda(status: int, code: int | None, message: str) -> Any:
    """Its codes are Confluent's but for rights."""
    return {"error_code": 40301 if status == 403 else code, "message": message}


DIALECTS = {
    "Confluent's": ("", karapace, False),
    "Confluent's in a context": ("/contexts/.staging", karapace, False),
    "Apicurio's": ("/apis/ccompat/v7", karapace, True),
    "Apicurio's of old": ("/apis/ccompat/v6", apicurio, True),
    "Karapace's": ("", karapace, True),
    "Redpanda's": ("", redpanda, False),
}


@pytest.fixture(params=DIALECTS)
def registry(request: pytest.FixtureRequest) -> Any:
    """A registry of each kind."""
    with SchemaRegistry() as made:
        made.path, made.worded, made.by_text = DIALECTS[request.param]
        yield made


@pytest.mark.parametrize("slash", ["", "/"])
def test_p_7_each_dialect_registers_and_reads(registry: SchemaRegistry, slash: str) -> None:
    """P-7: under its own path, with a slash at the end or without, with user and password in the URL."""
    url = registry.url.replace("://", "://me:p@") + slash
    codec = open_codec(load({"SEXTON_SCHEMA_REGISTRY_URL": url}))

    assert codec.decode(codec.encode(INTENT, "sexton.intents"), events.DeletionIntent) == INTENT


def test_p_7_an_id_that_no_dialect_has_is_a_dead_letter(registry: SchemaRegistry) -> None:
    """P-7: in its own words, also where these are HTTP's alone: it lists subjects, so it is a registry."""
    registry.add("s", TEXT)
    with pytest.raises(UndecodableRecord) as dead:
        Codec(Registry(registry.url, ONCE)).decode(confluent(99, b"x"), events.DeletionIntent)
    assert dead.value.reason == "unknown-schema"


@pytest.mark.parametrize("answer", [(403, 40301), (401, 40101), (422, 42205)], ids=str)
@pytest.mark.parametrize("kept", ["as it is", "indented", "in canonical form"])
def test_p_7_a_schema_that_was_registered_by_hand_is_found(
    registry: SchemaRegistry, answer: tuple[int, int], kept: str
) -> None:
    """P-7: set out anew, or without its documentation: where only the very text is found, by fingerprint."""
    forms: dict[str, Callable[[str], str]] = {
        "as it is": str,
        "indented": lambda text: json.dumps(json.loads(text), indent=7),
        "in canonical form": canonical,
    }
    registry.add("sexton.intents-value", '{"type": "string"}')
    schema_id = registry.add("sexton.intents-value", forms[kept](TEXT))
    registry.add("sexton.intents-value", schema_of(events.Outcome).text)
    registry.registering = answer
    codec = Codec(Registry(registry.url, ONCE))

    data = codec.encode(INTENT, "sexton.intents")
    assert data[:5] == b"\0" + schema_id.to_bytes(4, "big")
    assert codec.decode(data, events.DeletionIntent) == INTENT


def test_p_7_a_schema_under_another_subject_is_not_taken(registry: SchemaRegistry) -> None:
    """P-7: who may only read is told which subject has to have it, in every dialect."""
    registry.add("other-value", TEXT)
    registry.add("sexton.intents-value", schema_of(events.Outcome).text)
    registry.registering = (403, 40301)
    with pytest.raises(EnvironmentFault, match=r"has not this version of sexton\.intents-value"):
        Codec(Registry(registry.url, ONCE)).encode(INTENT, "sexton.intents")


def test_p_7_a_schema_that_is_incompatible_is_told_with_what_to_do(registry: SchemaRegistry) -> None:
    """P-7: a subject of somebody else's, or with a level that Sexton's versions do not keep."""
    registry.registering = (409, 409)
    with pytest.raises(EnvironmentFault, match=r"refuses sexton\.intents-value") as told:
        Codec(Registry(registry.url, ONCE)).encode(INTENT, "sexton.intents")
    assert "BACKWARD" in (told.value.hint or "")


@pytest.mark.parametrize("first", [2**32, 65034875748, 2**63])
def test_p_7_an_id_that_fits_no_record_is_told(first: int) -> None:
    """P-7: of a registry that numbers in 64 bits: a typed error, and no cut number."""
    with SchemaRegistry() as registry:
        registry.first_id = first
        with pytest.raises(EnvironmentFault, match=f"too large for a record: {first}"):
            Codec(Registry(registry.url, ONCE)).encode(INTENT, "s")
        registry.registering = (403, 40301)
        registry.add("t-value", TEXT)
        with pytest.raises(EnvironmentFault, match=f"too large for a record: {first}"):
            Codec(Registry(registry.url, ONCE)).encode(INTENT, "t")


def test_p_7_the_largest_id_is_taken() -> None:
    """P-7: four bytes without a sign."""
    with SchemaRegistry() as registry:
        registry.first_id = 2**32 - 1
        codec = Codec(Registry(registry.url, ONCE))
        assert codec.decode(codec.encode(INTENT, "s"), events.DeletionIntent) == INTENT


def test_p_7_several_registries_are_tried_in_turn() -> None:
    """P-7: one that is away is passed over."""
    with SchemaRegistry() as registry:
        codec = open_codec(load({"SEXTON_SCHEMA_REGISTRY_URL": f"http://127.0.0.1:1,{registry.url}"}))
        assert codec.decode(codec.encode(INTENT, "s"), events.DeletionIntent) == INTENT


@pytest.mark.parametrize("url", ["ftp://registry", "registry:8081", "http://me:p/w@registry", "http://"])
def test_p_7_an_address_that_leads_nowhere_is_refused_at_the_start(url: str) -> None:
    """P-7: and its password is not shown."""
    with pytest.raises(InvalidSettings) as refused:
        load({"SEXTON_SCHEMA_REGISTRY_URL": url})
    assert "p/w" not in str(refused.value)


def test_schemas_that_were_read_stay_within_a_fixed_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of a registry with many schemas keeps some of them; the others are asked for again."""
    monkeypatch.setattr(codec_module, "_SCHEMAS_KEPT", 3)
    with SchemaRegistry() as registry:
        ids = [registry.add(f"s{number}", schema.text) for number, schema in enumerate(SCHEMAS)]
        codec = Codec(Registry(registry.url))
        for _ in range(2):
            for schema_id in ids:
                codec._by_registry(schema_id)
                assert len(codec._by_id) <= 3


@pytest.mark.parametrize(
    "begun", [b"", b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n{"], ids=["none", "half"]
)
def test_p_7_an_answer_that_does_not_end_is_not_waited_for(begun: bytes) -> None:
    """P-7: a registry that takes the question and falls silent, at once or in the middle of its answer."""
    silent = threading.Event()

    def speak(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(begun)
        silent.wait(20)

    with raw_server(speak) as url:
        began = time.monotonic()
        with pytest.raises(EnvironmentFault):
            Registry(url, {**ONCE, "timeout": "0.5"}).schema(7)
        assert time.monotonic() - began < 10
        silent.set()
    assert _properties({})["timeout"] == 10.0
