"""Which prefixes go, pass after pass and slice after slice, and the tombstone at the end."""

from __future__ import annotations

import pytest
from tests.support.abilities import knowing
from tests.support.prefixes import ERASE, deny, lists, work, work_off
from tests.support.replies import SLOW_DOWN
from tests.support.s3_recorder import Reply, S3Recorder, Traits

from sexton.schemas.errors import InvalidEvent
from sexton.schemas.events import DeleteMode, DeletePrefix
from sexton.storage import Ability, BatchDeleter
from sexton.streaming_jobs.reaper.actions.delete_prefix.progress import (
    FIRST_PASS_OVER,
    PrefixProgress,
)


class TestWhichPrefixes:
    @pytest.mark.parametrize("prefix", ["", "/", "//", "foo", "foo/bar", " /x", "a/b"])
    def test_x_16_what_is_no_prefix(self, prefix: str) -> None:
        """X-16: a prefix that is empty, has no segment or does not end in `/` is refused, twice."""
        action = DeletePrefix("b", prefix)

        assert action.refusal() is not None
        with pytest.raises(InvalidEvent):
            work(None, action)

    def test_depth(self) -> None:
        """Settings can ask for more segments below the bucket, never for none."""
        assert DeletePrefix("b", "a/").refusal() is None
        assert DeletePrefix("b", "a/").refusal(0) is None
        assert DeletePrefix("b", "//").refusal(0) is not None
        assert DeletePrefix("b", "a//").refusal(2) is not None
        assert DeletePrefix("b", "a/b/").refusal(2) is None

    def test_modes_and_tombstones(self) -> None:
        """A prefix names no version to erase, and a tombstone has a key."""
        assert DeletePrefix("b", "a/", DeleteMode.ERASE_VERSION).refusal() is not None
        assert DeletePrefix("b", "a/", ERASE).refusal() is None
        assert DeletePrefix("b", "a/", tombstone="").refusal() is not None


