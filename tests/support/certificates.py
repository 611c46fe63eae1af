"""Certificates of an authority of our own: good ones, and those that nobody should accept.

One authority for each test process; its file is what `AWS_CA_BUNDLE` names in the tests.
"""

from __future__ import annotations

import atexit
import shutil
import ssl
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import trustme

__all__ = ["Authority", "authority", "server_context"]

HERE = ("127.0.0.1", "localhost")
_DAY = timedelta(days=1)


class Authority:
    """A certificate authority; `bundle` is the PEM file with its certificate."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="sexton-tests-ca-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self._made = trustme.CA()
        self.bundle = folder / "ca.pem"
        self._made.cert_pem.write_to_path(self.bundle)

    def context(
        self, names: Sequence[str] = HERE, valid: tuple[timedelta, timedelta] = (-_DAY, _DAY)
    ) -> ssl.SSLContext:
        """Return the context of a server with a certificate for these names; `valid` is from now."""
        now = datetime.now(UTC)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        issued = self._made.issue_cert(*names, not_before=now + valid[0], not_after=now + valid[1])
        issued.configure_cert(context)
        return context


@cache
def authority() -> Authority:
    """Return the authority that this test process trusts."""
    return Authority()


@cache
def server_context() -> ssl.SSLContext:
    """Return the context of a server with a good certificate for 127.0.0.1."""
    return authority().context()
