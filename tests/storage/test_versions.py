"""Looking, versions, locks, erasing and slices of listings against the recorder."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.support.s3_recorder import Reply, S3Recorder

from sexton.storage import (
    Ability,
    BatchDeleter,
    Delete,
    ErasedSlice,
    Kind,
    NoReply,
    StoreRefused,
    Versioning,
    VersionMark,
    erase_slice,
)

UNTIL = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def versioned(s3: S3Recorder) -> S3Recorder:
    """The recorder, with a versioned bucket `v`."""
    s3.create_bucket("v", versioning="Enabled")
    return s3


class TestLooking:
    def test_head(self, versioned: S3Recorder, deleter: BatchDeleter) -> None:
        """What is there is described; what is not, and what a marker hides, is None."""
        made = deleter.calls.put("v", "a é\r", b"xyz")
        found = deleter.calls.head("v", "a é\r")

        assert found == made
        assert (found.size if found else None) == 3
        assert deleter.calls.exists("v", "a/é\n") is False
        deleter.delete_all("v", ["a é\r"]).result(10)
        assert deleter.calls.head("v", "a é\r") is None

    def test_current_version(self, versioned: S3Recorder, deleter: BatchDeleter) -> None:
        """The newest version is reported with its id, be it an object or a marker; a longer key is not it."""
        first = deleter.calls.put("v", "k", b"1")
        deleter.calls.put("v", "k/longer", b"1")
        shown = deleter.calls.current_version("v", "k")
        result = deleter.delete_all("v", [Delete("k")]).result(10)
        hidden = deleter.calls.current_version("v", "k")

        assert shown is not None
        assert (shown.version_id, shown.is_marker, shown.is_latest) == (first.version_id, False, True)
        assert hidden is not None
        assert (hidden.version_id, hidden.is_marker) == (result.markers[0], True)
        assert deleter.calls.current_version("v", "k/l") is None

    def test_a_version_is_looked_at_by_its_id(self, versioned: S3Recorder, deleter: BatchDeleter) -> None:
        """Whatever is newest: an older version is there, a marker and one that never was are not."""
        first = deleter.calls.put("v", "k", b"1")
        second = deleter.calls.put("v", "k", b"22")
        marker = deleter.delete_all("v", ["k"]).result(10).markers[0]

        assert deleter.calls.head("v", "k", first.version_id) == first
        assert deleter.calls.head("v", "k", second.version_id) == second
        assert deleter.calls.head("v", "k", marker) is None
        assert deleter.calls.head("v", "k", "0" * 32) is None

    @pytest.mark.parametrize("status", [403, 405, 500, 503])
    def test_a_look_that_fails_shows_nothing(
        self, status: int, s3: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """An answer that is no answer to the look says neither that an object is there nor that it is not."""
        s3.script(lambda request: Reply(status) if request.key else None)
        for look in (deleter.calls.head, deleter.calls.exists):
            with pytest.raises(StoreRefused) as caught:
                look("bucket", "a")
            assert caught.value.status == status

    def test_the_version_null_is_none_unless_it_was_named(
        self, s3: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """What was written before a bucket was versioned has no id of its own, but can be named."""
        headers = {"ETag": '"e"', "x-amz-version-id": "null"}
        s3.script(lambda _: Reply(200, b"", headers))
        found = [deleter.calls.head("bucket", "a", version) for version in (None, "null")]

        assert [info and (info.etag, info.version_id) for info in found] == [('"e"', ""), ('"e"', "null")]

    def test_errors_are_typed(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """A missing bucket, a throttled call and a page that is none are each told as what they are."""
        with pytest.raises(StoreRefused) as missing:
            deleter.calls.exists("missing", "a")
        s3.script(lambda _: Reply(503, b"<Error><Code>SlowDown</Code></Error>", {"Retry-After": "3"}))
        with pytest.raises(StoreRefused) as slow:
            deleter.calls.current_version("bucket", "a")
        s3.script(lambda _: Reply(200, b"<html/>"))
        with pytest.raises(NoReply):
            deleter.calls.list_slice("bucket", "")

        assert (missing.value.code, missing.value.kind) == ("NoSuchBucket", Kind.BUCKET)
        assert (slow.value.kind, slow.value.retry_after_s) == (Kind.TRANSIENT, 3.0)

    def test_x_11_a_late_answer_on_a_versioned_bucket(
        self, versioned: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """X-11: after an answer that never came the newest version shows the marker: nothing is repeated."""
        deleter.calls.put("v", "k", b"1")
        versioned.script(lambda request: Reply(drop=True, act_first=True) if request.keys else None)
        result = deleter.delete_all("v", ["k"]).result(10)
        versioned.script(None)
        current = deleter.calls.current_version("v", "k")

        assert (result.state(0).kind, result.state(0).effect_unknown) == (Kind.UNKNOWN, True)
        assert current is not None
        assert current.is_marker
        assert [version.is_marker for version in versioned.versions("v", "k")] == [False, True]


class TestModes:
    def test_hide_and_erase_a_version(self, versioned: S3Recorder, deleter: BatchDeleter) -> None:
        """Hiding makes one marker and tells it; a version goes by its id, whatever is newest."""
        first = deleter.calls.put("v", "k", b"1")
        second = deleter.calls.put("v", "k", b"2")
        erased = deleter.delete_all("v", [Delete("k", version_id=first.version_id)]).result(10)
        hidden = deleter.delete_all("v", ["k"]).result(10)
        again = deleter.delete_all("v", [Delete("k", version_id=first.version_id)]).result(10)

        assert (erased.clean, again.clean, dict(erased.markers)) == (True, True, {})
        left = [version.version_id for version in versioned.versions("v", "k")]
        assert left == [second.version_id, hidden.markers[0]]

    def test_odd_keys_by_version(self, versioned: S3Recorder, deleter: BatchDeleter) -> None:
        """A key that no batch can carry is hidden, and its version erased, by single calls."""
        made = deleter.calls.put("v", "a\rb", b"1")
        hidden = deleter.delete_all("v", ["a\rb"]).result(10)
        both = [Delete("a\rb", version_id=v) for v in (made.version_id, hidden.markers[0])]
        erased = deleter.delete_all("v", both).result(10)

        assert (erased.clean, erased.erased_markers) == (True, frozenset({1}))
        assert versioned.versions("v", "a\rb") == []

    def test_erase_all_versions_of_a_key(self, versioned: S3Recorder, deleter: BatchDeleter) -> None:
        """Versions and markers of exactly one key go in slices, the newest last; its neighbours stay."""
        for i in range(7):
            deleter.calls.put("v", "k", str(i).encode())
        deleter.delete_all("v", ["k"]).result(10)
        deleter.calls.put("v", "k/2", b"")
        newest = versioned.versions("v", "k")[-1].version_id
        slices: list[ErasedSlice] = []
        while not slices or slices[-1].listed:
            slices.append(erase_slice(deleter, "v", "k", exactly=True, limit=3))
            left = versioned.versions("v", "k")
            assert not left or left[-1].version_id == newest

        assert sum(done.erased for done in slices) == 8
        assert sum(done.markers for done in slices) == 1
        assert len(versioned.versions("v", "k/2")) == 1

    def test_x_2_a_listing_that_mangles_keys_erases_nothing(
        self, versioned: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """X-2: where a listing shows CR as LF, what stands under a name may be another key's."""
        listed = (
            b"<ListVersionsResult><Version><Key>a\nb</Key><VersionId>1</VersionId>"
            b"<IsLatest>true</IsLatest></Version></ListVersionsResult>"
        )
        versioned.script(lambda request: Reply(200, listed) if "versions" in request.query else None)
        done = erase_slice(deleter, "v", "a\nb", exactly=True)

        assert (done.exact, done.listed, done.erased, done.states) == (False, 0, 0, ())
        assert (versioned.deletes(), versioned.singles()) == ([], [])

    def test_erase_a_prefix(self, versioned: S3Recorder, deleter: BatchDeleter) -> None:
        """All versions under a prefix go, and nothing beside it."""
        for key in ("p/a", "p/a", "p/b\r", "p", "p-x", "p/c"):
            deleter.calls.put("v", key, b"")
        deleter.delete_all("v", ["p/c", "p/never"]).result(10)
        done, rounds = None, 0
        while done is None or done.listed:
            done = erase_slice(deleter, "v", "p/", limit=4)
            rounds += 1

        assert set(versioned.buckets.of("v").versions) == {"p", "p-x"}
        assert rounds < 6

    def test_locked_versions(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """Retention and legal hold are final with their date; bypass frees governance, only when asked."""
        s3.create_bucket("locked", locks=True)
        deleter.probe("locked")
        made = [deleter.calls.put("locked", key, b"") for key in ("gov", "held")]
        governed, held = (s3.versions("locked", key)[0] for key in ("gov", "held"))
        governed.mode, governed.retain_until, held.legal_hold = "GOVERNANCE", UNTIL, True
        items = [Delete(k, version_id=m.version_id) for k, m in zip(("gov", "held"), made, strict=True)]
        refused = deleter.delete_all("locked", items).result(10)
        bypassed = deleter.delete_all("locked", items, bypass_governance=True).result(10)

        assert deleter.abilities("locked").object_lock is Ability.YES
        assert deleter.abilities("locked").versioning is Versioning.ON
        assert [refused.state(i).kind for i in (0, 1)] == [Kind.FINAL] * 2
        assert (refused.state(0).retain_until, refused.state(0).legal_hold) == (UNTIL, False)
        assert (refused.state(1).retain_until, refused.state(1).legal_hold) == (None, True)
        assert "locked until 2100-01-02" in str(refused.state(0))
        assert not refused.all_denied
        assert [bypassed.state(i).kind for i in (0, 1)] == [Kind.GONE, Kind.FINAL]
        assert "x-amz-bypass-governance-retention" not in s3.deletes()[-2].headers

    def test_a_locked_version_does_not_hold_up_the_rest(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """Erasing continues after what may not go; that, and the newest version above it, are reported."""
        s3.create_bucket("locked", locks=True)
        for key in ("a", "a", "b"):
            deleter.calls.put("locked", key, b"")
        s3.versions("locked", "a")[0].retain_until = datetime.now(UTC) + timedelta(hours=1)
        done = erase_slice(deleter, "locked", "")

        assert [(version.key, state.kind) for version, state in done.states] == [("a", Kind.FINAL)]
        assert (done.erased, done.kept) == (1, 1)
        assert set(s3.buckets.of("locked").versions) == {"a"}


class TestSlices:
    def test_pages_are_exact_and_in_order(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """X-16: a prefix is listed slice by slice, byte for byte, without its siblings."""
        keys = [
            "foo/a",
            "foo/a b",
            "foo/a+b",
            "foo/%2F",
            "foo/é",
            "foo/e\u0301",
            "foo/\r",
            "foo/\n",
            "foo//x",
        ]
        keys += ["foo/\uffee", "foo/\U0001f5dd", "foo/\x01"]
        s3.create_bucket("bucket", dict.fromkeys([*keys, "foo", "foo-bar/x", "fop"], b"x"))
        found: list[str] = []
        after: str | None = None
        while not found or after is not None:
            page = deleter.calls.list_slice("bucket", "foo/", after, 5)
            assert len(page.objects) <= 5
            found += [entry.key for entry in page.objects]
            after = page.after

        assert found == sorted(keys, key=str.encode)

    def test_what_is_listed_after_a_key_names_no_version(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """An empty version id is none: stores refuse it as a mark."""
        s3.create_bucket("v", dict.fromkeys("abc", b""), versioning="Enabled")

        page = deleter.calls.version_slice("v", "", VersionMark("a", ""))

        assert [version.key for version in page.versions] == ["b", "c"]
        assert "version-id-marker" not in s3.requests[-1].query
