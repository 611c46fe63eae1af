"""librdkafka's properties of a login, and the Java client's for them."""

from __future__ import annotations

from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

from sexton.streaming_jobs.java_client import java_properties

__all__ = ["BROKERS", "OAUTH", "OIDC", "SASL", "TLS", "java", "leaf"]

BROKERS = "kafka-1:9092"
TLS = {"security.protocol": "ssl"}
SASL = {"security.protocol": "sasl_plaintext"}
OAUTH = {**SASL, "sasl.mechanisms": "OAUTHBEARER"}
OIDC = {
    **OAUTH,
    "sasl.oauthbearer.method": "OIDC",
    "sasl.oauthbearer.client.id": "sexton",
    "sasl.oauthbearer.client.secret": 'se"cret',
    "sasl.oauthbearer.token.endpoint.url": "http://issuer/token",
}


def java(*parts: dict[str, str]) -> dict[str, str]:
    """The Java client's properties for these."""
    given: dict[str, str] = {}
    for part in parts:
        given |= part
    return java_properties(BROKERS, given)


def leaf(folder: Path, form: serialization.PrivateFormat, password: bytes | None = None) -> dict[str, str]:
    """A client's certificate and its key in a form, as files."""
    issued = trustme.CA().issue_cert("client.example")
    private = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    key = private.private_bytes(serialization.Encoding.PEM, form, encryption)
    (folder / "client.key").write_bytes(b"of a client\n" + key.rstrip())
    issued.cert_chain_pems[0].write_to_path(folder / "client.pem")
    return {
        **TLS,
        "ssl.certificate.location": str(folder / "client.pem"),
        "ssl.key.location": str(folder / "client.key"),
    }
