"""A certificate for a server on 127.0.0.1, from an authority that is made for one run and then forgotten."""

from __future__ import annotations

from pathlib import Path

import trustme

__all__ = ["make_certificate"]


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make PEM files: the authority that clients are to trust, and the server's certificate with its key."""
    authority, server = folder / "authority.pem", folder / "server.pem"
    made = trustme.CA()
    made.cert_pem.write_to_path(authority)
    made.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(server)
    return authority, server
