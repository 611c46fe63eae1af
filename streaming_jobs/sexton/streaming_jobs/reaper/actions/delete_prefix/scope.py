"""Which of what a listing names is to be deleted: under the prefix byte for byte, and old enough.

Whatever a listing claims, an object goes only if its key begins with the prefix (and ends in the suffix), and
if it was written up to the instant that binds the intent. What came later is somebody's new data, or a
zombie's: it stays and is counted. The owner's tombstone is left out until it is asked for by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from sexton.schemas.actions import DeletePrefix
from sexton.schemas.text import instant_text
from sexton.storage import Abilities, KeyState, Kind, Listed, ListedVersion
from sexton.storage.states_of import key_state

__all__ = ["NO_DATE", "UNREADABLE", "Lot", "Scope"]

_OUTSIDE = KeyState(
    Kind.FINAL, "OutsideThePrefix", "the store lists it under the prefix, but it does not begin with it"
)
UNREADABLE = key_state("UnreadableKey", "the store's listing may show another key as this one")
_UNDATED = KeyState(Kind.FINAL, "NoLastModified", "the store's listing does not say when it was written")
NO_DATE = KeyState(
    Kind.FINAL, "NoDate", "the store's listing says no Date: the intent has to name the instant"
)
"""The end of a prefix that nothing binds: that is no fault of its bucket."""


class Lot(Enum):
    """What becomes of an object that is listed; a KeyState in its place says why it must not go."""

    GOES = "goes"
    LATE = "late"
    BESIDE = "beside"


@dataclass(slots=True)
class Scope:
    """What an intent reaches; `written_before` is None until its first listing has fixed it.

    `ends_writes`: nobody writes there any more, as a guard of the intent says, so that no instant binds it.
    """

    action: DeletePrefix
    known: Abilities
    written_before: datetime | None = None
    ends_writes: bool = False

    def begin(self, date: datetime | None) -> KeyState | None:
        """Fix the instant by the Date of a listing, at the first one; return the fault where it has none."""
        if self.ends_writes or self.written_before is not None:
            return None
        self.written_before = date
        return NO_DATE if date is None else None

    def lot(self, entry: Listed | ListedVersion) -> Lot | KeyState:
        """Return what becomes of what is listed."""
        action, key = self.action, entry.key
        if key == action.tombstone:
            return Lot.BESIDE
        if not entry.exact or not self.known.lists(key):
            return UNREADABLE
        if not key.startswith(action.prefix):
            return _OUTSIDE
        if action.suffix is not None and not key.endswith(action.suffix):
            return Lot.BESIDE
        if self.written_before is None:
            return Lot.GOES
        if entry.written_at is None:
            return _UNDATED
        # In whole seconds, as a Date has no others: what is listed first was written by then.
        written_at, last = (each.replace(microsecond=0) for each in (entry.written_at, self.written_before))
        return Lot.GOES if written_at <= last else Lot.LATE

    @property
    def text(self) -> str:
        """The instant, for people."""
        return instant_text(self.written_before) if self.written_before is not None else ""