class TestPasses:
    def test_x_16_siblings_survive(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """X-16: `foo/` takes all below it, odd keys and its own folder object too, and nothing beside it."""
        under = [
            "foo/",
            "foo/a",
            "foo/b/c",
            "foo//d",
            "foo/../x",
            "foo/\r",
            "foo/\x01",
            "foo/é",
            "foo/e\u0301",
        ]
        beside = ["foo", "foo-bar/x", "foo0", "Foo/a", "fo", "x", "/foo/a", "a/foo/b"]
        recorder.create_bucket("b", dict.fromkeys([*under, *beside], b"x"))
        step = work(deleter, DeletePrefix("b", "foo/"))

        assert (step.state, step.progress.gone, step.failed) == ("done", len(under), ())
        assert step.effects == {"deleted": len(under)}
        assert set(recorder.objects("b")) == set(beside)

    def test_an_empty_prefix(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """Where nothing is, one listing shows it, and nothing is sent."""
        recorder.create_bucket("b", {"foo": b""})
        step = work(deleter, DeletePrefix("b", "foo/"))

        assert (step.state, step.progress.gone, step.effects) == ("done", 0, {})
        assert [request.method for request in recorder.requests] == ["GET"]

    def test_25_000_objects_in_slices(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """A large prefix goes in steps of a bounded number of objects; each says how far it came."""
        recorder.create_bucket("b", {f"p/{i:05d}": b"" for i in range(25_000)})
        recorder.buckets.fill("b", {"q/1": b""})
        steps = work_off(deleter, DeletePrefix("b", "p/"))

        assert [step.state for step in steps] == ["more", "more", "done"]
        assert [step.progress.gone for step in steps] == [10_000, 20_000, 25_000]
        assert steps[0].progress.after == "p/09999"
        assert max(len(request.keys) for request in recorder.deletes()) <= 1000
        assert len(recorder.deletes()) == 25
        assert set(recorder.objects("b")) == {"q/1"}

    def test_lost_progress_converges(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """X-14: killed between slices and begun again from an old mark, even a later one: all the same."""
        recorder.create_bucket("b", {f"p/{i:03d}": b"" for i in range(100)})
        action = DeletePrefix("b", "p/")
        first = work(deleter, action, max_objects=30)
        work(deleter, action, first.progress, max_objects=30)  # its progress is lost
        again = work(deleter, action, first.progress, max_objects=90)
        recorder.buckets.fill("b", {"p/000": b""})
        wrong = work(deleter, action, PrefixProgress(5, "p/999"))

        assert (first.progress.after, again.state) == ("p/029", "done")
        assert (wrong.state, wrong.progress.gone) == ("done", 6)
        assert recorder.objects("b") == {}

    def test_a_mark_of_another_prefix(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """A mark that does not lie under the prefix is not believed."""
        recorder.create_bucket("b", {"p/1": b"", "p/2": b""})

        assert work(deleter, DeletePrefix("b", "p/"), PrefixProgress(0, "q/1")).progress.gone == 2
        assert lists(recorder)[0].query.get("start-after") is None

    def test_time_is_up(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """With no time left a step still works one page, so that the whole comes to an end."""
        recorder.create_bucket("b", {f"p/{i:04d}": b"" for i in range(2500)})
        steps = work_off(deleter, DeletePrefix("b", "p/"), deadline=lambda: True)

        assert steps[0].progress == PrefixProgress(1000, "p/0999")
        assert (steps[-1].state, steps[-1].progress.gone) == ("done", 2500)
        assert len(steps) < 6

    def test_a_listing_without_order(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """Where listings have no order no mark is kept: each step begins at the start."""
        deleter.learn(knowing("b", in_order=Ability.NO))
        recorder.buckets.traits = Traits(lists_reversed=True)
        recorder.create_bucket("b", {f"p/{i:03d}": b"" for i in range(50)})
        steps = work_off(deleter, DeletePrefix("b", "p/"), max_objects=20)

        assert {step.progress.after for step in steps[:-1]} <= {None, FIRST_PASS_OVER}
        assert (steps[-1].state, steps[-1].progress.gone) == ("done", 50)
        assert recorder.objects("b") == {}

    def test_a_store_that_lists_strangers(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """X-16: what does not begin with the prefix is never sent, whatever a listing claims."""
        names = ["foo-bar/x", "foo", "foo/a"]
        recorder.create_bucket("b", dict.fromkeys(names, b""))
        contents = "".join(f"<Contents><Key>{k}</Key><Size>0</Size></Contents>" for k in names)
        page = f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode()
        recorder.script(lambda r: Reply(200, page) if "prefix" in r.query else None)
        step = work(deleter, DeletePrefix("b", "foo/"))

        assert {key for request in recorder.deletes() for key in request.keys} == {"foo/a"}
        assert set(recorder.objects("b")) == {"foo-bar/x", "foo"}
        assert {key for key, _ in step.failed} >= {"foo-bar/x", "foo"}


class TestTombstone:
    @pytest.mark.parametrize("tombstone", ["p/deleted", "graves/p", "p/odd\r"])
    def test_it_goes_last_and_alone(
        self, tombstone: str, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """The tombstone goes alone, after a whole pass has listed nothing else."""
        recorder.create_bucket("b", dict.fromkeys([tombstone, "p/a", "p/z", "graves/q"], b""))
        step = work(deleter, DeletePrefix("b", "p/", tombstone=tombstone))
        order = [r.keys or [r.key] for r in recorder.requests if r.method in ("POST", "DELETE")]
        kinds = ["list" if "prefix" in r.query else r.method for r in recorder.requests]

        assert (step.state, step.progress.gone) == ("done", 3)
        assert order == [["p/a", "p/z"], [tombstone]]
        sent = "DELETE" if tombstone.endswith("\r") else "POST"
        assert kinds == ["list", "POST", "list", "HEAD", sent, "HEAD", "HEAD"]
        assert set(recorder.objects("b")) == {"graves/q"}

    def test_not_between_slices(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """As long as anything is left the tombstone stands, and it makes no slice of its own."""
        recorder.create_bucket("b", dict.fromkeys(["p/0tomb", *(f"p/{i}" for i in range(9))], b""))
        action = DeletePrefix("b", "p/", tombstone="p/0tomb")
        step = work(deleter, action, max_objects=4)
        while step.state == "more":
            assert "p/0tomb" in recorder.objects("b")
            step = work(deleter, action, step.progress, max_objects=4)

        assert (step.state, recorder.objects("b")) == ("done", {})

    def test_replayed_it_is_not_marked_again(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """A second run hides nothing again, the tombstone neither."""
        recorder.create_bucket("v", dict.fromkeys(["p/a", "p/t"], b""), versioning="Enabled")
        action = DeletePrefix("v", "p/", tombstone="p/t")
        first, second = work(deleter, action), work(deleter, action)

        assert (first.state, first.effects) == ("done", {"hidden": 2})
        assert (second.state, second.effects) == ("done", {})
        assert all(len(recorder.versions("v", key)) == 2 for key in ("p/a", "p/t"))

    def test_a_tombstone_that_may_not_go(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """A tombstone that is denied is named; the rest is gone."""
        recorder.create_bucket("b", dict.fromkeys(["p/a", "t"], b""))
        recorder.script(lambda r: deny(r, {"t"}, recorder))
        step = work(deleter, DeletePrefix("b", "p/", tombstone="t"))

        assert (step.state, [key for key, _ in step.failed], step.progress.gone) == ("done", ["t"], 1)

    def test_a_bucket_in_trouble_keeps_it(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """A tombstone that cannot be deleted now makes the bucket wait; no pass is lost."""
        recorder.create_bucket("b", dict.fromkeys(["p/a", "t"], b""))
        recorder.script(lambda r: SLOW_DOWN if r.keys == ["t"] else None)
        step = work(deleter, DeletePrefix("b", "p/", tombstone="t"))

        assert (step.state, step.progress) == ("bucket", PrefixProgress(1, FIRST_PASS_OVER))
