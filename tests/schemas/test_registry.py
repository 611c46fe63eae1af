"""The registry's own client against a registry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.schemas.samples import INTENT
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
from sexton.schemas.errors import EnvironmentFault, UndecodableRecord
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
