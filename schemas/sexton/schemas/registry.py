"""The schema registry, through its own client; only imported where one is configured."""

from __future__ import annotations

import weakref
from typing import Any

from sexton.schemas.codec import Codec
from sexton.schemas.errors import EnvironmentFault, ToolMissing
from sexton.schemas.settings import Settings

__all__ = ["Registry", "open_codec"]

_NOT_FOUND = 404


def open_codec(settings: Settings) -> Codec:
    """Return the codec for these settings: with the registry's framing when one is configured."""
    return Codec(Registry(settings.schema_registry_url) if settings.schema_registry_url else None)


class Registry:
    """A Confluent-compatible registry at a URL."""

    def __init__(self, url: str) -> None:
        try:
            from confluent_kafka import schema_registry
        except ImportError as error:
            raise ToolMissing(
                "the schema registry client is not installed", hint='pip install "sexton[registry]"'
            ) from error
        self._library: Any = schema_registry
        self._client = schema_registry.SchemaRegistryClient({"url": url})
        weakref.finalize(self, self._client.__exit__, None, None, None)  # its connections

    def schema(self, schema_id: int) -> str | None:
        """Return the text of a schema, None if there is no such id; raises EnvironmentFault when away."""
        try:
            return self._client.get_schema(schema_id).schema_str
        except self._library.error.SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND:
                return None
            raise EnvironmentFault(f"the schema registry does not answer: {error}") from error
        except Exception as error:
            # The client lets its transport's own errors through; the registry is away, the record is not bad.
            raise EnvironmentFault(f"the schema registry does not answer: {error}") from error

    def register(self, subject: str, text: str) -> int:
        """Register a schema under a subject and return its id; raises EnvironmentFault when away."""
        schema = self._library.Schema(text, schema_type="AVRO")
        try:
            return int(self._client.register_schema(subject, schema))
        except Exception as error:
            raise EnvironmentFault(f"the schema registry refuses {subject}: {error}") from error
