"""The store of a dry run: it deletes nothing and says that all went well; its rows are shown, never written.

Vetoes are asked about, as they would be now: that only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property

from sexton.storage import Abilities, BatchResult, Calls, Delete, Versioning

__all__ = ["DryStore"]


@dataclass(frozen=True)
class DryStore:
    """A store that is read at the most; `reads` returns its single calls, once something asks for them."""

    reads: Callable[[], Calls]

    @cached_property
    def calls(self) -> Calls:
        """Single calls, of which a dry run makes those that read."""
        return self.reads()

    def delete_all(
        self, bucket: str, items: Sequence[str | Delete], *, bypass_governance: bool = False
    ) -> Future[BatchResult]:
        """Return an answer at once."""
        answer: Future[BatchResult] = Future()
        answer.set_result(BatchResult(bucket, len(items), request_ids=("dry-run",)))
        return answer

    def look_up(self, bucket: str) -> Abilities:
        """Return that a delete is a delete there: a dry run shows verdicts, not what a store would say."""
        return Abilities(bucket, versioning=Versioning.OFF)

    abilities = look_up

    def date_of(self, bucket: str) -> None:
        """Nobody has answered."""

    def probe(self, bucket: str, under: str = "") -> Abilities:
        """Never asked for: a dry run is refused nothing by its store."""
        raise NotImplementedError("a dry run does not reach the store")

    probe_writes = probe
