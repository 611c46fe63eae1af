"""TLS: whom the Java client trusts, and the certificate by which it is known."""

from __future__ import annotations

import re
from pathlib import Path

from sexton.schemas.errors import InvalidSettings
from sexton.streaming_jobs.java_client import pem
from sexton.streaming_jobs.java_client.given import Given

__all__ = ["PROBED", "tls_properties", "trusted"]

# Where librdkafka looks for the system's authorities; the first that is there is taken.
PROBED = (
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/certs/ca-bundle.crt",
    "/etc/pki/tls/certs/ca-bundle.trust.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/cacert.pem",
    "/etc/certs/ca-certificates.crt",
    "/etc/ssl/certs/ca-certificates.crt",
    "/usr/local/etc/ssl/cert.pem",
    "/usr/local/etc/ssl/cacert.pem",
)
_HASHED = re.compile(r"[0-9a-f]{8}\.[0-9]+")  # the only names that OpenSSL looks at in a folder
_DECRYPT = (
    "openssl pkcs12 -export -inkey KEY -in CERTIFICATE -out NEW makes a file for ssl.keystore.location,"
    " which keeps the password; openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in KEY -out NEW a key that it reads"
)
_CONVERT = "openssl pkcs8 -topk8 -in KEY -out NEW (with -nocrypt for one without a password) makes one"


def tls_properties(given: Given) -> dict[str, str]:
    """Return the properties about TLS; raises InvalidSettings that names what Java cannot do, or a file."""
    if not given.flag("enable.ssl.certificate.verification", True):
        raise given.refused(
            "Spark's Kafka client always verifies the brokers' certificates",
            "enable.ssl.certificate.verification",
            "leave it out, and name the brokers' authority: ssl.ca.location",
        )
    java = {**trusted(given, "ssl.ca.location", "ssl.ca.pem"), **_known_by(given)}
    name = "ssl.endpoint.identification.algorithm"
    algorithm = given.get(name, "https").lower()
    if algorithm not in ("https", "none"):
        raise given.refused("no such algorithm", name, "https or none")
    return java | {name: "" if algorithm == "none" else "https"}


def trusted(given: Given, location: str, text: str) -> dict[str, str]:
    """Return whom to trust: the authorities of the file and of the text, or else the system's.

    Certificates go as text: an executor elsewhere needs no file. Java's own are taken where the system has
    none.
    """
    path = given.get(location)
    found = ""
    if path is not None and path != "probe":
        found = _folder(given, location, Path(path)) if Path(path).is_dir() else _file(given, location)
    if (inline := given.get(text)) is not None:
        found += _certificates(given, text, inline)
    if found:
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": found}
    for bundle in PROBED:
        if Path(bundle).is_file():
            return {"ssl.truststore.type": "PEM", "ssl.truststore.location": bundle}
    return {}


def _file(given: Given, name: str) -> str:
    return _certificates(given, name, given.file(name) or "")


def _folder(given: Given, name: str, folder: Path) -> str:
    """Return the certificates of a folder as OpenSSL sees it."""
    try:
        texts = [
            each.read_text(encoding="latin-1")
            for each in sorted(folder.iterdir())
            if _HASHED.fullmatch(each.name)
        ]
    except OSError as error:
        raise given.unreadable(name, error.filename or str(folder), error) from error
    return _certificates(
        given, name, "\n".join(texts), "a PEM file, or a folder that `openssl rehash` has seen"
    )


def _certificates(given: Given, name: str, text: str, hint: str = "certificates in PEM") -> str:
    found = [block for _, block in pem.blocks(text, *pem.CERTIFICATE)]
    if not found:
        raise given.refused("no certificate in it", name, hint)
    return "".join(found)


def _known_by(given: Given) -> dict[str, str]:
    """Return the client's own certificate and key."""
    certificate = _one_of(given, "ssl.certificate.location", "ssl.certificate.pem")
    key = _one_of(given, "ssl.key.location", "ssl.key.pem")
    if (store := given.get("ssl.keystore.location")) is not None:
        if other := certificate or key:
            raise given.refused(
                "ssl.keystore.location holds the client's certificate too", other, "say it once"
            )
        given.file("ssl.keystore.location")
        return {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": store,
            "ssl.keystore.password": given.needed("ssl.keystore.password", "ssl.keystore.location"),
        }
    if certificate is None and key is None:
        return {}
    if certificate is None or key is None:
        other, why = ("ssl.certificate.location", key) if key else ("ssl.key.location", certificate)
        raise given.refused(f"{why} needs it", other, "a certificate and its key go together")
    chain = _certificates(given, certificate, _text(given, certificate))
    kind, private = _private_key(given, key)
    java = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": chain,
        "ssl.keystore.key": private,
    }
    if kind == pem.ENCRYPTED:  # with a password Java takes a key for an encrypted one
        java["ssl.key.password"] = given.needed("ssl.key.password", f"the encrypted key of {key}")
    return java


def _private_key(given: Given, name: str) -> tuple[str, str]:
    text = _text(given, name)
    found = pem.blocks(text, pem.KEY, pem.ENCRYPTED)
    if found:
        kind, key = found[0]
        if kind == pem.ENCRYPTED and pem.is_pbes2(key):
            raise given.refused("Spark's Kafka client cannot decrypt the key (PBES2)", name, _DECRYPT)
        return kind, key
    if others := pem.blocks(text, *pem.KEYS_OF_OTHERS):
        raise _other_form(given, others[0][0], name)
    raise given.refused("no private key in it", name, "a PKCS#8 key in PEM")


def _other_form(given: Given, form: str, name: str) -> InvalidSettings:
    return given.refused(f"Spark's Kafka client reads PKCS#8 keys only, not {form}", name, _CONVERT)


def _one_of(given: Given, location: str, text: str) -> str | None:
    """Return the name of the one that is given; raises InvalidSettings for both."""
    if given.get(location) is not None and given.get(text) is not None:
        raise given.refused(f"{location} says it too", text, "say it once")
    return next((name for name in (location, text) if given.get(name) is not None), None)


def _text(given: Given, name: str) -> str:
    text = given.file(name) if name.endswith(".location") else given.get(name)
    assert text is not None
    return text
