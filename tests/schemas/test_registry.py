"""The registry's own client against a registry."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.schemas.samples import INTENT
from tests.support.certificates import authority, server_context
from tests.support.registry import SchemaRegistry
from tests.support.versions import (
    body,
    canonical,
    confluent,
    newer,
    with_field,
    with_identifier,
    with_time_of_day,
    without_logical_types,
)

from sexton.schemas import events
from sexton.schemas.codec import SCHEMAS, Codec, schema_of
from sexton.schemas.errors import EnvironmentFault, InvalidSettings, UndecodableRecord
from sexton.schemas.registry import Registry, open_codec
from sexton.schemas.settings import explain, load


def test_a_record_is_framed_with_the_registrys_id() -> None:
    """With a registry configured the record carries the id under which its schema was registered, once."""
    with SchemaRegistry() as registry:
        codec = open_codec(load({"SEXTON_SCHEMA_REGISTRY_URL": registry.url}))
        first, second = codec.encode(INTENT, "sexton.intents"), codec.encode(INTENT, "sexton.intents")

        assert first == second
        assert first[:5] == b"\0\0\0\0\1"
        assert codec.decode(first, events.DeletionIntent) == INTENT
        assert registry.requests.count("POST /subjects/sexton.intents-value/versions?normalize=False") == 1


def test_f_3_a_newer_version_is_found_in_the_registry() -> None:
    """F-3: version 2, registered by its writer, is read by a version 1 reader."""
    text = newer(with_field)
    with SchemaRegistry() as registry:
        schema_id = registry.add("sexton.intents-value", text)
        codec = Codec(Registry(registry.url))

        assert codec.decode(confluent(schema_id, body(text, INTENT)), events.DeletionIntent) == INTENT


@pytest.mark.parametrize(
    "version", range(len(SCHEMAS)), ids=lambda n: f"{SCHEMAS[n].name}.v{SCHEMAS[n].version}"
)
def test_p_1_a_schema_of_ours_is_read_as_ours_in_canonical_form(version: int) -> None:
    """P-1: what a registry leaves out of a schema of ours is in none of its bytes."""
    schema = SCHEMAS[version]
    with SchemaRegistry() as registry:
        schema_id = registry.add("any-value", canonical(schema.text))
        codec = Codec(Registry(registry.url))

        assert codec._by_registry(schema_id) is schema


def test_p_1_an_instant_is_an_instant_whatever_the_registry_keeps_of_it() -> None:
    """P-1: the intent that a canonical copy of its schema frames is the one that was written."""
    text = schema_of(events.DeletionIntent).text
    given = replace(INTENT, guards=[events.NotBeforeGuard(INTENT.emitted_at)])
    with SchemaRegistry() as registry:
        schema_id = registry.add("any-value", canonical(text))

        found = Codec(Registry(registry.url)).decode(
            confluent(schema_id, body(text, given)), events.DeletionIntent
        )

    assert found == given


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (without_logical_types, "expected datetime, not int"),
        (with_identifier, "expected str, not UUID"),
        (with_time_of_day, "expected int, not time"),
    ],
    ids=["no logical types", "an identifier", "a time of day"],
)
def test_p_1_what_is_not_of_our_types_is_malformed(change: Any, why: str) -> None:
    """P-1: of a newer writer whose schema reads a field as something else, no stage gets to see it."""
    given = replace(INTENT, intent_id="6f1c1a52-3b9e-4d53-9f53-0b7f3ce5b8a1")
    data = confluent(1, body(newer(with_field), given, priority=7))
    with SchemaRegistry() as registry:
        registry.add("newer-value", newer(with_field, change))

        with pytest.raises(UndecodableRecord, match=why) as refused:
            Codec(Registry(registry.url)).decode(data, events.DeletionIntent)

    assert refused.value.reason == "malformed"


def test_a_registry_that_refuses_to_answer_holds_the_job() -> None:
    """Only its outcome that there is no such schema makes a dead letter: a refusal says nothing of it."""
    with SchemaRegistry() as registry:
        client = Registry(registry.url)
        registry.refuses = 403

        with pytest.raises(EnvironmentFault, match="does not answer"):
            client.schema(1)


def test_an_absent_schema_is_none_and_an_absent_registry_a_fault() -> None:
    """A registry that is away holds the job; an id that it does not have does not."""
    with SchemaRegistry() as registry:
        client = Registry(registry.url)

        assert client.register("s", SCHEMAS[0].text) == 1
        assert client.schema(1) == SCHEMAS[0].text
        assert client.schema(99) is None
        url = registry.url
    with pytest.raises(EnvironmentFault):
        Registry(url).register("s", SCHEMAS[0].text)


VARIABLES = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")
READ_ONLY = [(401, 40101), (403, 40301), (403, None), (404, 404), (405, None), (422, 42205), (405, 40501)]


@pytest.mark.parametrize("answer", READ_ONLY, ids=str)
def test_p_7_a_registry_that_may_only_be_read_is_asked(answer: tuple[int, int | None]) -> None:
    """P-7: what somebody else has registered is found under its subject, whatever the registry says."""
    with SchemaRegistry() as registry:
        schema_id = registry.add("sexton.intents-value", schema_of(events.DeletionIntent).text)
        registry.registering = answer
        codec = open_codec(load({"SEXTON_SCHEMA_REGISTRY_URL": registry.url}))

        first, second = codec.encode(INTENT, "sexton.intents"), codec.encode(INTENT, "sexton.intents")

        assert first == second
        assert first[:5] == b"\0" + schema_id.to_bytes(4, "big")
        assert codec.decode(first, events.DeletionIntent) == INTENT
        assert sum(request.startswith("POST") for request in registry.requests) == 2


@pytest.mark.parametrize("answer", READ_ONLY, ids=str)
@pytest.mark.parametrize("others", [True, False], ids=["another version", "no subject"])
def test_p_7_a_schema_that_is_not_there_is_told(answer: tuple[int, int | None], others: bool) -> None:
    """P-7: with the subject, the URL without its password, and what to do."""
    with SchemaRegistry() as registry:
        if others:
            registry.add("s", schema_of(events.Outcome).text)
        registry.registering = answer
        url = registry.url.replace("://", "://me:hunter2@")

        with pytest.raises(
            EnvironmentFault, match="has not this version of s, and may not be written"
        ) as told:
            Registry(url).register("s", schema_of(events.DeletionIntent).text)

    assert registry.url.partition("://")[2] in str(told.value)
    assert "hunter2" not in str(told.value)
    assert "let this user register it" in (told.value.hint or "")


@pytest.mark.parametrize("answer", [(409, 409), (422, 42201), (500, 50001)], ids=str)
def test_p_7_a_schema_that_is_refused_is_not_looked_up(answer: tuple[int, int | None]) -> None:
    """P-7: one that is incompatible, or a registry in trouble, is no registry that may only be read."""
    with SchemaRegistry() as registry:
        registry.add("s", SCHEMAS[0].text)
        registry.registering = answer

        with pytest.raises(EnvironmentFault, match="refuses s"):
            Registry(registry.url, {"max.retries": "0"}).register("s", SCHEMAS[0].text)
        assert not any(request.startswith("POST /subjects/s?") for request in registry.requests)


def test_p_7_a_registry_that_knows_nobody_says_how_to_log_in() -> None:
    """P-7: what may not be asked has not been found absent."""
    with SchemaRegistry() as registry:
        registry.login = "Basic somebody"

        with pytest.raises(EnvironmentFault, match="neither registers nor shows s") as told:
            Registry(registry.url).register("s", SCHEMAS[0].text)

    assert "basic.auth.user.info" in (told.value.hint or "")


def basic(user: str) -> str:
    """The header of a login by password."""
    return "Basic " + base64.b64encode(user.encode()).decode()


@pytest.mark.parametrize(
    ("login", "user", "extra"),
    [
        (basic("me:p/w"), "me:p%2Fw@", {}),
        (basic("me:p/w"), "", {"basic.auth.user.info": "me:p/w"}),
        ("Bearer t0ken", "", {"bearer.auth.token": "t0ken"}),
        ("Bearer t0ken", "", {"bearer.auth.token": "t0ken", "bearer.auth.logical.cluster": "lsrc-1"}),
    ],
    ids=["in the URL", "by password", "by token", "by token of a cluster"],
)
@pytest.mark.parametrize("way", ["ssl.ca.location", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_p_7_a_registry_with_a_login_behind_a_private_authority(
    monkeypatch: pytest.MonkeyPatch, login: str, user: str, extra: dict[str, str], way: str
) -> None:
    """P-7: user and password, or a token; the authority in a property or the usual variables."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    given = dict(extra)
    if way.startswith("ssl."):
        given[way] = str(authority().bundle)
    else:
        monkeypatch.setenv(way, str(authority().bundle))
    with SchemaRegistry(server_context()) as registry:
        registry.login = login
        environment = {
            "SEXTON_SCHEMA_REGISTRY_URL": registry.url.replace("://", f"://{user}"),
            "SEXTON_SCHEMA_REGISTRY_EXTRA": json.dumps(given),
        }
        codec = open_codec(load(environment))

        assert codec.decode(codec.encode(INTENT, "sexton.intents"), events.DeletionIntent) == INTENT
    shown = json.dumps([row.value for row in explain(environment)])
    assert "p/w" not in shown
    assert "p%2Fw" not in shown
    assert "t0ken" not in shown


