"""P-4: a store that ignores version ids hides what should stay and erases nothing: found out, and refused."""

from __future__ import annotations

import pytest
from tests.support.execute_stage import execution
from tests.support.s3_recorder import Reply, S3Recorder, Traits
from tests.support.tried import executed

from sexton.schemas.events import DeleteMode, OutcomeKind
from sexton.schemas.guards import KeyCondition
from sexton.storage import Ability, BatchDeleter, Delete, Kind

WAYS = {
    "neither": ((), Ability.YES, Ability.YES),
    "batch": (("batch",), Ability.NO, Ability.YES),
    "single": (("single",), Ability.YES, Ability.NO),
    "both": (("batch", "single"), Ability.NO, Ability.NO),
}


def two_versions(s3: S3Recorder, ignored: tuple[str, ...], *, unsaid: bool = False) -> list[str]:
    """Make a bucket that ignores version ids in these ways; return the ids of two versions of `k`."""
    s3.buckets._buckets.clear()
    s3.buckets.traits = Traits(versions_ignored=frozenset(ignored), markers_unsaid=unsaid)
    s3.create_bucket("bucket", {"k": b"1"}, versioning="Enabled")
    s3.buckets.fill("bucket", {"k": b"2"})
    return [version.version_id for version in s3.versions("bucket", "k")]


@pytest.mark.parametrize("unsaid", [False, True], ids=["said", "unsaid"])
@pytest.mark.parametrize(("ignored", "batch", "single"), WAYS.values(), ids=WAYS)
def test_p_4_the_probe_finds_out_whether_versions_are_erased(
    ignored: tuple[str, ...],
    batch: Ability,
    single: Ability,
    unsaid: bool,
    s3: S3Recorder,
    deleter: BatchDeleter,
) -> None:
    """P-4: by an older version of an object of its own, which has to go, and the newest one to stay."""
    two_versions(s3, ignored, unsaid=unsaid)
    found = deleter.probe("bucket")

    assert (found.batch_erases, found.single_erases) == (batch, single)


@pytest.mark.parametrize("mode", [DeleteMode.ERASE_VERSION, DeleteMode.ERASE_ALL_VERSIONS])
@pytest.mark.parametrize("unsaid", [False, True], ids=["said", "unsaid"])
@pytest.mark.parametrize(("ignored", "batch", "single"), WAYS.values(), ids=WAYS)
def test_p_4_an_older_version_goes_or_nothing_is_touched(
    ignored: tuple[str, ...],
    batch: Ability,
    single: Ability,
    unsaid: bool,
    mode: DeleteMode,
    s3: S3Recorder,
    deleter: BatchDeleter,
) -> None:
    """P-4: what the reaper erases is gone, by the way that does it; else it is refused, nothing hidden."""
    older, newer = two_versions(s3, ignored, unsaid=unsaid)
    named = mode is DeleteMode.ERASE_VERSION
    conditions = {"k": KeyCondition("k", version_id=older)} if named else {}

    _, (result,) = executed(deleter, execution(["k"], bucket="bucket", mode=mode, conditions=conditions))

    left = [version.version_id for version in s3.versions("bucket", "k")]
    if Ability.YES in (batch, single):
        assert result.counts[OutcomeKind.DELETED] == 1
        assert left == ([newer] if named else [])
    else:
        assert result.counts[OutcomeKind.REFUSED] == 1
        assert left == [older, newer]
    assert result.held is None


@pytest.mark.parametrize("key", ["k", "k\x01"], ids=["batch", "single"])
def test_p_4_a_marker_in_place_of_an_erased_version_is_no_receipt(
    key: str, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """P-4: also where nobody has probed, a reply that tells of a new marker says that nothing was erased."""
    two_versions(s3, ("batch", "single"))
    s3.buckets.fill("bucket", {key: b"1"})
    version = s3.versions("bucket", key)[0].version_id

    state = deleter.delete_all("bucket", [Delete(key, version_id=version)]).result(20).state(0)

    assert (state.code, state.kind, state.effect_unknown) == ("MarkerInstead", Kind.FINAL, True)


def test_p_4_a_marker_that_is_named_as_one_alone_was_erased(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """P-4: SeaweedFS gives an erased marker's id as that of a marker; beside versions of the same key."""
    body = (
        "<DeleteResult><Deleted><Key>k</Key><DeleteMarker>true</DeleteMarker><DeleteMarkerVersionId>m"
        "</DeleteMarkerVersionId></Deleted><Deleted><Key>k</Key><VersionId>v</VersionId></Deleted></DeleteResult>"
    )
    s3.script(lambda request: Reply(200, body.encode()) if request.is_delete_objects else None)

    result = deleter.delete_all("bucket", [Delete("k", version_id="v"), Delete("k", version_id="m")]).result(
        20
    )

    assert (result.clean, result.erased_markers, dict(result.markers)) == (True, frozenset((1,)), {})
