"""The registry's own client against a registry."""

from __future__ import annotations

import pytest
from tests.schemas.samples import INTENT
from tests.support.registry import SchemaRegistry
from tests.support.versions import body, confluent, newer, with_field

from sexton.schemas import events
from sexton.schemas.codec import SCHEMAS, Codec
from sexton.schemas.errors import EnvironmentFault
from sexton.schemas.registry import Registry, open_codec
from sexton.schemas.settings import load


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
