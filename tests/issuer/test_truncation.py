"""The log is cut off below verified snapshots, and only there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.issuing import Serve, attach
from tests.support.snapshots import (
    Place,
    flipped_bit,
    put,
    truncated,
)

from sexton.deploy.local import Installation
from sexton.issuer.cli.maintenance import rebuild_projection
from sexton.issuer.deadline import Deadline
from sexton.issuer.log import truncation
from sexton.issuer.log.genesis import write_genesis
from sexton.issuer.snapshots.format import BadSnapshot
from sexton.issuer.snapshots.keeper import take_snapshot
from sexton.issuer.snapshots.store import Snapshot
from sexton.schemas.errors import SextonError

pytestmark = pytest.mark.real


class TestTruncate:
    def test_plan_deletes_nothing(self, filled: tuple[Place, list[Snapshot]], soon: Deadline) -> None:
        """Without --execute the log stays; the cut lies below the older of the two that are kept."""
        place, (first, second) = filled

        plan = truncation.plan(place.settings, soon)

        assert (plan.start, plan.until) == (0, first.log_offset)
        assert plan.snapshots == (second.found.snapshot_id, first.found.snapshot_id)
        assert place.facts().start == 0

    def test_the_truncated_log_is_served(
        self, filled: tuple[Place, list[Snapshot]], serve: Serve, soon: Deadline
    ) -> None:
        """After the cut everything that reads the log starts from a snapshot, on either of the two."""
        place, (first, second) = filled
        plan = truncation.plan(place.settings, soon)

        assert truncation.execute(place.settings, plan, soon) == first.log_offset
        assert place.start_offset() == second.log_offset
        assert attach(serve(place.settings), "n", "a") == 3
        flipped_bit(place.settings, second)
        assert place.start_offset() == first.log_offset
        assert attach(serve(place.settings), "n", "a") == 4
        assert write_genesis(place.settings) == first.manifest.genesis
        assert rebuild_projection(place.settings) == 4

    def test_again_after_later_snapshots(
        self, filled: tuple[Place, list[Snapshot]], serve: Serve, soon: Deadline
    ) -> None:
        """A log that was truncated can be truncated again, proven from the older snapshot on."""
        place, (_, second) = filled
        truncation.execute(place.settings, truncation.plan(place.settings, soon), soon)
        attach(serve(place.settings), "n", "d")
        take_snapshot(place.settings, 30)

        plan = truncation.plan(place.settings, soon)

        assert plan.until == second.log_offset
        assert truncation.execute(place.settings, plan, soon) == second.log_offset

    def test_refused_without_a_snapshot(self, fresh: Installation, soon: Deadline) -> None:
        """Nothing is deleted below nothing."""
        with pytest.raises(SextonError, match="no verified snapshot"):
            truncation.plan(fresh.settings, soon)

    def test_refused_with_broken_ones(self, filled: tuple[Place, list[Snapshot]], soon: Deadline) -> None:
        """Broken snapshots do not count."""
        place, taken = filled
        for snapshot in taken:
            flipped_bit(place.settings, snapshot)

        with pytest.raises(SextonError, match="no verified snapshot: snapshot"):
            truncation.plan(place.settings, soon)

    def test_refused_when_the_log_says_otherwise(
        self, filled: tuple[Place, list[Snapshot]], soon: Deadline
    ) -> None:
        """A snapshot that is whole but not what the log says is no proof, of a whole log or a cut one."""
        place, (first, second) = filled
        state = place.snapshots.load(second, soon)
        tenant = state.tenant("a")
        assert tenant is not None
        tenant.dropped = True
        put(place.settings, f"{second.found.snapshot_id}/manifest", None)
        place.snapshots.take(state, soon)

        with pytest.raises(BadSnapshot, match="not what the log says"):
            truncation.plan(place.settings, soon)
        truncated(place.settings, first.log_offset)
        with pytest.raises(BadSnapshot, match="not what the log says"):
            truncation.plan(place.settings, soon)


def test_the_commands(filled: tuple[Place, list[Snapshot]], cli: Any) -> None:
    """`snapshot` writes one, `truncate` prints its plan, `truncate --execute` deletes."""
    place, (_, second) = filled
    env = place.settings.environment()
    taken = json.loads(cli("issuer", "snapshot", "--format", "json", env=env).stdout)
    planned = cli("issuer", "truncate", env=env)
    done = json.loads(cli("issuer", "truncate", "--execute", "--format", "json", env=env).stdout)

    assert taken["log_offset"] == place.facts().end - 1
    assert f"records below {second.log_offset}" in planned.stdout
    assert "--execute" in planned.stderr
    assert (done["executed"], done["start"]) == (True, second.log_offset)
    assert place.facts().start == second.log_offset
