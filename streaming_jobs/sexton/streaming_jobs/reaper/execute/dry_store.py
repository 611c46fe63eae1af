"""The store of a dry run: it sends nothing and says that all went well; its rows are shown, never written."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import NoReturn

from sexton.storage import Abilities, BatchResult, Delete, Versioning

__all__ = ["DryStore"]


class DryStore:
    """A store that nobody reaches."""

    @property
    def calls(self) -> NoReturn:
        """Never asked for: a dry run reads no object."""
        raise NotImplementedError("a dry run does not reach the store")

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

    def probe(self, bucket: str, under: str = "") -> Abilities:
        """Never asked for: a dry run is refused nothing by its store."""
        raise NotImplementedError("a dry run does not reach the store")
