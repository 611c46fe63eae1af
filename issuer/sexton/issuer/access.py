"""Who may call what, once bearer tokens are set: a node as itself, the reaper for barriers, operators else.

Tokens are kept as digests, so that neither a dump nor the time of a comparison tells one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from sexton.schemas.errors import InvalidSettings, RequestRefused

__all__ = [
    "COLLECTORS",
    "EVERYBODY",
    "HOLDERS",
    "OPERATORS",
    "REAPERS",
    "Access",
    "Guarded",
    "Identity",
    "Role",
    "permit",
    "permit_subjects",
]


class Role(StrEnum):
    """What a token's bearer is."""

    NODE = "node"
    REAPER = "reaper"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Identity:
    """The bearer of a token; a node has its name in `node`."""

    role: Role
    node: str | None = None


EVERYBODY = frozenset(Role)
HOLDERS = frozenset({Role.NODE, Role.OPERATOR})
REAPERS = frozenset({Role.REAPER})
COLLECTORS = frozenset({Role.REAPER, Role.OPERATOR})
OPERATORS = frozenset({Role.OPERATOR})


class Guarded(Protocol):
    """A call that only some may make; `acts_as` is the node as which it acts, None where it is nobody's."""

    @property
    def roles(self) -> frozenset[Role]:
        """Who may make it."""

    def acts_as(self) -> str | None:
        """Return the node that the caller has to be, if it is one."""


class Access:
    """The tokens that are known; without any everybody may call everything."""

    def __init__(self, tokens: Mapping[str, Identity]) -> None:
        self._known = {_digest(token): identity for token, identity in tokens.items()}

    @classmethod
    def parse(cls, text: str | None) -> Access:
        """Read `{"token": {"role": "node", "node": "node-7"}, ...}`, or the path of a file that holds it.

        Raises InvalidSettings, which names no token.
        """
        if not text:
            return cls({})
        if not text.lstrip().startswith("{"):
            try:
                text = Path(text).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidSettings(
                    "SEXTON_ISSUER_TOKENS is no JSON object and no readable file"
                ) from error
        try:
            rows = json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidSettings(f"SEXTON_ISSUER_TOKENS is not JSON: {error.msg}") from None
        if not isinstance(rows, dict) or not rows:
            raise InvalidSettings("SEXTON_ISSUER_TOKENS holds no token: not an object of tokens")
        return cls(
            {token: _identity(number, token, row) for number, (token, row) in enumerate(rows.items(), 1)}
        )

    @property
    def required(self) -> bool:
        """Whether a call has to carry a token."""
        return bool(self._known)

    def identify(self, authorization: str | None) -> Identity | None:
        """Return who calls, None where no tokens are set; raises RequestRefused `unauthenticated`."""
        if not self._known:
            return None
        scheme, _, token = (authorization or "").partition(" ")
        found = self._known.get(_digest(token.strip())) if scheme.lower() == "bearer" else None
        if found is None:
            raise RequestRefused("unauthenticated", "a known bearer token is needed", status=401)
        return found


def permit(identity: Identity | None, body: Guarded) -> None:
    """Raise RequestRefused `forbidden` when the caller may not make this call."""
    if identity is None:
        return
    if identity.role not in body.roles:
        raise RequestRefused("forbidden", f"the {identity.role} role may not make this call", status=403)
    if identity.role is Role.NODE and (node := body.acts_as()) is not None:
        _same(identity, node)


def permit_subjects(identity: Identity | None, nodes: Iterable[str | None]) -> None:
    """Raise RequestRefused `forbidden` when a node asks about a generation that was another node's.

    `nodes` are those that the subjects name and those that the log has for them.
    """
    if identity is not None and identity.role is Role.NODE:
        for node in nodes:
            if node is not None:
                _same(identity, node)


def _same(identity: Identity, node: str) -> None:
    if node != identity.node:
        raise RequestRefused("forbidden", f"node {identity.node} may not act as node {node}", status=403)


def _identity(number: int, token: str, row: Any) -> Identity:
    what = f"SEXTON_ISSUER_TOKENS, token number {number}"
    if not token or not token.isascii() or any(c.isspace() for c in token):
        raise InvalidSettings(f"{what}: a token is ASCII without spaces")
    if not isinstance(row, dict) or not set(row) <= {"role", "node"} or row.get("role") not in list(Role):
        raise InvalidSettings(f'{what}: expected {{"role": one of {", ".join(Role)}, "node": "..."}}')
    role, node = Role(row["role"]), row.get("node")
    if (role is Role.NODE) != isinstance(node, str) or node == "":
        raise InvalidSettings(f"{what}: a node's name goes with the role node, and only with it")
    return Identity(role, node)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
