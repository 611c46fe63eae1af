"""The folded state as bytes, and back."""

from __future__ import annotations

import io
import json
from array import array
from dataclasses import astuple, replace
from typing import Any, cast

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.logs import GENESIS, NOW, mixed_logs, timed

from sexton.issuer.snapshots import format as snapshot_format
from sexton.issuer.snapshots.format import BadSnapshot, Restorer, encode
from sexton.issuer.snapshots.manifest import manifest_of
from sexton.issuer.state.fold import apply
from sexton.issuer.state.state import State, Tenant
from sexton.schemas import events
from sexton.schemas.codec import Codec, Schema, schema_of
from sexton.schemas.forms import to_avro
from sexton.schemas.windows import Window

codec = Codec()


def fold(log: list[events.GenerationEvent]) -> State:
    """Fold a log."""
    state = State()
    for offset, event in enumerate(log):
        apply(state, offset, event)
    return state


def encoded(state: State) -> list[bytes]:
    """The chunks of a state as bytes."""
    return [codec.encode(chunk) for chunk in encode(state)]


def restored(state: State) -> State:
    """A state, written and read."""
    chunks = encoded(state)
    manifest = manifest_of(state, "id", b"", [len(chunk) for chunk in chunks], b"")
    restorer = Restorer()
    for chunk in chunks:
        restorer.add(codec.decode(chunk, events.SnapshotChunk))
    return restorer.finish(codec.decode(codec.encode(manifest), events.SnapshotManifest))


def told(tenant: Tenant) -> Any:
    """All that is known of a tenant's transactions."""
    owner = tenant.transactions
    if owner is None:
        return None
    rows = [[list(v) if isinstance(v, array) else v for v in astuple(each)] for each in owner]
    return (owner.place, owner.newest, owner.committed, owner.imported, owner.changed, rows)


def facts(state: State) -> Any:
    """Everything that a state answers from."""
    return (
        [(t.name, t.first, t.issues, t.holder, t.dropped, t.form, t.imported, told(t)) for t in state],
        list(state.decommissioned),
        [(n.name, n.first, n.issues, n.number, state.numbered(n.number)) for n in state.nodes()],
        [(node, state.held_by(node)) for node in ("n1", "n2", "n3")],
        list(state.requests),
        (state.genesis, state.next_offset, list(state.high), list(state.cuts.floor), state.requests.mark),
    )


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(mixed_logs(), st.data())
@pytest.mark.slow
def test_a_restored_state_is_the_folded_one(log: list[events.GenerationEvent], data: st.DataObject) -> None:
    """Written and read at any place of the log, a state is the same, and folds on to the same bytes."""
    cut = data.draw(st.integers(1, len(log)))
    whole, half = fold(log), fold(log[:cut])

    again = restored(half)
    assert facts(again) == facts(half)
    verdicts = [apply(again, offset, event) for offset, event in enumerate(log[cut:], cut)]

    assert verdicts == [apply(half, offset, event) for offset, event in enumerate(log[cut:], cut)]
    assert facts(again) == facts(whole)
    assert encoded(again) == encoded(whole)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(mixed_logs())
def test_rows_that_are_cut_in_pieces(log: list[events.GenerationEvent]) -> None:
    """A state in many small chunks, with rows that continue from one to the next, is read the same."""
    state = fold(log)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_format, "_CELLS", 3)
        patch.setattr(snapshot_format, "_SLICE", 1)
        again = restored(state)

    assert facts(again) == facts(state)


