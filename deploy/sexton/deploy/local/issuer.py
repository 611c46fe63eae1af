"""The issuer as a process of the local stack."""

from __future__ import annotations

import sys

import httpx

__all__ = ["answers", "command"]


def command() -> list[str]:
    """Return the issuer's command line; everything else it reads from its SEXTON_ variables."""
    return [sys.executable, "-m", "sexton.deploy.main", "issuer", "serve"]


def answers(url: str) -> str | None:
    """Return None if the issuer says that it is ready, else what it said."""
    try:
        with httpx.Client(timeout=5, trust_env=False, verify=False) as client:
            reply = client.get(f"{url}/readyz")
    except httpx.HTTPError as error:
        return str(error)
    return None if reply.status_code == httpx.codes.OK else f"HTTP {reply.status_code}: {reply.text[:200]}"
