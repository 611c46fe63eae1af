"""What a setting's value must look like, and how a bad one is reported in plain words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from sexton.schemas.checks import check_bucket
from sexton.schemas.errors import InvalidEvent, InvalidFormat
from sexton.schemas.tenant_prefix import TenantPrefix

__all__ = [
    "check_allowed",
    "check_kafka",
    "check_reports",
    "check_spark_master",
    "check_tenant_prefix",
    "check_url",
    "in_words",
]

_LARGEST_PORT = 65535
_SCHEMES = {
    "issuer_url": (("http", "https"), "http://127.0.0.1:8350"),
    "s3_endpoint_url": (("http", "https"), "http://127.0.0.1:8333"),
    "schema_registry_url": (("http", "https"), "http://127.0.0.1:8081"),
    "redis_url": (("redis", "rediss", "unix"), "redis://127.0.0.1:6379/0"),
}
_SEVERAL = ("issuer_url", "schema_registry_url")
_NEEDED = {
    "int_parsing": "a whole number is needed",
    "int_type": "a whole number is needed",
    "int_from_float": "a whole number is needed",
    "float_parsing": "a number is needed",
    "float_type": "a number is needed",
    "finite_number": "a number is needed",
    "bool_parsing": "true or false is needed",
    "bool_type": "true or false is needed",
    "dict_type": "a JSON object is needed",
    "tuple_type": "a JSON list is needed",
    "string_type": "text is needed",
    "path_type": "a path is needed",
    "extra_forbidden": "there is no such setting",
    "greater_than": "a number above {gt:g} is needed",
    "greater_than_equal": "a number of at least {ge:g} is needed",
    "less_than_equal": "a number of at most {le:g} is needed",
}

_TRUE, _FALSE = ("true", "t", "1"), ("false", "f", "0")
# librdkafka's properties that Sexton decides about by itself, each with the values that do no harm.
_DECIDED: Mapping[str, tuple[str, ...]] = {
    # What is acknowledged is there, once, and where readers of Java's partitioning look.
    "acks": ("all", "-1"),
    "request.required.acks": ("all", "-1"),
    "enable.idempotence": _TRUE,
    "partitioner": ("murmur2", "murmur2_random"),
    "transactional.id": (),
    "delivery.report.only.error": _FALSE,
    # What a reader misses is an error: an event that is skipped could make a verdict wrong.
    "auto.offset.reset": (),
    "isolation.level": ("read_committed",),
    "enable.partition.eof": (),
    "enable.auto.commit": _FALSE,
    "auto.commit.enable": _FALSE,
    "enable.auto.offset.store": _FALSE,
    "allow.auto.create.topics": _FALSE,
    # The lock on a checkpoint is the membership of a group: how long it lasts, and who has it.
    "group.id": (),
    "group.instance.id": (),
    "group.protocol": ("classic",),
    "session.timeout.ms": (),
    "heartbeat.interval.ms": (),
    "max.poll.interval.ms": (),
    "partition.assignment.strategy": (),
}


def check_kafka(properties: Mapping[str, str]) -> None:
    """Raise ValueError for a property of SEXTON_KAFKA_EXTRA by which an intent or an object could be lost."""
    for name, value in properties.items():
        allowed = _DECIDED.get(name)
        if allowed is not None and value.strip().lower() not in allowed:
            must = f"must be {allowed[0]}, or left out" if allowed else "Sexton itself decides, leave it out"
            raise ValueError(f"{must}: {name}")


def check_reports(value: str) -> None:
    """Raise ValueError for a place of reports that is neither a folder nor `s3://bucket/prefix`."""
    scheme, found, place = value.partition("://")
    if not found:
        return
    if scheme != "s3":
        raise ValueError(f"a folder or s3://bucket/prefix is needed: {value!r}")
    try:
        check_bucket(place.partition("/")[0])
    except InvalidEvent as error:
        raise ValueError(str(error)) from error


def check_tenant_prefix(value: str) -> None:
    """Raise ValueError for what is no template of a tenant's prefix."""
    try:
        TenantPrefix.parse(value)
    except InvalidFormat as error:
        raise ValueError(str(error)) from error


def check_spark_master(value: str) -> None:
    """Raise ValueError unless Spark knows such a cluster: spark://HOST:PORT[,HOST:PORT...], yarn, k8s://URL."""
    scheme, _, addresses = value.partition("://")
    if scheme != "spark":
        if not re.match(r"yarn$|k8s://.|local-cluster\[", value):
            raise ValueError(f"not spark://HOST:PORT, yarn or k8s://URL, and local mode needs none: {value}")
        return
    for address in addresses.split(","):
        found = re.fullmatch(r"(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})", address, re.ASCII)
        if found is None or not 0 < int(found[1]) <= _LARGEST_PORT:
            raise ValueError(f"not spark://HOST:PORT, with commas between several: {value}")


def check_url(name: str, value: str) -> str:
    """Return the URL that the setting `name` was given; raises ValueError, which says how one looks.

    The value itself is not shown: it may hold a password.
    """
    schemes, example = _SCHEMES[name]
    for url in map(str.strip, value.split(",")) if name in _SEVERAL else [value]:
        scheme, separator, _ = url.partition("://")
        if not separator or scheme not in schemes:
            raise ValueError(f"a URL that begins with {_either(schemes)} is needed, such as {example}")
        if not _leads_somewhere(url):
            raise ValueError(f"a URL with a host, and a port of at most 65535, is needed, such as {example}")
        if _password_ends_host(url):
            raise ValueError("a password in a URL needs %2F, %3F and %23 for /, ? and #")
    return value


def check_allowed(entry: str) -> None:
    """Check an entry of the allow-list; raises ValueError.

    One that names no bucket would not be narrow but empty: every intent would be refused, for good.
    """
    bucket = entry.partition("/")[0]
    if "://" in entry:
        raise ValueError(f"BUCKET or BUCKET/PREFIX is needed, without a scheme: {entry!r}")
    try:
        check_bucket(bucket)
    except InvalidEvent as error:
        raise ValueError(f"{error}, in {entry!r}") from error


def in_words(error: Mapping[str, Any], *, secret: bool) -> str:
    """Return one of a validation's errors as a plain sentence, the value last unless it is secret."""
    inside = "".join(f"{part}: " for part in error["loc"][1:])
    context: Mapping[str, Any] = error.get("ctx") or {}
    if error["type"] == "value_error":
        return f"{inside}{context['error']}"
    needed = _NEEDED.get(error["type"])
    message = error["msg"] if needed is None else needed.format(**context)
    return f"{inside}{message}" if secret else f"{inside}{message}: {error['input']!r}"


def _leads_somewhere(url: str) -> bool:
    if any(character.isspace() for character in url):
        return False
    try:
        parts = urlsplit(url)
        port = parts.port  # raises for one that is no number, or too large
    except ValueError:
        return False
    return bool(parts.path if parts.scheme == "unix" else parts.hostname) and port != 0


def _password_ends_host(url: str) -> bool:
    """Return whether what reads as path or query is the rest of a password, which nothing would mask."""
    parts = urlsplit(url)
    named = parts.query if "=" not in parts.query else ""
    return "@" not in parts.netloc and "@" in parts.path + named + parts.fragment


def _either(schemes: tuple[str, ...]) -> str:
    *first, last = [f"{scheme}://" for scheme in schemes]
    return f"{', '.join(first)} or {last}"
