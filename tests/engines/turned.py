"""A collector and reaper in a few lines, in the right order or the wrong one: proof that rounds notice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.engines.gate import Gate

from sexton.schemas.sequenced import Namespace, boundary_text

__all__ = ["Turned"]


@dataclass
class Turned:
    """Collects all but the newest file of some namespaces; `deletes_first` is the fault.

    `s3` is a client that reaches the store through the gate. Nobody else may write the boundaries, and no
    checkpoint may be held.
    """

    s3: Any
    bucket: str
    gate: Gate
    namespaces: list[Namespace]
    deletes_first: bool
    files_deleted: int = 0
    _boundaries: dict[str, int] = field(default_factory=dict)

    def collect(self, prefix: str) -> None:
        """Do both steps of each namespace, in its order."""
        for namespace in self.namespaces:
            listed = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=namespace.folder).get("Contents", ())
            keys = sorted(each["Key"] for each in listed)[:-1]
            steps = [self._advance, self._delete]
            for step in reversed(steps) if self.deletes_first else steps:
                step(namespace, keys)

    def settle(self) -> None:
        """Nothing is left to be done."""

    def kill_reaper(self) -> None:
        """There is none."""

    def start_reaper(self) -> None:
        """There is none."""

    def _advance(self, namespace: Namespace, keys: list[str]) -> None:
        ids = [id for key in keys if (id := namespace.id_of(key)) is not None]
        body = boundary_text(max(ids, default=0))
        self.s3.put_object(Bucket=self.bucket, Key=namespace.boundary_key, Body=body)

    def _delete(self, namespace: Namespace, keys: list[str]) -> None:
        if keys:
            batch = {"Objects": [{"Key": key} for key in keys]}
            self.files_deleted += len(self.s3.delete_objects(Bucket=self.bucket, Delete=batch)["Deleted"])
