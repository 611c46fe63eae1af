"""The text by which a Java client is told its login module."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["jaas"]

_ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}


def jaas(module: str, options: Mapping[str, str]) -> str:
    """Return the login module with its options, each value quoted as Kafka's parser reads it."""
    return (
        " ".join([module, "required", *(f"{name}={_quoted(value)}" for name, value in options.items())]) + ";"
    )


def _quoted(value: str) -> str:
    return '"' + "".join(_ESCAPED.get(character, character) for character in value) + '"'
