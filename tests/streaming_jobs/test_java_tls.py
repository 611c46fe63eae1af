"""P-6: certificates and keys of librdkafka's properties in the words of the Java client."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from tests.support.certificates import authority
from tests.support.java_properties import OIDC, SASL, TLS, java, leaf

from sexton.schemas.errors import InvalidSettings
from sexton.streaming_jobs.java_client import tls


def test_p_6_whom_to_trust_is_the_file_and_the_text() -> None:
    """P-6: both together, as librdkafka takes them, in each form that OpenSSL reads."""
    text = authority().bundle.read_text(encoding="ascii")
    given = {
        "ssl.ca.location": str(authority().bundle),
        "ssl.ca.pem": text.rstrip().replace("CERTIFICATE", "X509 CERTIFICATE"),
    }

    found = java(TLS, given)

    assert found["ssl.truststore.type"] == "PEM"
    assert found["ssl.truststore.certificates"] == text * 2


@pytest.mark.parametrize("given", [{}, {"ssl.ca.location": "probe"}])
def test_p_6_without_an_authority_the_systems_are_trusted(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """P-6: those that librdkafka finds, and Java's own only where there are none."""
    bundle = str(authority().bundle)
    monkeypatch.setattr(tls, "PROBED", (str(tmp_path / "nowhere"), bundle, "/other"))
    found = java(TLS, given)
    monkeypatch.setattr(tls, "PROBED", (str(tmp_path / "nowhere"),))
    bare = java(TLS, given)

    assert (found["ssl.truststore.type"], found["ssl.truststore.location"]) == ("PEM", bundle)
    assert not any("truststore" in name for name in bare)


def test_p_6_a_client_is_known_by_its_certificate(tmp_path: Path) -> None:
    """P-6: from files or text; a password that no key needs is none."""
    given = leaf(tmp_path, serialization.PrivateFormat.PKCS8)
    inline = {
        "ssl.certificate.pem": (tmp_path / "client.pem").read_text(encoding="ascii"),
        "ssl.key.pem": (tmp_path / "client.key").read_text(encoding="ascii"),
    }

    found = java(given, {"ssl.key.password": "unneeded"})

    assert found == java(TLS, inline)
    assert found["ssl.keystore.type"] == "PEM"
    assert found["ssl.keystore.certificate.chain"].startswith("-----BEGIN CERTIFICATE-----\n")
    assert found["ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----\n")
    assert found["ssl.keystore.key"].endswith("-----END PRIVATE KEY-----\n")
    assert "ssl.key.password" not in found


def test_p_6_a_store_of_the_clients_certificate_is_pkcs12(tmp_path: Path) -> None:
    """P-6: librdkafka's `ssl.keystore.location` is a PKCS#12 file, Java's one of several kinds."""
    store = tmp_path / "client.p12"
    store.write_bytes(b"\x30\x82\xff")

    found = java(TLS, {"ssl.keystore.location": str(store), "ssl.keystore.password": "p"})

    assert found["ssl.keystore.type"] == "PKCS12"
    assert found["ssl.keystore.location"] == str(store)
    assert found["ssl.keystore.password"] == "p"


@pytest.mark.parametrize(
    ("given", "java_value"), [("none", ""), ("NONE", ""), ("https", "https"), (None, "https")]
)
def test_p_6_the_hosts_name_is_asked_for_unless_it_is_turned_off(given: str | None, java_value: str) -> None:
    """P-6: Java says "none" with an empty text."""
    name = "ssl.endpoint.identification.algorithm"

    assert java(TLS, {name: given} if given else {})[name] == java_value


@pytest.mark.parametrize(
    "name",
    ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location",
     "https.ca.location", "sasl.kerberos.keytab"],
)  # fmt: skip
def test_p_6_a_file_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    """P-6: with the property and the path, at the start."""
    missing = str(tmp_path / "missing")
    given: dict[str, str]
    if name.startswith("ssl."):
        given = leaf(tmp_path, serialization.PrivateFormat.PKCS8) if "store" not in name else TLS
    elif name.startswith("https."):
        given = {**OIDC, "sasl.oauthbearer.token.endpoint.url": "https://issuer"}
    else:
        given = SASL

    with pytest.raises(InvalidSettings, match="No such file") as refused:
        java(given, {name: missing})

    assert name in str(refused.value)
    assert str(refused.value).endswith(f": {missing}")


@pytest.mark.parametrize(
    ("form", "password", "why"),
    [
        (serialization.PrivateFormat.TraditionalOpenSSL, None, "openssl pkcs8 -topk8"),
        (serialization.PrivateFormat.TraditionalOpenSSL, b"p", "openssl pkcs8 -topk8"),
        (serialization.PrivateFormat.PKCS8, b"p", "openssl pkcs12 -export"),
    ],
    ids=["another form", "another form, encrypted", "another encryption"],
)
def test_p_6_a_key_that_java_cannot_read_is_refused(
    tmp_path: Path, form: serialization.PrivateFormat, password: bytes | None, why: str
) -> None:
    """P-6: with the command that makes one which it can."""
    given = leaf(tmp_path, form, password)

    with pytest.raises(InvalidSettings, match=r": ssl.key.location$") as refused:
        java(given, {"ssl.key.password": "p"})

    assert why in (refused.value.hint or "")


def test_p_6_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    """P-6: Java would call the key invalid."""
    given = leaf(tmp_path, serialization.PrivateFormat.PKCS8)
    new = str(tmp_path / "locked.key")
    command = ["openssl", "pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-passout", "pass:p", "-out", new]
    subprocess.run([*command, "-in", given["ssl.key.location"]], check=True, capture_output=True, timeout=150)
    locked = {**given, "ssl.key.location": new}

    with pytest.raises(InvalidSettings, match=r": ssl.key.password$"):
        java(locked)
    assert java(locked, {"ssl.key.password": "p"})["ssl.key.password"] == "p"


def test_p_6_one_certificate_is_said_once(tmp_path: Path) -> None:
    """P-6: of two, librdkafka takes the second in silence."""
    given = leaf(tmp_path, serialization.PrivateFormat.PKCS8)
    store = {"ssl.keystore.location": given["ssl.key.location"], "ssl.keystore.password": "p"}

    for more in ({"ssl.key.pem": "x"}, {"ssl.certificate.pem": "x"}, store):
        with pytest.raises(InvalidSettings, match=r"too: |say it once"):
            java(given, more)


def test_p_6_a_folder_without_certificates_is_refused(tmp_path: Path) -> None:
    """P-6: OpenSSL looks at hashed names alone, and so does this."""
    (tmp_path / "ca.pem").write_bytes(authority().bundle.read_bytes())

    with pytest.raises(InvalidSettings, match=r"no certificate in it: ssl\.ca\.location") as refused:
        java(TLS, {"ssl.ca.location": str(tmp_path)})

    assert "openssl rehash" in (refused.value.hint or "")
