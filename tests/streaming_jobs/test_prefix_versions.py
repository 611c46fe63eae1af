"""Prefix deletes in buckets with versions and locks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.prefixes import ERASE, work, work_off
from tests.support.s3_recorder import Recorded, S3Recorder

from sexton.schemas.events import DeletePrefix
from sexton.storage import BatchDeleter, Kind

UNTIL = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)


class TestVersions:
    def test_hide(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """Hiding makes one marker for each current object, and none for what is hidden already."""
        recorder.create_bucket("v", {"p/a": b"1", "p/b": b"1", "p": b"1"}, versioning="Enabled")
        recorder.buckets.fill("v", {"p/a": b"2"})
        deleter.delete_all("v", ["p/b"]).result(10)
        step = work(deleter, DeletePrefix("v", "p/"))

        assert (step.state, step.effects) == ("done", {"hidden": 1})
        assert [v.is_marker for v in recorder.versions("v", "p/a")] == [False, False, True]
        assert [v.is_marker for v in recorder.versions("v", "p/b")] == [False, True]

    def test_erase_all_versions(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """Every version and marker goes in slices, the tombstone's last; siblings stay."""
        recorder.create_bucket("v", {"p": b"", "p-x": b""}, versioning="Enabled")
        for _ in range(7):
            recorder.buckets.fill("v", dict.fromkeys(("p/!t", "p/a", "p/b\r", "p/c"), b""))
        deleter.delete_all("v", ["p/a", "p/never", "p/!t"]).result(10)
        action = DeletePrefix("v", "p/", ERASE, tombstone="p/!t")
        steps = work_off(deleter, action, max_objects=6)

        assert steps[-1].state == "done"
        assert sum(step.effects.get("erased", 0) for step in steps) == steps[-1].progress.gone == 31
        assert set(recorder.buckets.of("v").versions) == {"p", "p-x"}
        erasing = [r for r in recorder.requests if r.keys or r.method == "DELETE"]
        sent = [{*request.keys} or {request.key} for request in erasing]
        first = next(number for number, keys in enumerate(sent) if number and "p/!t" in keys)
        assert all(keys == {"p/!t"} for keys in sent[first:])

    def test_erase_an_unversioned_bucket(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """Without versions there is one way to delete."""
        recorder.create_bucket("b", {"p/a": b""})

        assert work(deleter, DeletePrefix("b", "p/", ERASE)).effects == {"deleted": 1}

    def test_locks(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """Locked versions are refused with the date; bypass needs both the intent and the reaper."""
        recorder.create_bucket("l", dict.fromkeys(["p/free", "p/gov", "p/held"], b""), locks=True)
        governed, held = (recorder.versions("l", key)[0] for key in ("p/gov", "p/held"))
        governed.mode, governed.retain_until, held.legal_hold = "GOVERNANCE", UNTIL, True
        asks = DeletePrefix("l", "p/", ERASE, bypass_governance=True)
        step = work(deleter, asks)
        silent = work(deleter, DeletePrefix("l", "p/", ERASE), allow_bypass=True)
        assert not any(
            "x-amz-bypass-governance-retention" in request.headers for request in recorder.requests
        )
        bypassed = work(deleter, asks, allow_bypass=True)

        assert (step.state, step.effects) == ("done", {"erased": 1})
        assert [(key, state.kind, state.retain_until, state.legal_hold) for key, state in step.failed] == [
            ("p/gov", Kind.REFUSED, UNTIL, False),
            ("p/held", Kind.REFUSED, None, True),
        ]
        assert (silent.failed_count, bypassed.failed_count) == (2, 1)
        assert set(recorder.buckets.of("l").versions) == {"p/held"}

    def test_an_older_version_under_lock(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """Above a locked older version the newest one stays: one key that failed, and an end."""
        recorder.create_bucket("l", {"p/a": b"1", "p/b": b"1"}, locks=True)
        recorder.buckets.fill("l", {"p/a": b"2"})
        recorder.versions("l", "p/a")[0].retain_until = datetime.now(UTC) + timedelta(hours=1)
        step = work(deleter, DeletePrefix("l", "p/", ERASE))

        assert (step.state, [key for key, _ in step.failed], step.failed_count) == ("done", ["p/a"], 1)
        assert len(recorder.versions("l", "p/a")) == 2

    def test_a_tombstone_with_an_older_version_under_lock(
        self, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """Its newest version stays, too: were it erased, the locked one would come to light."""
        recorder.create_bucket("l", {"p/a": b"", "t": b"1"}, locks=True)
        recorder.buckets.fill("l", {"t": b"2"})
        recorder.versions("l", "t")[0].legal_hold = True
        step = work(deleter, DeletePrefix("l", "p/", ERASE, tombstone="t"))

        assert (step.state, [key for key, _ in step.failed], step.progress.gone) == ("done", ["t"], 1)
        assert [version.body for version in recorder.versions("l", "t")] == [b"1", b"2"]

    @pytest.mark.parametrize("locked", [(), (0, 2, 3, 4, 5, 6, 7), range(8)])
    def test_small_pages(self, locked: Sequence[int], recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """Wherever pages part a key, one pass takes all that may go, never the newest first."""
        recorder.create_bucket("l", locks=True)
        for i in range(8):
            for _ in range(1 + i % 5):
                recorder.buckets.fill("l", {f"p/{i}": b""})
        newest = {f"p/{i}": recorder.versions("l", f"p/{i}")[-1].version_id for i in range(8)}
        for i in locked:
            recorder.versions("l", f"p/{i}")[0].legal_hold = True

        def watch(request: Recorded) -> None:
            for key, version in newest.items():
                left = recorder.versions("l", key)
                assert not left or left[-1].version_id == version

        recorder.script(watch)
        step = work(SmallPages(deleter), DeletePrefix("l", "p/", ERASE))
        watch(recorder.requests[-1])

        assert (step.state, step.failed_count) == ("done", len(locked))
        # Under a lock the oldest stays, and with it the newest.
        stay = {f"p/{i}": min(2, 1 + i % 5) for i in locked}
        assert {key: len(found) for key, found in recorder.buckets.of("l").versions.items()} == stay


class SmallPages:
    """A deleter whose listings of versions have three entries at most."""

    def __init__(self, deleter: BatchDeleter) -> None:
        self._deleter = deleter
        self.delete_all = deleter.delete_all
        self.probe = deleter.probe
        self.calls = self

    def version_slice(self, bucket: str, prefix: str, after: Any = None, limit: int = 1000) -> Any:
        """List a few."""
        return self._deleter.calls.version_slice(bucket, prefix, after, min(limit, 3))
