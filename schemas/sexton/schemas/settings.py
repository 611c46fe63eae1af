"""Settings of every process: flag, then environment, then config file, then default.

Names are fixed (`SEXTON_...`); an unknown one is an error: a misspelt safety setting must not be ignored.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from sexton.schemas.errors import InvalidSettings
from sexton.schemas.masking import REDACTED, masked, masked_properties
from sexton.schemas.settings_checks import (
    check_allowed,
    check_kafka,
    check_reports,
    check_spark_master,
    check_tenant_prefix,
    check_url,
    in_words,
)

__all__ = ["PREFIX", "SettingRow", "Settings", "explain", "load"]

PREFIX = "SEXTON_"
_FILE_VARIABLE = "SEXTON_CONFIG"
_LISTED = "docs/settings.md lists every setting"
_URLS = ("issuer_url", "s3_endpoint_url", "schema_registry_url", "redis_url")
_SECRET = (
    "issuer_token",
    "issuer_tokens",
    "kafka_extra",
    "schema_registry_extra",
    *_URLS,
)  # values that no message may hold


class Settings(BaseSettings):
    """All settings; the field `x` is read from `SEXTON_X`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, case_sensitive=False)

    config: Path | None = Field(None, description="TOML file with the same names as the variables")
    kafka_bootstrap_servers: str = Field("127.0.0.1:9092", description="Kafka brokers, host:port,...")
    kafka_extra: Annotated[dict[str, str], NoDecode] = Field(
        {}, description="any librdkafka property, as a JSON object; the login is Spark's, too"
    )
    topic_prefix: str = Field("sexton.", description="put before every topic name")
    issuer_url: str = Field(
        "http://127.0.0.1:8350", description="base URL of the issuer, or several with commas between"
    )
    issuer_bind: str = Field("127.0.0.1:8350", description="host:port on which `issuer serve` listens")
    issuer_timeout_s: float = Field(10.0, gt=0, description="deadline of one call to the issuer, seconds")
    issuer_snapshot_events: int = Field(
        200_000, ge=0, description="events of the log after which the issuer takes a snapshot; 0 = never"
    )
    issuer_revocation_delay_s: float = Field(
        3600.0,
        ge=0,
        description="a node is decommissioned that long after its credentials were revoked, seconds",
    )
    issuer_token: SecretStr | None = Field(None, description="bearer token of this process for the issuer")
    issuer_tokens: SecretStr | None = Field(
        None,
        description='JSON {"token": {"role": "node|reaper|operator", "node": "..."}}, or a file with it',
    )
    issuer_ca: Path | None = Field(None, description="PEM file of the CA that clients trust for https")
    issuer_tls_cert: Path | None = Field(None, description="PEM certificate chain; `issuer serve` uses TLS")
    issuer_tls_key: Path | None = Field(None, description="PEM key of the certificate")
    redis_url: SecretStr = Field(
        SecretStr("redis://127.0.0.1:6379/0"),
        description="Redis or Valkey of the issuer and of the reaper's budgets",
    )
    s3_endpoint_url: str | None = Field(None, description="S3 endpoint; empty = AWS's own")
    s3_region: str = Field("us-east-1", description="region used to sign, until the store names another")
    s3_requester_pays: bool = Field(
        False, description="pay for requests to requester-pays buckets of other accounts"
    )
    s3_read_timeout_s: float = Field(
        30.0, gt=0, description="within how many seconds an answer of the store has to be whole"
    )
    schema_registry_url: str | None = Field(None, description="Confluent-compatible registry, optional")
    schema_registry_extra: Annotated[dict[str, str], NoDecode] = Field(
        {}, description="properties of the registry's client about TLS and the login, as a JSON object"
    )
    checkpoint: str | None = Field(None, description="the reaper's checkpoint: any path Spark can write")
    state_dir: Path = Field(Path(".sexton"), description="folder of the local stack")
    reports: str | None = Field(
        None,
        description="where collectors' reports lie, a folder or `s3://bucket/prefix`; empty = `reports` in"
        " `SEXTON_STATE_DIR`",
    )
    cache_dir: Path = Field(
        Path("~/.cache/sexton"), description="downloaded broker and connector jars, shared by all stacks"
    )
    allow: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="JSON list of bucket/prefix that the reaper may touch; empty = all"
    )
    metrics_port: int | None = Field(None, ge=0, le=65535, description="Prometheus port; empty = none")
    metrics_bind: str = Field("127.0.0.1", description="address on which the reaper's metrics are served")
    log_level: str = Field("INFO", description="DEBUG, INFO, WARNING or ERROR")
    reaper_intents_per_trigger: int = Field(
        20_000, gt=0, description="at most this many intents in one micro-batch"
    )
    reaper_trigger_s: float = Field(0.0, ge=0, description="least time between micro-batches, seconds")
    reaper_requests_in_flight: int = Field(8, gt=0, description="DeleteObjects requests in flight per task")
    reaper_grace_s: float = Field(
        30.0, gt=0, description="after SIGTERM: time the running micro-batch is given, seconds"
    )
    reaper_patience_s: float = Field(
        10.0, gt=0, description="a bucket that does nothing but fail for so many seconds is held"
    )
    reaper_slice_s: float = Field(
        60.0, gt=0, description="a slow bucket may hold up the others' receipts for so long, seconds"
    )
    reaper_defer_delays_s: Annotated[tuple[float, ...], NoDecode] = Field(
        (5.0, 30.0, 180.0, 900.0, 3600.0, 21600.0, 86400.0),
        description="JSON list: how long a deferred intent waits, longer with each attempt, seconds",
    )
    reaper_age_limit_s: float = Field(
        604_800.0, gt=0, description="what its bucket held for longer is dead-lettered, seconds"
    )
    reaper_allow_bypass: bool = Field(
        False, description="whether intents may ask to bypass governance retention"
    )
    reaper_prefix_depth: int = Field(
        1, ge=1, description="segments below the bucket that a prefix to be deleted needs at least"
    )
    reaper_prefix_slice: int = Field(
        10_000,
        gt=0,
        description="objects of one prefix that one micro-batch deletes; the rest continues later",
    )
    reaper_tenant_prefix: str | None = Field(
        None,
        description="prefix of a tenant's objects, with `{tenant}` as a whole segment, such as"
        " `tenants/{tenant}/`; empty = nothing that a rejected transaction wrote is deleted",
    )
    spark_master: str | None = Field(
        None,
        description="master of the Spark cluster on which `reaper run` has its tasks done, such as"
        " `spark://host:7077`; empty = in its own process",
    )
    spark_pack: Path | None = Field(
        None, description="folder made by `sexton deploy pack`: what tasks need on the cluster"
    )
    reaper_cores: str = Field(
        "*",
        description="cores of Spark local mode, `*` for all, and after a comma how often a task may fail"
        " before the reaper ends (`2,3`; once by default); ignored under a cluster master",
    )

    @field_validator("kafka_extra", "schema_registry_extra", "allow", "reaper_defer_delays_s", mode="before")
    @classmethod
    def _from_json(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value) if value.strip() else ()
        except json.JSONDecodeError as error:
            raise ValueError(f"not JSON, such as {_EXAMPLES[str(info.field_name)]}: {error}") from error

    @field_validator(*_URLS)
    @classmethod
    def _urls(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None:
            plain = value.get_secret_value() if isinstance(value, SecretStr) else value
            check_url(str(info.field_name), plain)
        return value

    @field_validator("kafka_extra")
    @classmethod
    def _kafka_properties(cls, value: dict[str, str]) -> dict[str, str]:
        check_kafka(value)
        return value

    @field_validator("topic_prefix")
    @classmethod
    def _prefix(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9._-]{0,200}", value):
            raise ValueError(f"Kafka's topics have letters, digits, `.`, `_` and `-` only: {value!r}")
        return value

    @field_validator("allow")
    @classmethod
    def _allow_entries(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            check_allowed(entry)
        return value

    @field_validator("reaper_defer_delays_s")
    @classmethod
    def _delays(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not value or any(delay <= 0 for delay in value):
            raise ValueError("a list of delays above 0 seconds is needed")
        return tuple(sorted(value))

    @field_validator("reaper_cores")
    @classmethod
    def _cores(cls, value: str) -> str:
        # The two forms of Spark's own local[N] and local[N,F].
        if not re.fullmatch(r"(\*|[1-9][0-9]*)(,[1-9][0-9]*)?", value):
            raise ValueError(f"not N or N,F (cores, failures of a task), with * for all cores: {value!r}")
        return value

    @field_validator("spark_master")
    @classmethod
    def _cluster(cls, value: str | None) -> str | None:
        if value is not None:
            check_spark_master(value)
        return value

    @field_validator("reports")
    @classmethod
    def _reports(cls, value: str | None) -> str | None:
        if value is not None:
            check_reports(value)
        return value

    @field_validator("reaper_tenant_prefix")
    @classmethod
    def _tenant_prefix(cls, value: str | None) -> str | None:
        if value is not None:
            check_tenant_prefix(value)
        return value

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, value: str) -> str:
        if value.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
            raise ValueError(f"not a log level: {value}")
        return value.upper()

    def topic(self, name: str) -> str:
        """Return the full name of a topic, for example `intents` -> `sexton.intents`."""
        return self.topic_prefix + name

    def kafka(self, **extra: Any) -> dict[str, Any]:
        """Return librdkafka properties: brokers, then `extra`, then `SEXTON_KAFKA_EXTRA` on top."""
        return {"bootstrap.servers": self.kafka_bootstrap_servers, **extra, **self.kafka_extra}

    def environment(self) -> dict[str, str]:
        """Return the variables that give another process these settings, secrets included."""
        given = {name: getattr(self, name) for name in type(self).model_fields}
        return {PREFIX + name.upper(): _plain(v) for name, v in given.items() if v is not None}


_EXAMPLES = {
    "kafka_extra": '{"security.protocol": "SSL"}',
    "schema_registry_extra": '{"ssl.ca.location": "/etc/registry-ca.pem"}',
    "allow": '["bucket/prefix/"]',
    "reaper_defer_delays_s": "[5, 30, 180]",
}


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting as `config show` prints it; secrets are masked in `value`."""

    variable: str
    value: str
    source: str
    description: str


def load(environ: Mapping[str, str] | None = None, **flags: Any) -> Settings:
    """Return the settings in force.

    `flags` are command line values; those that are None were not given.

    Raises InvalidSettings for an unknown `SEXTON_` variable, an unknown key in the file, or a bad value.
    """
    return _load(os.environ if environ is None else environ, flags)[0]


def explain(environ: Mapping[str, str] | None = None, **flags: Any) -> list[SettingRow]:
    """Return every setting with its value and where the value came from: flag, environment, file, default."""
    settings, sources = _load(os.environ if environ is None else environ, flags)
    rows = []
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        rows.append(
            SettingRow(
                PREFIX + name.upper(),
                _shown(name, value),
                sources.get(name, "default"),
                field.description or "",
            )
        )
    return rows


def _load(environ: Mapping[str, str], flags: Mapping[str, Any]) -> tuple[Settings, dict[str, str]]:
    given_flags = {name: value for name, value in flags.items() if value is not None}
    from_env = _known(
        {name[len(PREFIX) :].lower(): value for name, value in environ.items() if name.startswith(PREFIX)},
        "environment variable",
    )
    path = given_flags.get("config") or from_env.get("config")
    from_file = _read_file(Path(path)) if path else {}
    values = {**from_file, **from_env, **given_flags}
    sources = {
        **dict.fromkeys(from_file, f"file {path}"),
        **dict.fromkeys(from_env, "environment"),
        **dict.fromkeys(given_flags, "flag"),
    }
    try:
        return _Isolated(**values), sources
    except ValidationError as error:
        # Without the cause: it would print the value, which may be a password.
        raise _invalid(error.errors()[0], sources) from None


def _invalid(error: Mapping[str, Any], sources: Mapping[str, str]) -> InvalidSettings:
    name = str(error["loc"][0])  # every rule is one of a single setting
    message = in_words(error, secret=name in _SECRET)
    return InvalidSettings(
        f"{PREFIX}{name.upper()} ({sources.get(name, 'default')}): {message}",
        hint=_LISTED,
    )


class _Isolated(Settings):
    """Settings that read nothing by themselves: the one merge order is the one above."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def _known(values: dict[str, Any], what: str) -> dict[str, Any]:
    for name in values:
        if name not in Settings.model_fields:
            close = difflib.get_close_matches(name, Settings.model_fields, n=1)
            meant = f"did you mean {PREFIX}{close[0].upper()}? " if close else ""
            raise InvalidSettings(f"unknown {what}: {PREFIX}{name.upper()}", hint=f"{meant}{_LISTED}")
    return {name: value for name, value in values.items() if value != ""}


def _read_file(path: Path) -> dict[str, Any]:
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings(f"{_FILE_VARIABLE} cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"{_FILE_VARIABLE} is not TOML: {path}: {error}") from error
    names = {(n[len(PREFIX) :] if n.upper().startswith(PREFIX) else n).lower(): v for n, v in raw.items()}
    return _known(names, f"name in {path}")


def _shown(name: str, value: Any) -> str:
    if name in _URLS:
        return masked(_plain(value)) if value is not None else ""
    if isinstance(value, SecretStr):
        return REDACTED
    if name in ("kafka_extra", "schema_registry_extra"):
        return json.dumps(masked_properties(value), sort_keys=True)
    if isinstance(value, tuple):
        return masked(json.dumps(list(value)))
    return "" if value is None else masked(str(value))


def _plain(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return json.dumps(value) if isinstance(value, dict | tuple | list) else str(value)
