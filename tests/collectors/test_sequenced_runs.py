"""The collector `sequenced` on Kafka, an issuer and a recording store: whom it asks, and what it asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.collecting import Collecting
from tests.support.s3_recorder import Recorded, S3Recorder

from sexton.schemas import events
from sexton.schemas.errors import UsageError
from sexton.schemas.sequenced import Namespace
from sexton.streaming_jobs.collectors.report import Report, ReportState
from sexton.streaming_jobs.collectors.room import Sources
from sexton.streaming_jobs.collectors.sequenced.checkpoints import CheckpointsUnreadable
from sexton.streaming_jobs.collectors.sequenced.files import Files
from sexton.streaming_jobs.collectors.sequenced.room import ROOM, Sequenced

pytestmark = pytest.mark.real
DB = Namespace("data/db", "manifest")
OLD_S = 48 * 3600.0
Sequencing = tuple[Collecting, S3Recorder]


@pytest.fixture
def sequencing(recorded: Sequencing) -> Sequencing:
    """The collector on a recording store, with the operator's word that there are no checkpoints."""
    recorded[0].room = ROOM.configured({"checkpoints": "none"})
    return recorded


def fill(at: Sequencing, namespace: Namespace, ids: Sequence[int], *, age_s: float = OLD_S) -> None:
    """Write files of a namespace, as if so long ago."""
    collecting, s3 = at
    s3.buckets.fill(collecting.bucket, {namespace.key(id): b"state" for id in ids}, age_s=age_s)


def set_boundary(at: Sequencing, namespace: Namespace, body: bytes) -> None:
    """Write a boundary."""
    collecting, s3 = at
    s3.buckets.fill(collecting.bucket, {namespace.boundary_key: body})


def saying(folder: Path, **databases: Any) -> Path:
    """A file that says what checkpoints hold in databases below `data/`."""
    path = folder / "checkpoints.json"
    said = {f"data/{name}": held for name, held in databases.items()}
    path.write_text(json.dumps({"version": 1, "databases": said}))
    return path


def asked(report: Report) -> dict[str, list[list[int | None]]]:
    """The ids of the intents that a report asks with, by namespace."""
    found: dict[str, list[list[int | None]]] = {}
    for intent in report.intents:
        assert isinstance(intent.action, events.DeleteObjects)
        root, _, name = intent.tenant.rpartition("/")
        (phase,) = intent.action.phases
        found.setdefault(intent.tenant, []).append([Namespace(root, name).id_of(key) for key in phase])
    return found


def problems(report: Report) -> list[tuple[str, str]]:
    """Cause and namespace of what can only be reported."""
    return sorted((each.cause, each.tenant) for each in report.findings if each.intent is None)


@contextmanager
def requests(s3: S3Recorder) -> Iterator[list[Recorded]]:
    """The requests that are made meanwhile."""
    before, made = len(s3.requests), list[Recorded]()
    yield made
    made += s3.requests[before:]


def test_old_files_are_asked_for_under_the_boundary(sequencing: Sequencing) -> None:
    """Guard, floor, expiry and keys; young files, the newest and the engine's data are kept."""
    collecting, s3 = sequencing
    fill(sequencing, DB, (1, 2, 3, 4))
    fill(sequencing, DB, (5, 6), age_s=3600)
    s3.buckets.fill(collecting.bucket, {"data/db/compacted/01.sst": b"data"}, age_s=OLD_S)
    set_boundary(sequencing, DB, b"2\n")

    first = collecting.run()
    assert (first.state, first.reason) == (ReportState.REPORTED, "not-asked-to")
    assert collecting.emitted() == []
    report = collecting.run(emit=True)

    (intent,) = collecting.emitted()
    assert intent.action == events.DeleteObjects(collecting.bucket, [[DB.key(id) for id in (1, 2, 3, 4)]])
    assert list(intent.guards) == [events.BoundaryGuard(DB.text, 4, floor=2)]
    assert report.listed_at is not None
    assert list(intent.vetoes) == [events.ExpiresAt(report.listed_at + timedelta(hours=24))]
    assert (report.objects, report.garbage_objects, report.garbage_bytes) == (8, 4, 20)
    (finding,) = report.findings
    assert finding.place == f"s3://{collecting.bucket}/data/db/manifest/"
    assert "kept: newest 6, 1 young, 0 of checkpoints, 0 of unknown names" in finding.detail


