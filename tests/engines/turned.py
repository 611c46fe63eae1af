"""A collector that deletes before it raises the boundary: proof that a round notices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.engines.gate import Gate

from sexton.schemas.sequenced import Namespace, boundary_text

__all__ = ["Turned"]


@dataclass
class Turned:
    """Collects all but the newest file of some namespaces in the wrong order.

    `s3` is a client that reaches the store through the gate.
    """

    s3: Any
    bucket: str
    gate: Gate
    namespaces: list[Namespace]
    files_deleted: int = 0

    def collect(self, prefix: str) -> None:
        """Delete, then raise."""
        for namespace in self.namespaces:
            listed = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=namespace.folder).get("Contents", ())
            *keys, _ = sorted(each["Key"] for each in listed)
            batch = {"Objects": [{"Key": key} for key in keys]}
            self.files_deleted += len(self.s3.delete_objects(Bucket=self.bucket, Delete=batch)["Deleted"])
            ids = [id for key in keys if (id := namespace.id_of(key)) is not None]
            body = boundary_text(max(ids))
            self.s3.put_object(Bucket=self.bucket, Key=namespace.boundary_key, Body=body)

    def settle(self) -> None:
        """Nothing is left to be done."""

    def kill_reaper(self) -> None:
        """There is none."""

    def start_reaper(self) -> None:
        """There is none."""
