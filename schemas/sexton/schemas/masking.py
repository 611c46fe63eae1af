"""What may be reported of settings and errors: never a password, a token or a private key.

A secret is known by its place: before the `@` of a URL, in its query under a name that says so, or as the
value of a Kafka property whose name says so. `masked` works on any text, and stands where text leaves.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from urllib.parse import unquote_plus

__all__ = ["REDACTED", "MaskingFormatter", "is_secret", "masked", "masked_properties"]

REDACTED = "********"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_USER_INFO = re.compile(r"://[^\s/?#]*@")
_PARAMETER = re.compile(r"(?<=[?&;])([^\s=&;?#]+)=[^\s&;#]*")
_SECRET_WORDS = (
    "apikey",
    "api_key",
    "api-key",
    "assertion",
    "credential",
    "jaas",
    "key.pem",
    "passphrase",
    "passwd",
    "password",
    "private",
    "pwd",
    "secret",
    "signature",
    "token",
    "user.info",
)
_SECRET_NAMES = frozenset(
    {"auth", "authorization", "pass", "sig", "sasl.oauthbearer.config", "ssl.keystore.key"}
)
# A place is no secret, though its name may hold a secret's: `sasl.oauthbearer.token.endpoint.url`.
_PLACES = (".url", ".file", ".location")


def is_secret(name: str) -> bool:
    """Return whether the value of a Kafka property, or of a parameter of a URL, is shown to nobody."""
    name = name.lower()
    if name.endswith(_PLACES):
        return False
    return name in _SECRET_NAMES or any(word in name for word in _SECRET_WORDS)


def masked(text: str) -> str:
    """Return text in which no URL holds a user, a password, or a secret parameter."""
    return _URL.sub(_masked_url, text) if "://" in text else text


def masked_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return Kafka properties with the values of the secret ones masked."""
    return {name: REDACTED if is_secret(name) else masked(value) for name, value in properties.items()}


class MaskingFormatter(logging.Formatter):
    """A formatter whose lines, tracebacks included, are masked."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return masked(super().format(record))


def _masked_url(found: re.Match[str]) -> str:
    return _PARAMETER.sub(_masked_parameter, _USER_INFO.sub(f"://{REDACTED}@", found[0]))


def _masked_parameter(found: re.Match[str]) -> str:
    return f"{found[1]}={REDACTED}" if is_secret(unquote_plus(found[1])) else found[0]
