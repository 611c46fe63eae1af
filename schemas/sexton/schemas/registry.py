"""The schema registry, through its own client; only imported where one is configured."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from typing import Any

from sexton.schemas.codec import Codec, Schema
from sexton.schemas.errors import EnvironmentFault, InvalidSettings, ToolMissing, UndecodableRecord
from sexton.schemas.settings import Settings

__all__ = ["Registry", "open_codec"]

_NOT_FOUND, _CONFLICT = 404, 409
_LOGIN = (401, 403)
_REDIRECTS = range(300, 400)
# By a code of its own a registry says what it has not (subject, version, schema); 404 alone is anybody's.
_ABSENT_CODES = range(40401, 40500)
# What a registry answers to those who may only read it; and its code where nobody may register now.
_MAY_NOT_REGISTER = (401, 403, 404, 405, 501)
_READ_ONLY = 42205
_TIMEOUT_S = 10.0
_LARGEST_ID = 2**32 - 1  # four bytes of a record
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
_NO_REGISTRY = (
    "is it a registry with Confluent's interface, and SEXTON_SCHEMA_REGISTRY_URL right, with its path?"
    " Apicurio's is /apis/ccompat/v7"
)
_REDIRECTED = "put the address that it redirects to, https:// perhaps, into SEXTON_SCHEMA_REGISTRY_URL"
_INCOMPATIBLE = (
    "is the schema under the subject Sexton's? its compatibility has to be BACKWARD, or NONE: each version of"
    " Sexton's schemas reads those before it"
)
_IDS = "have it number schemas in 32 bits, as Confluent's interface does"


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
            self._client: Any = schema_registry.SchemaRegistryClient({**_properties(extra or {}), "url": url})
        except (ValueError, TypeError, OSError) as error:
            named = f"{_SETTING}, {_BUNDLE} or SSL_CERT_FILE" if isinstance(error, OSError) else _SETTING
            raise InvalidSettings(
                f"{named}: the schema registry client refuses it: {error}",
                hint="docs/settings.md shows the properties about the login",
            ) from error
        weakref.finalize(self, self._client.__exit__, None, None, None)  # its connections

    def schema(self, schema_id: int) -> str | None:
        """Return the text of a schema, None if there is no such id; raises EnvironmentFault when away.

        Away is also what answers 404 and is no registry, a proxy in its place say: its records are not bad.
        """
        refuses = "the schema registry does not answer"
        try:
            text = self._client.get_schema(schema_id).schema_str
        except self._library.error.SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND and (error.error_code in _ABSENT_CODES or self._is_one()):
                return None
            raise self._fault(refuses, error) from error
        except Exception as error:
            # The client lets its transport's own errors through; the registry is away, the record is not bad.
            raise self._fault(refuses, error) from error
        if not isinstance(text, str):
            self._client.clear_caches()  # it keeps what is none, too
            raise EnvironmentFault(f"{refuses}: no schema in what it answers", hint=_NO_REGISTRY)
        return text

    def register(self, subject: str, text: str) -> int:
        """Return the id of a schema under a subject, where it is registered unless it is there.

        On a registry that does not let this be done it is looked up. Raises EnvironmentFault when the
        registry is away, refuses the schema, or has it not and does not let it be registered.
        """
        schema = self._library.Schema(text, schema_type="AVRO")
        try:
            return _fitting(self._client.register_schema(subject, schema))
        except self._library.error.SchemaRegistryError as error:
            if error.http_status_code in _MAY_NOT_REGISTER or error.error_code == _READ_ONLY:
                return self._look_up(subject, schema, error)
            raise self._fault(f"the schema registry refuses {subject}", error) from error
        except EnvironmentFault:
            raise
        except Exception as error:
            raise self._fault(f"the schema registry refuses {subject}", error) from error

    def _look_up(self, subject: str, schema: Any, refused: Any) -> int:
        """Return the id of a schema that somebody else has registered; `refused` is why we may not."""
        try:
            found = self._found(subject, schema)
        except self._library.error.SchemaRegistryError as error:
            what = f"the schema registry {self._url} neither registers nor shows {subject}"
            raise self._fault(what, error) from error
        except EnvironmentFault:
            raise
        except Exception as error:
            raise self._fault(f"the schema registry refuses {subject}", error) from error
        if found is not None:
            return found
        raise EnvironmentFault(
            f"the schema registry {self._url} has not this version of {subject},"
            f" and may not be written: {refused}",
            hint="have the schema (sexton/schemas/avro) registered under the subject by somebody who may,"
            " or let this user register it",
        ) from refused

    def _found(self, subject: str, schema: Any) -> int | None:
        """Return the id of a schema under its subject, None if it is not there.

        By its text, and else by its fingerprint: some registries know only the very text that was registered,
        and whoever did it may have set it out anew.
        """
        try:
            return _fitting(self._client.lookup_schema(subject, schema).schema_id)
        except self._library.error.SchemaRegistryError as error:
            if error.http_status_code != _NOT_FOUND:
                raise
        try:
            versions = self._client.get_versions(subject)
        except self._library.error.SchemaRegistryError as error:
            if error.http_status_code != _NOT_FOUND:
                raise
            return None
        ours = Schema.parse(schema.schema_str).header
        for number in reversed(versions):
            version = self._client.get_version(subject, number)
            if _header(version.schema.schema_str) == ours:
                return _fitting(version.schema_id)
        return None

    def _is_one(self) -> bool:
        """Return whether what answers is a registry: it lists subjects."""
        try:
            return isinstance(self._client.get_subjects(), list)
        except Exception:  # noqa: BLE001 - whatever it is, it is none that answers
            return False

    def _fault(self, what: str, error: Exception) -> EnvironmentFault:
        if not isinstance(error, self._library.error.SchemaRegistryError):
            unread = isinstance(error, ValueError | TypeError | AttributeError | KeyError)
            return EnvironmentFault(f"{what}: {error}", hint=_NO_REGISTRY if unread else None)
        status = error.http_status_code
        hint = _LOG_IN if status in _LOGIN else _INCOMPATIBLE if status == _CONFLICT else None
        hint = _REDIRECTED if status in _REDIRECTS else _NO_REGISTRY if status == _NOT_FOUND else hint
        return EnvironmentFault(f"{what}: {error}", hint=hint)


def _fitting(schema_id: Any) -> int:
    """Return an id that has its place in a record; raises EnvironmentFault for another one."""
    number = int(schema_id)
    if not 0 <= number <= _LARGEST_ID:
        raise EnvironmentFault(f"the schema registry's id is too large for a record: {number}", hint=_IDS)
    return number


def _header(text: Any) -> bytes | None:
    try:
        return Schema.parse(text).header
    except UndecodableRecord:
        return None  # of another kind: JSON or Protobuf


def _properties(extra: Mapping[str, str]) -> dict[str, Any]:
    """Return the client's properties, with numbers as numbers."""
    properties: dict[str, Any] = dict(extra)
    properties |= {name: int(extra[name]) for name in _WHOLE if name in extra}
    # Without one the client waits for ever for an answer that does not end.
    properties["timeout"] = float(extra.get("timeout", _TIMEOUT_S))
    if bundle := os.environ.get(_BUNDLE):
        properties.setdefault("ssl.ca.location", bundle)  # the client itself knows SSL_CERT_FILE alone
    if "bearer.auth.token" in properties:
        properties.setdefault("bearer.auth.credentials.source", "STATIC_TOKEN")
        properties.setdefault("bearer.auth.logical.cluster", "")  # registries of others have none
    return properties
