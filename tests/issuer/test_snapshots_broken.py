"""Snapshots that are broken, cut off, or say that the log was set back: used is only what is whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.issuing import Serve, attach
from tests.support.snapshots import (
    DAMAGES,
    Damage,
    Place,
    codec,
    flipped_bit,
    manifest,
    mended,
    put,
    truncated,
)

from sexton.deploy.local import Installation
from sexton.issuer.cli.maintenance import rebuild_projection
from sexton.issuer.deadline import Deadline
from sexton.issuer.log.genesis import write_genesis
from sexton.issuer.service import Service
from sexton.issuer.snapshots.keeper import take_snapshot
from sexton.issuer.snapshots.manifest import manifest_of
from sexton.issuer.snapshots.store import Snapshot
from sexton.issuer.state.fold import State, apply
from sexton.schemas.errors import LogBroken
from sexton.schemas.events import Genesis
from sexton.schemas.settings import Settings

pytestmark = pytest.mark.real


@pytest.mark.slow
def test_a_broken_snapshot_falls_back(
    filled: tuple[Place, list[Snapshot]], serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """A broken snapshot is reported of and the older one is used; with that broken too, the whole log."""
    place, (first, second) = filled
    for damage, why in DAMAGES:
        with mended(place.settings, first, second):
            caplog.clear()
            damage(place.settings, second)
            assert place.start_offset() == first.log_offset, why
            damage(place.settings, first)
            assert place.start_offset() == -1, why
            assert any(re.search(why, record.getMessage()) for record in caplog.records), why
        assert place.start_offset() == second.log_offset

    for snapshot in (first, second):
        flipped_bit(place.settings, snapshot)
    assert attach(serve(place.settings), "n", "a") == 3


@pytest.mark.slow
def test_a_truncated_log_without_a_good_snapshot_is_not_served(
    filled: tuple[Place, list[Snapshot]], serve: Serve
) -> None:
    """What neither the log nor a snapshot holds any more is not guessed: nothing starts, and says why."""
    place, taken = filled
    truncated(place.settings, taken[0].log_offset)
    for damage, why in DAMAGES:
        with mended(place.settings, *taken):
            for snapshot in taken:
                damage(place.settings, snapshot)

            with pytest.raises(LogBroken, match=why) as refused:
                serve(place.settings)

            assert "no snapshot is good" in str(refused.value)
            assert "restore" in str(refused.value.hint)
            with pytest.raises(LogBroken):
                rebuild_projection(place.settings)
    assert attach(serve(place.settings), "n", "a") == 3


def test_a_server_that_finds_no_good_snapshot_ends(
    fresh: Installation, filled: tuple[Place, list[Snapshot]], cli: Callable[..., Any]
) -> None:
    """What is found broken only while it loads ends the server too, with the reason."""
    place, taken = filled
    truncated(place.settings, taken[0].log_offset)
    for snapshot in taken:
        flipped_bit(place.settings, snapshot)

    done = cli("issuer", "serve", "--port", "0", env=fresh.env)

    assert done.returncode == 1
    assert "no snapshot is good" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_log_truncated_above_every_snapshot_is_not_served(filled: tuple[Place, list[Snapshot]]) -> None:
    """A hole between a snapshot and the log's first record is no state."""
    place, (_, second) = filled
    truncated(place.settings, second.log_offset + 1)

    with pytest.raises(LogBroken, match="is cut off"):
        Service(place.settings)


def ahead(settings: Settings, snapshot: Snapshot) -> None:
    """A snapshot stands for events that the log does not have."""
    name = f"{10**6:020d}-{snapshot.found.snapshot_id[-12:]}"
    manifest(settings, snapshot, snapshot_id=name, log_offset=10**6)


def contradicted(settings: Settings, snapshot: Snapshot) -> None:
    """The log has another record at a snapshot's place: it was lost and written anew."""
    manifest(settings, snapshot, seal=b"x" * 32)


@pytest.mark.parametrize(
    ("proof", "why"), [(ahead, "ends at offset 8"), (contradicted, "another record at offset 6")]
)
def test_a_log_that_was_set_back_is_not_served(
    filled: tuple[Place, list[Snapshot]], proof: Damage, why: str
) -> None:
    """The log contradicts a snapshot of its own: nothing starts, older snapshots are no way out."""
    place, (_, second) = filled
    proof(place.settings, second)

    refused: list[Callable[[], object]] = [
        lambda: Service(place.settings),
        lambda: take_snapshot(place.settings, 30),
        lambda: rebuild_projection(place.settings),
    ]
    for start in refused:
        with pytest.raises(LogBroken, match=f"was set back.*{why}") as broken:
            start()
        assert "restore the log" in str(broken.value.hint)


def test_a_snapshot_newer_than_the_end_that_was_read(filled: tuple[Place, list[Snapshot]]) -> None:
    """Another issuer's snapshot may be newer than one's reading of the log's end: the end is read again."""
    place, (_, second) = filled
    early = replace(place.facts(), end=second.log_offset)

    assert place.snapshots.start(early, Deadline.after(20)).log_offset == second.log_offset


def test_an_emptied_log_is_not_started_again(bare: Installation) -> None:
    """A log that lost everything, and of which a snapshot tells, gets no second Genesis."""
    place = Place(bare.settings)
    facts = place.facts()
    genesis = Genesis(
        1, facts.cluster_id, facts.generations_topic_id, facts.intents_topic_id, datetime.now(UTC)
    )
    state = State()
    apply(state, 0, genesis)
    made = manifest_of(state, f"{0:020d}-{'a' * 12}", b"x" * 32, [], b"")
    put(bare.settings, f"{made.snapshot_id}/manifest", codec.encode(made))

    with pytest.raises(LogBroken, match="was set back"):
        write_genesis(bare.settings)


def test_a_running_reader_below_the_cut_stops(filled: tuple[Place, list[Snapshot]]) -> None:
    """A reader that had not come as far as the cut does not skip what is gone."""
    place, (_, second) = filled
    truncated(place.settings, second.log_offset)
    from sexton.issuer.log.reader import LogReader

    reader = LogReader(place.settings)
    reader.start(Deadline.after(15))
    with pytest.raises(LogBroken, match="truncated or re-created"):
        reader.wait_for(0, Deadline.after(15))
    reader.stop()
