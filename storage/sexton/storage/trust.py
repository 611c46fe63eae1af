"""Whom a process trusts to vouch for a store: one list of CAs, read once, with the setting that named it."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from botocore.httpsession import get_cert_path

from sexton.schemas.errors import InvalidSettings

__all__ = ["Trust", "load_trust"]

_BUILT_IN = "the list that comes with botocore"


@dataclass(frozen=True, slots=True)
class Trust:
    """The context of every TLS connection to a store, and where its CAs come from."""

    context: ssl.SSLContext
    path: str
    source: str

    def for_any_host(self) -> ssl.SSLContext:
        """Return a context that trusts the same CAs and takes their certificate for any host.

        Only to tell for which hosts a certificate is: nothing may be sent over it.
        """
        context = _context(self.path)
        context.check_hostname = False
        return context


def load_trust(environ: Mapping[str, str], profile_bundle: str | None = None) -> Trust:
    """Return the CAs to trust: the first setting that names a PEM file, else the list of the AWS tools.

    In this order: `AWS_CA_BUNDLE`, `ca_bundle` of the AWS configuration (`profile_bundle`),
    `REQUESTS_CA_BUNDLE`, `SSL_CERT_FILE`. Raises InvalidSettings for a file that cannot be used: to fall back
    to another list would be to trust whom nobody named.
    """
    settings = (
        ("AWS_CA_BUNDLE", environ.get("AWS_CA_BUNDLE")),
        ("ca_bundle of the AWS configuration", profile_bundle),
        ("REQUESTS_CA_BUNDLE", environ.get("REQUESTS_CA_BUNDLE")),
        ("SSL_CERT_FILE", environ.get("SSL_CERT_FILE")),
    )
    built_in = (_BUILT_IN, str(get_cert_path(True)))
    setting, named = next(((name, path) for name, path in settings if path), built_in)
    path = os.path.expanduser(named or "")
    try:
        context = _context(path)
    except (OSError, ValueError) as error:
        raise InvalidSettings(
            f"the CAs of the store cannot be read: {setting} = {path}: {_reason(error)}",
            hint=f"{setting} has to name a PEM file with at least one certificate",
        ) from error
    return Trust(context, path, f"{setting} = {path}")


def _context(path: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies the chain and the host's name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.load_verify_locations(cafile=path)
    return context


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "no certificate in PEM is in it"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
