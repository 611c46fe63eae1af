"""Certificates of an authority of our own: good ones, and those that nobody should accept.

One authority for each test process; its file is what `AWS_CA_BUNDLE` names in the tests. Keys are of an
elliptic curve, which are made in no time.
"""

from __future__ import annotations

import atexit
import ipaddress
import shutil
import ssl
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["Authority", "authority", "server_context"]

HERE = ("127.0.0.1", "localhost")
_DAY = timedelta(days=1)


class Authority:
    """A certificate authority; `bundle` is the PEM file with its certificate."""

    def __init__(self, name: str = "tests") -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sexton-tests-ca-"))
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(f"{name} authority")
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        certificate = (
            _builder(self._name, self._name, self._key, (-_DAY, 30 * _DAY))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(_subject_key(self._key), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.bundle = self._folder / "ca.pem"
        self.bundle.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, names: Sequence[str] = HERE, valid: tuple[timedelta, timedelta] = (-_DAY, _DAY)) -> Path:
        """Return a PEM file with a certificate for these names, and its key; `valid` is from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            _builder(_named(names[0]), self._name, key, valid)
            .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
            .add_extension(issuer_key, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        file = self._folder / f"{certificate.serial_number:x}.pem"
        file.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return file


@cache
def authority() -> Authority:
    """Return the authority that this test process trusts."""
    return Authority()


@cache
def _own() -> Path:
    return authority().issue()


def server_context(certificate: Path | None = None) -> ssl.SSLContext:
    """Return the context of a server with this certificate, by default a good one for 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate or _own())
    return context


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, valid: tuple[timedelta, timedelta]
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + valid[0])
        .not_valid_after(now + valid[1])
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _subject_key(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
