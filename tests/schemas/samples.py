"""One event of each kind with every field in use; the golden bytes are made from these."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from sexton.schemas import events
from sexton.schemas.codec import schema_of

__all__ = ["GOLDEN", "INTENT", "OLDER", "SAMPLES", "golden"]

GOLDEN = Path(__file__).parent / "golden"
_NOW = datetime(2026, 3, 1, 12, 30, 15, 250_001, UTC)
_POSITION = events.Position("Kx3t0n2QTmSg1vJm0aYl1w", 5, 1_234_567_890_123)
_ENDS = events.PartitionOffsets("Kx3t0n2QTmSg1vJm0aYl1w", [0, 17, 2**40])

_OBJECTS = events.DeleteObjects(
    "bucket", [["meta.json"], ["a-00000008", "é-ffffffff"]], events.DeleteMode.ERASE_ALL_VERSIONS, True
)
_UNDER = events.DeletePrefix("bucket", "tenants/42/", events.DeleteMode.HIDE, False, "tenants/42/tombstone")
V2_INTENT = events.DeletionIntent(
    intent_id="6f1c9a52-7f0e-4c39-9d0b-0f4a1be3a1aa",
    tenant="tenant-42 ☃",
    emitted_at=_NOW,
    emitter="node-7",
    guards=[
        events.GenerationGuard("tenant-42 ☃", 0xFFFF_FFFF),
        events.GenerationGuard("tenant-42 ☃", 0xFF_FFFF, "node-7", 0xFF_FFFF),
        events.TransactionGuard("tenant-42 ☃", 77, events.TransactionState.REJECTED),
        events.NotBeforeGuard(_NOW),
        events.BoundaryGuard("wal", 2**63 - 1),
        events.UnchangedGuard([events.KeyCondition("a", "etag", None), events.KeyCondition("é", None, "v1")]),
        events.PromiseGuard("drop-tenant-42"),
    ],
    action=_OBJECTS,
)

INTENT = replace(
    V2_INTENT,
    guards=[
        events.BoundaryGuard("wal", 2**63 - 1, 2**40) if isinstance(guard, events.BoundaryGuard) else guard
        for guard in V2_INTENT.guards
    ],
    action=replace(_OBJECTS, pause_s=900),
    vetoes=[
        events.ExpiresAt(_NOW),
        events.OnlyWhileExists("replacement/é", [0]),
        events.UnlessWhole("meta.json", [0, 1]),
    ],
)

_V2_PREFIX = events.DeletionIntent(
    "id-2",
    "t",
    _NOW,
    "n",
    [events.PromiseGuard("op")],
    _UNDER,
)
_PREFIX = replace(_V2_PREFIX, action=replace(_UNDER, suffix=".23", written_before=_NOW))
_REPLAY_OF = events.ReplayOf("sexton.intents", _POSITION.topic_id, 5, 2**40, "id-0 ☃")

OUTCOME = events.Outcome(
    intent_id="6f1c9a52-7f0e-4c39-9d0b-0f4a1be3a1aa",
    tenant="t",
    bucket="bucket",
    outcome=events.OutcomeKind.DEAD_LETTERED,
    keys=3,
    counts={"deleted": 2, "dead-lettered": 1},
    exceptions=[events.KeyOutcome("a", events.OutcomeKind.DEAD_LETTERED, "AccessDenied")],
    verdict=events.Verdict(events.VerdictResult.PASS, "in-window", "[3, 9)", 4_711),
    position=_POSITION,
    store_request_ids=["4442587FB7D0A2F9"],
    settled_at=_NOW,
    effects={"hidden": 1, "absent": 1},
)

MANIFEST = events.SnapshotManifest(
    snapshot_id="00000001099511627776-0123456789ab",
    format=1,
    genesis=events.Genesis(1, "MkU3OEVBNTcwNTJENDM2Qg", "generations-id", "intents-id", _NOW),
    log_offset=2**40,
    seal=b"\x00" * 31 + b"\xff",
    high=[0, 17, 2**40],
    floor=[0, 3],
    request_mark=-1,
    tenants=2,
    nodes=1,
    requests=1,
    sizes=[200, 164],
    checksum=b"\xff" * 32,
    written_at=_NOW,
    digest="01" * 32,
)

_V3_DEFERRED = events.DeferredIntent(
    _POSITION,
    _NOW,
    "not-yet",
    "not_before",
    3,
    _NOW,
    b"tenant",
    b"\xc3\x01raw",
    waiting_since=_NOW,
    effect_unknown=True,
    gone=2**40,
    after="tenants/é",
    keys=events.KeyProgress(
        [
            events.DoneKeys(events.OutcomeKind.DELETED, "hidden", [0, 3, 70_000, 70_001]),
            events.DoneKeys(events.OutcomeKind.ABSENT, "absent", [3, 4]),
        ],
        [4, 6],
        _NOW,
        ["4442587FB7D0A2F9"],
    ),
)
_V4_DEFERRED = replace(_V3_DEFERRED, resumes_at=_NOW, written_before=_NOW)
DEFERRED = replace(_V4_DEFERRED, passed_as_of=2**40)
_V1_DEAD_LETTER = events.DeadLetter(
    topic="sexton.intents",
    position=_POSITION,
    written_at=_NOW,
    reason="malformed",
    detail="not a DeletionIntent",
    intent_id=None,
    tenant="t",
    bucket=None,
    keys=["a", "b"],
    raw_key=b"t",
    raw_value=b"\x00\xff",
    dead_at=_NOW,
)

SAMPLES: dict[str, events.Event] = {
    "deletion_intent": INTENT,
    "deletion_intent_prefix": _PREFIX,
    "deletion_intent_horizon": events.DeletionIntent(
        "id-3", "t", _NOW, "n", [events.GenerationGuard("t", 1)], events.AdvanceHorizon("timeline", 2**62)
    ),
    "deletion_intent_replay": replace(INTENT, replay_of=_REPLAY_OF),
    "deferred_intent": DEFERRED,
    "outcome": OUTCOME,
    "dead_letter": replace(_V1_DEAD_LETTER, passed_as_of=4_711),
    "genesis": events.Genesis(1, "MkU3OEVBNTcwNTJENDM2Qg", "generations-id", "intents-id", _NOW),
    "issued": events.Issued(
        request_id="r-1",
        caller="host/1/abc",
        operation=events.IssueOperation.RE_ATTACH,
        node="node-7",
        part=0,
        parts=2,
        grants=[events.Grant("x", 4, 3), events.Grant("y", 1, None)],
        ends=_ENDS,
        issued_at=_NOW,
    ),
    "barrier": events.Barrier(
        "r-2", _ENDS, events.PartitionOffsets("Kx3t0n2QTmSg1vJm0aYl1w", [0, 3, 9]), _NOW
    ),
    "detached": events.Detached("r-3", "host/1/abc", "node-7", "x", 4, _NOW),
    "dropped": events.Dropped("r-4", "host/1/abc", "x", _NOW),
    "issued_first_form": events.IssuedFirstForm(
        request_id="r-5",
        caller="host/1/abc",
        operation=events.IssueOperation.ATTACH,
        node="node-7",
        node_generation=0xFF_FFFF,
        part=1,
        parts=2,
        grants=[events.Grant("x", 0xFF_FFFF, 0xFF_FFFE), events.Grant("y", 1, None)],
        ends=_ENDS,
        issued_at=_NOW,
    ),
    "node_registered": events.NodeRegistered(
        "r-6", "host/1/abc", "node-7", 0xFFFF, 0xFF_FFFF, 0xFF_FFFE, _ENDS, _NOW
    ),
    "fenced": events.Fenced("r-7", "host/1/abc", "x", 5, 4, _ENDS, _NOW),
    "imported": events.Imported(
        request_id="r-8",
        caller="host/1/abc",
        part=0,
        parts=1,
        tenants=[
            events.ImportedTenant("x", events.GenerationForm.FINAL, 0, None),
            events.ImportedTenant("y ☃", events.GenerationForm.FINAL, None, "node-8"),
            events.ImportedTenant("z", events.GenerationForm.FIRST, 0xFF_FFFF, "node-7"),
        ],
        nodes=[events.ImportedNode("node-7", 0xFFFF, 12)],
        ends=_ENDS,
        imported_at=_NOW,
    ),
    "snapshot_chunk": events.SnapshotChunk(
        number=1,
        texts=["node-7", "host/1/abc", "re_attach", "register"],
        high_counts=[0, 3],
        high_offsets=[0, 17, 2**40],
        issue_log_offsets=[3, 2**40],
        issue_nodes=[0, -1],
        issue_highs=[0, 1],
        tenant_names=["x", "y ☃"],
        tenant_flags=[3, 0],
        tenant_firsts=[0xFF_FFFE, 1],
        tenant_imported=[3, -1],
        tenant_counts=[2, 0],
        tenant_issues=[0, 1],
        node_names=["node-7"],
        node_numbers=[0xFFFF],
        node_firsts=[12],
        node_counts=[1],
        node_issues=[0],
        holder_names=["node-7"],
        holder_counts=[1],
        holder_tenants=[0],
        request_ids=["r-1"],
        request_callers=[1],
        request_operations=[2],
        request_nodes=[-1],
        request_parts=[2],
        request_weights=[2],
        request_event_counts=[1],
        request_event_parts=[0],
        request_event_offsets=[2**40],
        request_grant_counts=[2],
        request_grant_owners=[0, -1],
        request_grant_numbers=[0xFF_FFFF, 12],
        transactional_tenants=[1],
        transactional_newest=[24],
        transactional_committed=[-1],
        transactional_imported=[7],
        transactional_places=[1],
        transactional_changed=[2**40],
        transactional_counts=[2],
        transaction_numbers=[23, 24],
        transaction_statuses=[4, 1],
        transaction_bases=[-1, 22],
        transaction_starts=[0, 0],
        transaction_changed=[7, 2**40],
        transaction_untils=[-1, 1],
        transaction_closed=[1, -1],
        decommissioned=["node-9"],
    ),
    "transaction_started": events.TransactionStarted(
        "r-9", "host/1/abc", "node-7", "x ☃", 24, 23, 22, events.NumberPlace.LAST, _ENDS, _NOW
    ),
    "transaction_committed": events.TransactionCommitted(
        "r-10",
        "host/1/abc",
        "node-7",
        "x ☃",
        24,
        events.PartitionOffsets(_ENDS.topic_id, [0, 4]),
        _ENDS,
        _NOW,
    ),
    "transaction_acknowledged": events.TransactionAcknowledged(
        "r-11", "host/1/abc", None, "x ☃", 23, "host/1/abc", "the node burnt down", _NOW
    ),
    "node_decommissioned": events.NodeDecommissioned("r-12", "host/1/abc", "node-7", _NOW, _NOW),
    "transaction_collected": events.TransactionCollected("r-13", "host/1/abc", "x ☃", 23, _ENDS, _NOW),
    "transactions_imported": events.TransactionsImported(
        request_id="r-14",
        caller="host/1/abc",
        tenants=[
            events.ImportedTransactions("x", 24, 22, events.NumberPlace.FIRST),
            events.ImportedTransactions("y ☃", 0, None, events.NumberPlace.LAST),
        ],
        ends=_ENDS,
        imported_at=_NOW,
    ),
    "snapshot_manifest": MANIFEST,
}


_ADDED = [name for name in events.SnapshotChunk.__dataclass_fields__ if name.startswith("transaction")]
_EMPTY: dict[str, Any] = {name: [] for name in (*_ADDED, "decommissioned")}
_V1_CHUNK = replace(cast(events.SnapshotChunk, SAMPLES["snapshot_chunk"]), **_EMPTY)

# What the bytes of older versions say: the fields that later ones have added have their defaults.
OLDER: dict[tuple[str, int], events.Event] = {
    ("deletion_intent", 1): V2_INTENT,
    ("deletion_intent", 2): V2_INTENT,
    ("deletion_intent_prefix", 1): _V2_PREFIX,
    ("deletion_intent_prefix", 2): _V2_PREFIX,
    ("deletion_intent_horizon", 1): SAMPLES["deletion_intent_horizon"],
    ("deletion_intent_horizon", 2): SAMPLES["deletion_intent_horizon"],
    ("deletion_intent_replay", 2): replace(V2_INTENT, replay_of=_REPLAY_OF),
    ("deferred_intent", 1): events.DeferredIntent(
        _POSITION, _NOW, "not-yet", "not_before", 3, _NOW, b"tenant", b"\xc3\x01raw"
    ),
    ("deferred_intent", 2): replace(_V3_DEFERRED, keys=None),
    ("deferred_intent", 3): _V3_DEFERRED,
    ("deferred_intent", 4): _V4_DEFERRED,
    ("dead_letter", 1): _V1_DEAD_LETTER,
    ("outcome", 1): replace(OUTCOME, effects={}),
    ("snapshot_chunk", 1): _V1_CHUNK,
    ("snapshot_manifest", 1): replace(MANIFEST, digest=""),
}


def golden(name: str, version: int | None = None) -> bytes:
    """Return the bytes that a sample has had since the first release of a version, by default the newest."""
    version = schema_of(type(SAMPLES[name])).version if version is None else version
    return bytes.fromhex((GOLDEN / f"{name}.v{version}.hex").read_text(encoding="ascii"))
