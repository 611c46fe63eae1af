"""What stands in a PEM text: certificates, and a private key in a form that Java reads."""

from __future__ import annotations

import binascii
import re

__all__ = ["CERTIFICATE", "ENCRYPTED", "KEY", "KEYS_OF_OTHERS", "blocks", "is_pbes2"]

CERTIFICATE = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
KEY, ENCRYPTED = "PRIVATE KEY", "ENCRYPTED PRIVATE KEY"
# OpenSSL reads these too, Java does not.
KEYS_OF_OTHERS = ("RSA PRIVATE KEY", "EC PRIVATE KEY", "DSA PRIVATE KEY")
_PBES2 = bytes.fromhex("06092a864886f70d01050d")  # its object identifier as it stands in DER
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----[ \t]*\r?\n(.*?)-----END \1-----", re.DOTALL)


def blocks(text: str, *names: str) -> list[tuple[str, str]]:
    """Return the named blocks of a PEM text, each with its name and as a text of its own.

    What stands between them is left out, and each ends with a line end, without which Java finds none.
    """
    return [(found[1], _plain(found[1], found[2])) for found in _BLOCK.finditer(text) if found[1] in names]


def is_pbes2(block: str) -> bool:
    """Return whether a key is encrypted as OpenSSL does it by default, which Kafka's client cannot undo."""
    body = "".join(block.splitlines()[1:-1])
    try:
        return _PBES2 in binascii.a2b_base64(body)
    except binascii.Error:
        return False  # no key at all; whoever reads it says so


def _plain(name: str, body: str) -> str:
    # With another name in front of it Java would not know a certificate as one.
    name = "CERTIFICATE" if name in CERTIFICATE else name
    lines = [line.strip() for line in body.splitlines()]
    return "\n".join([f"-----BEGIN {name}-----", *filter(None, lines), f"-----END {name}-----", ""])