def test_g_6_two_runs_ask_once(sequencing: Sequencing) -> None:
    """G-6: the same garbage is pending for the second run, also under a boundary that has risen meanwhile."""
    collecting, _ = sequencing
    fill(sequencing, DB, (1, 2, 3))
    collecting.run(emit=True)
    set_boundary(sequencing, DB, b"1")
    second = collecting.run(emit=True)
    assert [each.state.value for each in second.findings] == ["pending"]
    assert len(collecting.emitted()) == 1


def test_b_5_a_checkpoint_that_is_made_while_files_are_listed_counts(
    sequencing: Sequencing, tmp_path: Path
) -> None:
    """B-5: what is held is asked after the listing; a file that was collectable before it is kept."""
    collecting, _ = sequencing
    fill(sequencing, DB, (1, 2, 3, 4))
    path = saying(tmp_path, db=[])

    class Meanwhile(Sequenced):
        """A listing during which a checkpoint is made."""

        def sift(self, parts: Sequence[Files], sources: Sources) -> list[Files]:
            """Keep all; the files are listed by now."""
            saying(tmp_path, db=[{"id": 2, "name": "manifest"}])
            return super().sift(parts, sources)

    collecting.room = Meanwhile({"checkpoints": str(path)})
    assert asked(collecting.run()) == {DB.text: [[1, 3]]}


def test_b_5_a_file_is_read_at_every_run_and_never_guessed_at(sequencing: Sequencing, tmp_path: Path) -> None:
    """B-5: a database that it does not have is unknown; one that cannot be read fails the run."""
    collecting, _ = sequencing
    other = Namespace("data/other", "manifest")
    path = saying(tmp_path, db=[{"id": 1}])
    collecting.room = ROOM.configured({"checkpoints": str(path)})
    for each in (DB, other):
        fill(sequencing, each, (1, 2, 3))

    report = collecting.run()
    assert asked(report) == {DB.text: [[2]]}
    assert problems(report) == [("database-unknown", other.text)]

    saying(tmp_path, db=[], other=[{"id": 2, "name": "compactions"}])
    assert asked(collecting.run()) == {DB.text: [[1, 2]], other.text: [[1, 2]]}

    path.write_text('{"version": 1, "databases": {"data/db": {}')
    with pytest.raises(CheckpointsUnreadable, match=r"checkpoints\.json"):
        collecting.run(emit=True)
    path.unlink()
    with pytest.raises(UsageError, match="no such file"):
        collecting.run(emit=True)
    assert collecting.emitted() == []


def test_many_databases_cost_one_read_each(sequencing: Sequencing) -> None:
    """One listing for all; a read of the boundary where something may be garbage, and nowhere else."""
    collecting, s3 = sequencing
    for number in range(30):
        fill(sequencing, Namespace(f"data/{number:03}", "manifest"), range(1, 101))
        fill(sequencing, Namespace(f"data/{number:03}", "compactions"), (1,))
    fill(sequencing, Namespace("data/young", "manifest"), range(1, 101), age_s=0)

    with requests(s3) as made:
        report = collecting.run()

    assert len(report.intents) == 30
    assert (report.objects, report.garbage_objects) == (30 * 101 + 100, 30 * 99)
    lists = [each for each in made if "list-type" in each.query]
    assert len(lists) == -(-report.objects // 1000)
    reads = [each.key for each in made if each not in lists]
    assert sorted(reads) == [f"data/{number:03}/gc/manifest.boundary" for number in range(30)]
    assert {each.method for each in made} == {"GET"}


def test_a_listing_of_other_options_is_begun_anew(sequencing: Sequencing) -> None:
    """What was kept of a run is believed for the same options alone: they decide what its parts are."""
    collecting, _ = sequencing
    fill(sequencing, Namespace("data/db", "journal"), (1, 2, 3))
    with collecting.driver() as one:
        kept = one._resume
    collecting.room = ROOM.configured({"checkpoints": "none", "names": "journal"})
    with collecting.driver() as other:
        assert other._resume._binding != kept._binding
    assert asked(collecting.run()) == {"data/db/journal": [[1, 2]]}
