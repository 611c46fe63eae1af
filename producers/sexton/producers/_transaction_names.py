"""The names of one transaction's objects: which key carries its number. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sexton.producers._values import check_text
from sexton.schemas.checks import check_keys
from sexton.schemas.errors import InvalidEvent, UsageError
from sexton.schemas.events import NumberPlace
from sexton.schemas.numbered_names import carries
from sexton.schemas.tenant_prefix import is_plain

__all__ = ["OwnNames", "check_prefix"]


@dataclass(frozen=True, slots=True)
class OwnNames:
    """Names below a tenant's prefix, with the number as their first segment or as their final `.23`."""

    prefix: str
    number: int
    place: NumberPlace

    @property
    def beginning(self) -> str:
        """What each own key begins with."""
        return f"{self.prefix}{self.number}/" if self.place is NumberPlace.FIRST else self.prefix

    @property
    def ending(self) -> str:
        """What each own key ends in."""
        return f".{self.number}" if self.place is NumberPlace.LAST else ""

    def key(self, name: str) -> str:
        """Return the key of a name; raises InvalidEvent where no reader could tell whose it is."""
        check_text(name)
        key = f"{self.beginning}{name}{self.ending}"
        check_keys((key,))
        if not name or not self.carries(key):
            raise InvalidEvent(
                f"a name that not every reader takes for {self.number}'s: {name!r:.80}", hint=_PLAIN
            )
        return key

    def folder(self, name: str) -> str:
        """Return the prefix under which only own objects are; raises UsageError where there is none."""
        if self.place is NumberPlace.LAST:
            raise UsageError(
                "no prefix has this transaction's objects alone: its keys carry the number at their end",
                hint=f"list the tenant's prefix, and take what ends in {self.ending}",
            )
        if not name:
            return self.beginning
        return f"{self.key(name).rstrip('/')}/"

    def carries(self, key: str) -> bool:
        """Return whether a key is of this transaction for everybody, and of no other one.

        Where it is rejected, the reaper deletes nothing else in its name.
        """
        if not key.startswith(self.prefix) or key == self.beginning:
            return False
        return carries(key.removeprefix(self.prefix), self.place, self.number)


_PLAIN = "no segment is empty, . or ..; where keys carry the number last none begins with a number"


def check_prefix(prefix: str, place: NumberPlace) -> None:
    """Raise UsageError for what cannot be a tenant's prefix; with the number first there must be one."""
    if not isinstance(prefix, str):
        raise UsageError(f"a tenant's prefix must be text, not {type(prefix).__name__}")
    if prefix and (not prefix.endswith("/") or prefix.startswith("/")):
        raise UsageError(f"a tenant's prefix ends in a slash and begins with none: {prefix!r:.80}")
    if not is_plain(prefix):
        # No reaper has a template that gives it: of a rejected transaction nothing would ever go.
        raise UsageError(f"a tenant's prefix has no segment that is empty, . or ..: {prefix!r:.80}")
    if not prefix and place is NumberPlace.FIRST:
        raise UsageError(
            "keys that carry the number first need the tenant's prefix", hint='prefix="tenants/tenant-42/"'
        )
