"""The action that deletes all that lies under a prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sexton.schemas.actions.room import ActionRoom, DeleteMode, Refusal
from sexton.schemas.checks import check_bucket, check_keys
from sexton.schemas.guards import Guard, KeyCondition

__all__ = ["DeletePrefix"]


@dataclass(frozen=True, slots=True)
class DeletePrefix(ActionRoom):
    """Delete what lies under a prefix that ends in `/`; `tombstone`, when named, goes last.

    With `suffix` only names that end in it. Only objects that were written up to `written_before` by the
    store's clock; without it, up to the store's date at the first listing.
    """

    bucket: str
    prefix: str
    mode: DeleteMode = DeleteMode.HIDE
    bypass_governance: bool = False
    tombstone: str | None = None
    suffix: str | None = None
    written_before: datetime | None = None

    @property
    def place(self) -> str:
        """The bucket."""
        return self.bucket

    @property
    def reaches(self) -> Sequence[str]:
        """The prefix, and the tombstone, which need not lie under it."""
        return [self.prefix] if self.tombstone is None else [self.prefix, self.tombstone]

    def may_delete(self, key: str) -> bool:
        """Return whether the key lies under the prefix, or is the tombstone."""
        return key == self.tombstone or (key.startswith(self.prefix) and key.endswith(self.suffix or ""))

    @property
    def bypasses_governance(self) -> bool:
        """Whether it asks to delete what governance retention locks."""
        return self.bypass_governance

    def check(self) -> None:
        """Raise InvalidEvent for what cannot be a bucket's name, or part of a key."""
        check_bucket(self.bucket)
        if self.prefix:
            check_keys([self.prefix])
        if self.tombstone is not None:
            check_keys([self.tombstone])
        if self.suffix is not None:
            check_keys([self.suffix])

    def refusal(self, min_depth: int = 1) -> Refusal | None:
        """Return why such a prefix is never deleted; a whole bucket never is, whatever the settings ask."""
        prefix, needed = self.prefix, max(min_depth, 1)
        if not prefix.endswith("/"):
            return _refused(f"a prefix must not be empty and must end in '/': {prefix[:80]!r}")
        depth = sum(1 for segment in prefix.split("/") if segment)
        if depth == 0:
            return _refused(f"a prefix must name something before its '/': {prefix[:80]!r}")
        if depth < needed:
            return _refused(f"a prefix needs at least {needed} segments below the bucket: {prefix[:80]!r}")
        if self.tombstone == "":
            return _refused("a tombstone needs a key")
        if self.mode is DeleteMode.ERASE_VERSION:
            return _refused("a version id is needed to erase one version, and a prefix has none")
        return None

    def guards_missing(self, guards: Sequence[Guard], conditions: dict[str, KeyCondition]) -> Refusal | None:
        """Return that nobody has given all of it up: others are about what the owner knew of it."""
        if not any(guard.allows_prefix for guard in guards):
            detail = "a whole prefix is only deleted when it was given up, or its transaction rejected"
            return Refusal("prefix-needs-promise", detail)
        if any(guard.names_keys for guard in guards):
            return Refusal("unchanged-without-keys", "no store checks a condition for a whole prefix")
        return None

    @property
    def text(self) -> str:
        """The prefix."""
        return f"delete s3://{self.bucket}/{self.prefix}*{self.suffix or ''}"


def _refused(detail: str) -> Refusal:
    return Refusal("prefix-refused", detail)
