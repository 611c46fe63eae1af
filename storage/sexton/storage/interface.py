"""What everybody who deletes needs of a store; `BatchDeleter` is the real one, tests have others."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Protocol

from sexton.storage.abilities import Abilities
from sexton.storage.calls import Calls
from sexton.storage.states import BatchResult, Delete

__all__ = ["Deleter"]


class Deleter(Protocol):
    """A store: single calls, deletes by the thousand, and what it was found to be able to do."""

    @property
    def calls(self) -> Calls:
        """Single calls."""

    def delete_all(
        self, bucket: str, items: Sequence[str | Delete], *, bypass_governance: bool = False
    ) -> Future[BatchResult]:
        """Send 1 to 1,000 items; the future raises nothing that a store can cause."""

    def probe(self, bucket: str, under: str = "") -> Abilities:
        """Return what the bucket's store can do, tried once in this process on keys under `under`."""

    def probe_writes(self, bucket: str, under: str = "") -> Abilities:
        """Return what is known, with whether the store's conditional writes are real: raced under `under`."""

    def look_up(self, bucket: str) -> Abilities:
        """Return what the bucket says of itself: enough for plain keys."""

    def abilities(self, bucket: str) -> Abilities:
        """Return what is known of the bucket's store, asking nobody."""

    def date_of(self, bucket: str) -> datetime | None:
        """Return the time by the clock of the bucket's last reply, None where none has told it."""