def test_p_7_a_registry_of_an_unknown_authority_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-7: its certificate is verified."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with (
        SchemaRegistry(server_context()) as registry,
        pytest.raises(EnvironmentFault, match=r"(?i)certificate"),
    ):
        Registry(registry.url, {"max.retries": "0"}).register("s", SCHEMAS[0].text)


@pytest.mark.parametrize(
    ("extra", "word"),
    [
        ({"no.such.property": "1"}, "no.such.property"),
        ({"max.retries": "many"}, "many"),
        ({"ssl.ca.location": "{tmp}/missing"}, "No such file"),
        ({"ssl.key.location": "{tmp}/key"}, "ssl.certificate.location"),
        ({"basic.auth.user.info": "me"}, "basic.auth.user.info"),
        ({"bearer.auth.credentials.source": "NOBODY"}, "bearer.auth.credentials.source"),
    ],
    ids=str,
)
def test_p_7_a_property_that_the_client_refuses_names_the_setting(
    tmp_path: Path, extra: dict[str, str], word: str
) -> None:
    """P-7: as a misuse, with the client's own word."""
    given = {name: value.replace("{tmp}", str(tmp_path)) for name, value in extra.items()}

    with pytest.raises(InvalidSettings, match="SEXTON_SCHEMA_REGISTRY_EXTRA") as refused:
        Registry("http://127.0.0.1:1", given)

    assert word in str(refused.value)
