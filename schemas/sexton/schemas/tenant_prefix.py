"""Where each tenant's objects lie: a template such as `tenants/{tenant}/`, the same in every bucket.

The tenant is a whole segment of it, and only a name that is one plain segment has a prefix: so no tenant's
prefix lies under another one's, and no number below one can be taken for a tenant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from sexton.schemas.errors import InvalidFormat

__all__ = ["TenantPrefix", "is_plain"]

_TENANT = "{tenant}"
_UNSURE = frozenset("/\\%")  # a service that writes such names in another way might mean another tenant's


@dataclass(frozen=True, slots=True)
class TenantPrefix:
    """A template; `before` and `after` are what stands around the tenant's segment."""

    before: str
    after: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the template; raises InvalidFormat unless it ends in `/`, with `{tenant}` as one segment."""
        segments = text.split("/")
        named = segments.count(_TENANT) == 1
        if (
            not named
            or not text.endswith("/")
            or not is_plain(text)
            or text.count("{") + text.count("}") != 2
        ):
            raise InvalidFormat(
                f"a prefix with {_TENANT} as a whole segment is needed, ending in /: {text!r}"
            )
        before, _, after = text.partition(_TENANT)
        return cls(before, after)

    def of(self, tenant: str) -> str | None:
        """Return the tenant's prefix, None for a name that is not one plain segment."""
        if not tenant or tenant in (".", "..") or not tenant.isprintable() or not _UNSURE.isdisjoint(tenant):
            return None
        return f"{self.before}{tenant}{self.after}"

    @property
    def text(self) -> str:
        """The template."""
        return f"{self.before}{_TENANT}{self.after}"


def is_plain(path: str) -> bool:
    """Return whether no segment is empty, `.` or `..`; the last one is empty where it ends in `/`."""
    *folders, name = path.split("/")
    return {"", ".", ".."}.isdisjoint(folders) and name not in (".", "..")
