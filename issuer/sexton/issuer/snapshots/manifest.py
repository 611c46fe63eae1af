"""The manifest of a snapshot: what its chunks must be, and a digest of what it says itself."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime

from sexton.issuer.snapshots.format import SNAPSHOT_FORMAT
from sexton.issuer.state.state import State
from sexton.schemas.events import SnapshotManifest
from sexton.schemas.forms import to_json

__all__ = ["digest_of", "manifest_of"]

_FIELDS = list(SnapshotManifest.__dataclass_fields__)
_DIGESTED = _FIELDS[: _FIELDS.index("digest")]


def manifest_of(
    state: State, snapshot_id: str, seal: bytes, sizes: list[int], checksum: bytes
) -> SnapshotManifest:
    """Return the manifest of a state whose chunks have these sizes and this checksum."""
    assert state.genesis is not None
    made = SnapshotManifest(
        snapshot_id=snapshot_id,
        format=SNAPSHOT_FORMAT,
        genesis=state.genesis,
        log_offset=state.log_offset,
        seal=seal,
        high=list(state.high),
        floor=list(state.cuts.floor),
        request_mark=state.requests.mark,
        tenants=len(state),
        nodes=sum(1 for _ in state.nodes()),
        requests=len(state.requests),
        sizes=sizes,
        checksum=checksum,
        written_at=datetime.now(UTC),
    )
    return replace(made, digest=digest_of(made))


def digest_of(manifest: SnapshotManifest) -> str:
    """Return what the digest of a manifest must be: of the fields before it, whichever versions add later."""
    message = to_json(manifest)
    row = [message[name] for name in _DIGESTED]
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()
