"""SASL: the login module that has a mechanism in Java, and what it wants to know."""

from __future__ import annotations

from sexton.streaming_jobs.java_client.given import Given
from sexton.streaming_jobs.java_client.jaas import jaas
from sexton.streaming_jobs.java_client.oauthbearer import oauthbearer

__all__ = ["sasl_properties"]

_KAFKA = "org.apache.kafka.common.security"
_SCRAM = f"{_KAFKA}.scram.ScramLoginModule"
_BY_PASSWORD = {
    "PLAIN": f"{_KAFKA}.plain.PlainLoginModule",
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
}
_KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"


def sasl_properties(given: Given) -> dict[str, str]:
    """Return the properties about SASL; raises InvalidSettings that names what is missing or not in Java."""
    mechanism = given.get("sasl.mechanisms", "GSSAPI")
    java = {"sasl.mechanism": mechanism}
    if module := _BY_PASSWORD.get(mechanism):
        user = given.needed("sasl.username", mechanism)
        password = given.needed("sasl.password", mechanism)
        return java | {"sasl.jaas.config": jaas(module, {"username": user, "password": password})}
    if mechanism == "GSSAPI":
        return java | _kerberos(given)
    if mechanism == "OAUTHBEARER":
        return java | oauthbearer(given)
    known = ", ".join(["GSSAPI", *_BY_PASSWORD, "OAUTHBEARER"])
    raise given.refused(f"no such mechanism here ({mechanism})", "sasl.mechanisms", f"one of {known}")


def _kerberos(given: Given) -> dict[str, str]:
    """Return a login from a keytab, or from the cache of tickets of the user whose process this is."""
    principal = given.get("sasl.kerberos.principal")
    if (keytab := given.get("sasl.kerberos.keytab")) is not None:
        given.file("sasl.kerberos.keytab")
        # librdkafka's principal by default.
        options = {"useKeyTab": "true", "storeKey": "true", "keyTab": keytab}
        options["principal"] = principal or "kafkaclient"
    else:
        options = {"useTicketCache": "true"} | ({"principal": principal} if principal else {})
    java = {
        "sasl.kerberos.service.name": given.get("sasl.kerberos.service.name", "kafka"),
        "sasl.jaas.config": jaas(_KERBEROS, {**options, "doNotPrompt": "true"}),
    }
    pause = given.get("sasl.kerberos.min.time.before.relogin")
    if pause is not None and pause != "0":  # 0 is librdkafka's "do not renew", which Java does by itself
        java["sasl.kerberos.min.time.before.relogin"] = pause
    return java
