"""Prefix deletes on moto, whose listings and versions are not ours."""

from __future__ import annotations

import os
from typing import Any

from tests.support.prefixes import ERASE, work, work_off

from sexton.schemas.events import DeletePrefix
from sexton.storage import BatchDeleter, Kind


def new_bucket(client: Any, *, versioned: bool = False, locks: bool = False) -> str:
    """Make a bucket."""
    name = f"test-{os.urandom(6).hex()}"
    client.create_bucket(Bucket=name, **({"ObjectLockEnabledForBucket": True} if locks else {}))
    if versioned:
        client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    return name


class TestMoto:
    def test_x_16_in_slices(self, moto: tuple[BatchDeleter, Any]) -> None:
        """X-16: on moto, unversioned: all below the prefix in slices, siblings stay, the tombstone last."""
        deleter, client = moto
        bucket = new_bucket(client)
        keys = ["foo/", "foo/a", "foo/b c", "foo/b+c", "foo/é", "foo/x//y", "foo/tomb", "foo/%2F"]
        for key in (*keys, "foo", "foo-bar/x"):
            deleter.calls.put(bucket, key, b"x")
        steps = work_off(deleter, DeletePrefix(bucket, "foo/", tombstone="foo/tomb"), max_objects=3)

        assert (steps[-1].state, steps[-1].failed, steps[-1].progress.gone) == ("done", (), 8)
        left = client.list_objects_v2(Bucket=bucket)["Contents"]
        assert [entry["Key"] for entry in left] == ["foo", "foo-bar/x"]

    def test_versions(self, moto: tuple[BatchDeleter, Any]) -> None:
        """On moto, versioned: hiding makes one marker each; erasing leaves no version and no marker."""
        deleter, client = moto
        bucket = new_bucket(client, versioned=True)
        for key in ("p/a", "p/a", "p/b", "p/c", "p"):
            deleter.calls.put(bucket, key, b"x")
        hidden = [work(deleter, DeletePrefix(bucket, "p/")) for _ in range(2)]
        markers = client.list_object_versions(Bucket=bucket)["DeleteMarkers"]
        steps = work_off(deleter, DeletePrefix(bucket, "p/", ERASE), max_objects=3)
        left = client.list_object_versions(Bucket=bucket)

        assert [step.effects for step in hidden] == [{"hidden": 3}, {}]
        assert sorted(entry["Key"] for entry in markers) == ["p/a", "p/b", "p/c"]
        assert (steps[-1].state, steps[-1].progress.gone) == ("done", 7)
        assert [entry["Key"] for entry in left["Versions"]] == ["p"]
        assert "DeleteMarkers" not in left

    def test_a_legal_hold(self, moto: tuple[BatchDeleter, Any]) -> None:
        """On moto: what is held stays, refused, and named; its neighbours go."""
        deleter, client = moto
        bucket = new_bucket(client, locks=True)
        held = deleter.calls.put(bucket, "p/held", b"x")
        deleter.calls.put(bucket, "p/free", b"x")
        client.put_object_legal_hold(
            Bucket=bucket, Key="p/held", VersionId=held.version_id, LegalHold={"Status": "ON"}
        )
        step = work(deleter, DeletePrefix(bucket, "p/", ERASE))

        assert (step.state, step.effects) == ("done", {"erased": 1})
        assert [(key, state.kind, state.legal_hold) for key, state in step.failed] == [
            ("p/held", Kind.REFUSED, True)
        ]
