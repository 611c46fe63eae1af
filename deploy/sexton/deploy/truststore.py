"""The certificates that Java trusts: its own list, the machine's, or one made from `SSL_CERT_FILE`.

A Java that was not installed by the machine's package manager knows nothing of a private CA,
and takes no PEM file as trust store.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sexton.schemas.errors import EnvironmentFault, ToolMissing

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

__all__ = ["options"]

_log = logging.getLogger(__name__)

_MACHINE_STORE = Path("/etc/ssl/certs/java/cacerts")
_PASSWORD = "changeit"  # Java's own default: the store holds public certificates only
_PROPERTY = "-Djavax.net.ssl.trustStore="


def options(cache: Path, environ: Mapping[str, str], home: Path) -> tuple[str, ...]:
    """Return the Java options that make `home` trust what this machine trusts.

    Raises EnvironmentFault when `SSL_CERT_FILE` names a file that cannot be read.
    """
    own = home / "lib" / "security" / "cacerts"
    if _MACHINE_STORE.is_file():
        linked = own.exists() and own.resolve() == _MACHINE_STORE.resolve()
        return () if linked else (f"{_PROPERTY}{_MACHINE_STORE}",)
    bundle = environ.get("SSL_CERT_FILE")
    if not bundle:
        return ()
    return (
        f"{_PROPERTY}{_from_pem(Path(bundle), cache)}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
        f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}",
    )


def _from_pem(bundle: Path, cache: Path) -> Path:
    try:
        pem = bundle.read_bytes()
    except OSError as error:
        raise EnvironmentFault(f"SSL_CERT_FILE cannot be read: {error}") from error
    store = cache / f"trust-{hashlib.sha256(pem).hexdigest()[:16]}.p12"
    if not store.is_file():
        store.parent.mkdir(parents=True, exist_ok=True)
        unfinished = store.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(_pkcs12(pem))
        unfinished.replace(store)
    return store


def _pkcs12(pem: bytes) -> bytes:
    try:
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
    except ImportError as error:
        raise ToolMissing(
            "a Java trust store has to be made from SSL_CERT_FILE", hint='pip install "sexton[local]"'
        ) from error
    entries = [
        pkcs12.PKCS12Certificate(certificate, f"ca-{number}".encode())
        for number, certificate in enumerate(dict.fromkeys(_certificates(pem)))
    ]
    return pkcs12.serialize_java_truststore(entries, BestAvailableEncryption(_PASSWORD.encode()))


def _certificates(pem: bytes) -> Iterator[Certificate]:
    from cryptography import x509

    for block in re.findall(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", pem, re.DOTALL):
        with warnings.catch_warnings():
            # Lists of CAs hold old certificates that break a rule or two; Java takes most of them.
            warnings.simplefilter("ignore")
            try:
                yield x509.load_pem_x509_certificate(block)
            except ValueError as error:
                _log.warning("a certificate is left out of the Java trust store: %s", error)
