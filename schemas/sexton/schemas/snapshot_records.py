"""Records of `generations.snapshots`: the folded state in chunks of columns, and a manifest written last.

Columns instead of rows: a million tenants are read in the time of their names and numbers, not of a million
records. A row that is too long for one chunk continues in the next under the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sexton.schemas.log_events import Genesis

__all__ = ["SnapshotChunk", "SnapshotManifest"]


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """Rows of a folded state; columns that start alike have one entry for each row, or as the counts say.

    Numbers of highs, issues and tenants run through all chunks of a snapshot. `texts` is of this chunk alone;
    -1 where a text or a number may be absent.
    """

    number: int
    texts: Sequence[str]
    high_counts: Sequence[int]
    high_offsets: Sequence[int]
    issue_log_offsets: Sequence[int]
    issue_nodes: Sequence[int]
    issue_highs: Sequence[int]
    tenant_names: Sequence[str]
    tenant_flags: Sequence[int]
    tenant_firsts: Sequence[int]
    tenant_imported: Sequence[int]
    tenant_counts: Sequence[int]
    tenant_issues: Sequence[int]
    node_names: Sequence[str]
    node_numbers: Sequence[int]
    node_firsts: Sequence[int]
    node_counts: Sequence[int]
    node_issues: Sequence[int]
    holder_names: Sequence[str]
    holder_counts: Sequence[int]
    holder_tenants: Sequence[int]
    request_ids: Sequence[str]
    request_callers: Sequence[int]
    request_operations: Sequence[int]
    request_nodes: Sequence[int]
    request_parts: Sequence[int]
    request_weights: Sequence[int]
    request_event_counts: Sequence[int]
    request_event_parts: Sequence[int]
    request_event_offsets: Sequence[int]
    request_grant_counts: Sequence[int]
    request_grant_owners: Sequence[int]
    request_grant_numbers: Sequence[int]
    transactional_tenants: Sequence[int] = field(default_factory=list)
    transactional_newest: Sequence[int] = field(default_factory=list)
    transactional_committed: Sequence[int] = field(default_factory=list)
    transactional_imported: Sequence[int] = field(default_factory=list)
    transactional_places: Sequence[int] = field(default_factory=list)
    transactional_changed: Sequence[int] = field(default_factory=list)
    transactional_counts: Sequence[int] = field(default_factory=list)
    transaction_numbers: Sequence[int] = field(default_factory=list)
    transaction_statuses: Sequence[int] = field(default_factory=list)
    transaction_bases: Sequence[int] = field(default_factory=list)
    transaction_starts: Sequence[int] = field(default_factory=list)
    transaction_changed: Sequence[int] = field(default_factory=list)
    transaction_untils: Sequence[int] = field(default_factory=list)
    transaction_closed: Sequence[int] = field(default_factory=list)
    decommissioned: Sequence[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SnapshotManifest:
    """What a snapshot stands for, and what its chunks must be: without it they are nothing.

    `seal` is the SHA-256 of the log's record at `log_offset`, `checksum` that of all chunks in order,
    `digest` that of the manifest's own fields before it.
    """

    snapshot_id: str
    format: int
    genesis: Genesis
    log_offset: int
    seal: bytes
    high: Sequence[int]
    floor: Sequence[int]
    request_mark: int
    tenants: int
    nodes: int
    requests: int
    sizes: Sequence[int]
    checksum: bytes
    written_at: datetime
    digest: str = ""
