"""The properties that were given, and how one of them is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from sexton.schemas.errors import InvalidSettings

__all__ = ["Given"]

# librdkafka's second names for one thing.
_ALIASES = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanism": "sasl.mechanisms",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
_TRUE, _FALSE = ("true", "t", "1"), ("false", "f", "0")
# Of these families each name is known, or refused.
_FAMILIES = ("sasl.", "ssl.", "ssl_", "https.", "security.", "enable.sasl.", "enable.ssl.", "oauthbearer_")
_KNOWN = frozenset(
    {
        "security.protocol",
        "enable.ssl.certificate.verification",
        "ssl.endpoint.identification.algorithm",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "https.ca.location",
        "https.ca.pem",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "sasl.kerberos.service.name",
        "sasl.kerberos.principal",
        "sasl.kerberos.keytab",
        "sasl.kerberos.min.time.before.relogin",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.grant.type",
        "sasl.oauthbearer.sub.claim.name",
    }
)
_LEAVE_OUT = "leave it out: "
# What helps with a name that Java's client has no counterpart for.
_INSTEAD = {
    "ssl.cipher.suites": f"{_LEAVE_OUT}Java has other names; the brokers' ssl.cipher.suites limits both",
    "ssl.curves.list": f"{_LEAVE_OUT}Java offers its own curves; those of the brokers decide for both",
    "ssl.sigalgs.list": f"{_LEAVE_OUT}Java offers its own algorithms; those of the brokers decide for both",
    "ssl.crl.location": f"{_LEAVE_OUT}Java's client reads no list of revoked certificates from a file",
    "ssl.engine.id": f"{_LEAVE_OUT}give the key as a PEM file, ssl.key.location",
    "ssl.engine.location": f"{_LEAVE_OUT}give the key as a PEM file, ssl.key.location",
    "ssl.providers": f"{_LEAVE_OUT}providers are OpenSSL's; those of Java are set up in its java.security",
    "ssl.ca.certificate.stores": f"{_LEAVE_OUT}give the authorities as a PEM file, ssl.ca.location",
    "sasl.kerberos.kinit.cmd": f"{_LEAVE_OUT}give sasl.kerberos.keytab and sasl.kerberos.principal",
}


@dataclass(frozen=True, slots=True)
class Given:
    """librdkafka's properties, each under one name and as librdkafka reads it; an empty one is none."""

    values: Mapping[str, str]

    @classmethod
    def of(cls, extra: Mapping[str, str]) -> Given:
        """Return what was given; raises InvalidSettings for one thing said twice in two ways."""
        values: dict[str, str] = {}
        for spelt, raw in extra.items():
            name = _ALIASES.get(spelt, spelt)
            value = raw.lstrip(" \t\n\v\f\r")  # as librdkafka does, also with a password
            if not value:
                continue
            if values.get(name, value) != value:
                other = next(alias for alias, meant in _ALIASES.items() if meant == name)
                raise cls.refused(f"{other} says something else", name, "say it once")
            values[name] = value
        return cls(values)

    @overload
    def get(self, name: str) -> str | None: ...
    @overload
    def get(self, name: str, default: str) -> str: ...
    def get(self, name: str, default: str | None = None) -> str | None:
        """Return a property."""
        return self.values.get(name, default)

    def needed(self, name: str, why: str) -> str:
        """Return a property; raises InvalidSettings without it."""
        value = self.values.get(name)
        if value is None:
            raise self.refused(f"{why} needs it", name, "set it")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return a switch; raises InvalidSettings for a value that is none."""
        value = self.values.get(name, str(default)).lower()
        if value not in (*_TRUE, *_FALSE):
            raise self.refused("neither true nor false", name, "true or false")
        return value in _TRUE

    def file(self, name: str) -> str | None:
        """Return the text of the file that a property names; raises InvalidSettings if it cannot be read."""
        path = self.values.get(name)
        if path is None:
            return None
        try:
            return Path(path).read_text(encoding="latin-1")
        except OSError as error:
            raise self.unreadable(name, path, error) from error

    def refuse_unknown(self) -> None:
        """Raise InvalidSettings for a property of the login that is not known here."""
        for name in self.values:
            if name.startswith(_FAMILIES) and name not in _KNOWN:
                raise self.foreign(name)

    @classmethod
    def foreign(cls, name: str) -> InvalidSettings:
        """Return the error of a property that Spark's Kafka client has no counterpart for."""
        hint = _INSTEAD.get(name, f"{_LEAVE_OUT}the reaper reads Kafka through Spark")
        return cls.refused("Spark's Kafka client cannot do that", name, hint)

    @classmethod
    def unreadable(cls, name: str, path: str, error: OSError) -> InvalidSettings:
        """Return the error of a file that cannot be read."""
        what = f"{name} cannot be read: {error.strerror}"
        return cls.refused(what, path, "a file that this process may read")

    @classmethod
    def refused(cls, why: str, name: str, hint: str) -> InvalidSettings:
        """Return an error about the named property; its value is not shown, it may be a secret."""
        return InvalidSettings(f"SEXTON_KAFKA_EXTRA: {why}: {name}", hint=hint)
