"""The schema registry, through its own client; only imported where one is configured."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from typing import Any

from sexton.schemas.codec import Codec
from sexton.schemas.errors import EnvironmentFault, InvalidSettings, ToolMissing
from sexton.schemas.settings import Settings

__all__ = ["Registry", "open_codec"]

_NOT_FOUND = 404
_LOGIN = (401, 403)
# What a registry answers to those who may only read it; and its code where nobody may register now.
_MAY_NOT_REGISTER = (401, 403, 404, 405, 501)
_READ_ONLY = 42205
_SETTING = "SEXTON_SCHEMA_REGISTRY_EXTRA"
_BUNDLE = "REQUESTS_CA_BUNDLE"
_WHOLE = (
    "cache.capacity",
    "cache.latest.ttl.sec",
    "max.retries",
    "retries.wait.ms",
    "retries.max.wait.ms",
)
_LOG_IN = (
    "credentials stand in SEXTON_SCHEMA_REGISTRY_URL (https://user:password@host),"
    f" or {_SETTING} has basic.auth.user.info or bearer.auth.token"
)


def open_codec(settings: Settings) -> Codec:
    """Return the codec for these settings: with the registry's framing when one is configured.

    Raises InvalidSettings for properties that the registry's client does not take.
    """
    url = settings.schema_registry_url
    return Codec(Registry(url, settings.schema_registry_extra) if url else None)


class Registry:
    """A Confluent-compatible registry at a URL; `extra` are properties of its own client."""

    def __init__(self, url: str, extra: Mapping[str, str] | None = None) -> None:
        try:
            from confluent_kafka import schema_registry
        except ImportError as error:
            raise ToolMissing(
                "the schema registry client is not installed", hint='pip install "sexton[registry]"'
            ) from error
        self._library: Any = schema_registry
        self._url = url
        try:
            self._client = schema_registry.SchemaRegistryClient({**_properties(extra or {}), "url": url})
        except (ValueError, TypeError, OSError) as error:
            named = f"{_SETTING}, {_BUNDLE} or SSL_CERT_FILE" if isinstance(error, OSError) else _SETTING
            raise InvalidSettings(
                f"{named}: the schema registry client refuses it: {error}",
                hint="docs/settings.md shows the properties about the login",
            ) from error
        weakref.finalize(self, self._client.__exit__, None, None, None)  # its connections

    def schema(self, schema_id: int) -> str | None:
        """Return the text of a schema, None if there is no such id; raises EnvironmentFault when away."""
        try:
            return self._client.get_schema(schema_id).schema_str
        except self._library.error.SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND:
                return None
            raise EnvironmentFault(
                f"the schema registry does not answer: {error}", hint=_login_hint(error.http_status_code)
            ) from error
        except Exception as error:
            # The client lets its transport's own errors through; the registry is away, the record is not bad.
            raise EnvironmentFault(f"the schema registry does not answer: {error}") from error

    def register(self, subject: str, text: str) -> int:
        """Return the id of a schema under a subject, where it is registered unless it is there.

        On a registry that does not let this be done it is looked up. Raises EnvironmentFault when the
        registry is away, refuses the schema, or has it not and does not let it be registered.
        """
        schema = self._library.Schema(text, schema_type="AVRO")
        try:
            return int(self._client.register_schema(subject, schema))
        except self._library.error.SchemaRegistryError as error:
            if error.http_status_code in _MAY_NOT_REGISTER or error.error_code == _READ_ONLY:
                return self._look_up(subject, schema, error)
            raise EnvironmentFault(f"the schema registry refuses {subject}: {error}") from error
        except Exception as error:
            raise EnvironmentFault(f"the schema registry refuses {subject}: {error}") from error

    def _look_up(self, subject: str, schema: Any, refused: Any) -> int:
        """Return the id of a schema that somebody else has registered; `refused` is why we may not."""
        try:
            found: Any = self._client.lookup_schema(subject, schema)
            return int(found.schema_id)
        except self._library.error.SchemaRegistryError as error:
            status = error.http_status_code
            if status != _NOT_FOUND:
                raise EnvironmentFault(
                    f"the schema registry {self._url} neither registers nor shows {subject}: {error}",
                    hint=_login_hint(status),
                ) from error
        except Exception as error:
            raise EnvironmentFault(f"the schema registry refuses {subject}: {error}") from error
        raise EnvironmentFault(
            f"the schema registry {self._url} has not this version of {subject},"
            f" and may not be written: {refused}",
            hint="have the schema (sexton/schemas/avro) registered under the subject by somebody who may,"
            " or let this user register it",
        ) from refused


def _properties(extra: Mapping[str, str]) -> dict[str, Any]:
    """Return the client's properties, with numbers as numbers."""
    properties: dict[str, Any] = dict(extra)
    properties |= {name: int(extra[name]) for name in _WHOLE if name in extra}
    properties |= {name: float(extra[name]) for name in ("timeout",) if name in extra}
    if bundle := os.environ.get(_BUNDLE):
        properties.setdefault("ssl.ca.location", bundle)  # the client itself knows SSL_CERT_FILE alone
    if "bearer.auth.token" in properties:
        properties.setdefault("bearer.auth.credentials.source", "STATIC_TOKEN")
        properties.setdefault("bearer.auth.logical.cluster", "")  # registries of others have none
    return properties


def _login_hint(status: int) -> str | None:
    return _LOG_IN if status in _LOGIN else None