def test_forgetting_goes_on_where_it_was() -> None:
    """A reader from a snapshot forgets the same request ids at the same events as one of the whole log."""
    log: list[events.GenerationEvent] = [GENESIS]
    ends = events.PartitionOffsets("intents", [0])
    for number in range(12):
        row = events.ImportedTenant(f"t{number}", events.GenerationForm.FINAL, None, None)
        log.append(events.Imported(timed(number), "c", 0, 1, [row], [], ends, NOW))
    states = fold(log[:9]), restored(fold(log[:9]))
    for state in states:
        state.requests._limit = 5
        for offset, event in enumerate(log[9:], 9):
            apply(state, offset, event)

    assert len(states[0].requests) == 5
    assert encoded(states[0]) == encoded(states[1])
    assert states[0].requests.mark == states[1].requests.mark > 0


def test_windows_are_cut_after_a_restart_as_before() -> None:
    """What a later barrier settles is forgotten by a reader from a snapshot too, on from the same floor."""
    log: list[events.GenerationEvent] = [GENESIS]
    for number, end in ((1, 3), (2, 7), (3, 9)):
        ends = events.PartitionOffsets("intents", [end])
        grants = [events.Grant("t", number, number - 1 or None)]
        log.append(
            events.Issued(f"r{number}", "c", events.IssueOperation.ATTACH, "n", 0, 1, grants, ends, NOW)
        )
    first, last = events.PartitionOffsets("intents", [7]), events.PartitionOffsets("intents", [9])
    again = restored(fold([*log, events.Barrier("b", last, first, NOW)]))

    assert (list(again.cuts.floor), again.window("t", 2, 0)) == ([7], Window(7, 9))
    apply(again, 5, events.Barrier("c", last, last, NOW))
    assert [again.window("t", number, 0) for number in (1, 2, 3)] == [None, None, Window(9)]


def chunk_of(state: State) -> events.SnapshotChunk:
    """The single chunk of a small state."""
    (chunk,) = encode(state)
    return chunk


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        ("tenant_counts", [2]),
        ("tenant_issues", [9]),
        ("tenant_firsts", []),
        ("issue_highs", [7]),
        ("issue_nodes", [70]),
        ("holder_tenants", []),
        ("request_grant_owners", [50]),
        ("request_event_parts", []),
        ("high_counts", [-1]),
    ],
)
def test_columns_that_do_not_fit(column: str, cells: list[int]) -> None:
    """A chunk whose columns contradict each other is a bad snapshot, not another state."""
    grants = [events.Grant("t", 1, None)]
    ends = events.PartitionOffsets("intents", [3])
    attach = events.IssueOperation.ATTACH
    state = fold([GENESIS, events.Issued("r", "c", attach, "n", 0, 1, grants, ends, NOW)])

    with pytest.raises(BadSnapshot, match="does not fit"):
        Restorer().add(replace(chunk_of(state), **cast(Any, {column: cells})))


def test_other_numbers_than_the_manifest_says() -> None:
    """A state with another number of tenants than its manifest is a bad snapshot."""
    state = fold([GENESIS])
    manifest = replace(manifest_of(state, "id", b"", [], b""), tenants=1)

    with pytest.raises(BadSnapshot, match="other numbers"):
        Restorer().finish(manifest)


@pytest.mark.parametrize("cls", [events.SnapshotChunk, events.SnapshotManifest])
def test_f_3_a_later_version_with_one_more_column(cls: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """F-3: a snapshot of a writer with one more column is read by this version, without that column."""
    from sexton.schemas import codec as codecs

    raw = json.loads(schema_of(cls).text)
    raw["version"] = 2
    raw["fields"].insert(
        2, {"name": "tenant_colours", "type": {"type": "array", "items": "long"}, "default": []}
    )
    later = Schema.parse(json.dumps(raw))
    monkeypatch.setattr(codecs, "_BY_HEADER", {**codecs._BY_HEADER, later.header: later})
    state = fold([GENESIS])
    record = chunk_of(state) if cls is events.SnapshotChunk else manifest_of(state, "id", b"", [], b"")
    out = io.BytesIO(later.header)
    out.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(out, later.parsed, {**to_avro(record), "tenant_colours": [1, 2]})

    assert codec.decode(out.getvalue(), cls) == record
