"""Prefix deletes on moto and on the recorder: slices, faults, locks, writers that go on, the tombstone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from tests.support import s3_stores
from tests.support.s3_recorder import Recorded, Reply, S3Recorder, Traits

from sexton.schemas.errors import InvalidEvent
from sexton.schemas.events import DeleteMode, DeletePrefix
from sexton.storage import (
    SPELLINGS,
    Abilities,
    Ability,
    BatchDeleter,
    Kind,
    StoreSettings,
    Versioning,
)
from sexton.streaming_jobs.reaper.prefixes import (
    FIRST_PASS_OVER,
    PrefixProgress,
    PrefixStep,
    prefix_refused,
    work_prefix,
)

ALL = frozenset(spelling.name for spelling in SPELLINGS)
ERASE = DeleteMode.ERASE_ALL_VERSIONS
UNTIL = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Recorder]:
    """A recorder whose credentials are in the environment."""
    with S3Recorder() as recorder:
        for name, value in recorder.environ.items():
            monkeypatch.setenv(name, value)
        yield recorder


@pytest.fixture
def deleter(s3: S3Recorder) -> Iterator[BatchDeleter]:
    """A deleter against the recorder that knows what its buckets can do."""
    with BatchDeleter(StoreSettings(s3.url, requests_in_flight=4, read_timeout_s=10)) as made:
        made.learn(knowing("b"))
        made.learn(knowing("v", Versioning.ON))
        made.learn(knowing("l", Versioning.ON, Ability.YES))
        yield made


def knowing(
    bucket: str,
    versioning: Versioning = Versioning.OFF,
    locks: Ability = Ability.NO,
    in_order: Ability = Ability.YES,
) -> Abilities:
    """Return the abilities of a faithful store."""
    return Abilities(
        bucket,
        crc32=Ability.YES,
        batch_keeps=ALL,
        single_keeps=ALL,
        versioning=versioning,
        object_lock=locks,
        lists_in_order=in_order,
    )


def work(
    deleter: Any, action: DeletePrefix, progress: PrefixProgress | None = None, **changes: Any
) -> PrefixStep:
    """Work one step without waiting anywhere."""
    options = {"max_objects": 10_000, "deadline": lambda: False, "sleep": lambda _: None, **changes}
    return work_prefix(deleter, action, progress or PrefixProgress(), **options)


def work_off(deleter: Any, action: DeletePrefix, **changes: Any) -> list[PrefixStep]:
    """Work step after step until one does not ask for more."""
    steps = [work(deleter, action, **changes)]
    while steps[-1].state == "more":
        assert len(steps) < 100
        steps.append(work(deleter, action, steps[-1].progress, **changes))
    return steps


def lists(s3: S3Recorder) -> list[Recorded]:
    """Return the listings so far."""
    return [request for request in s3.requests if request.method == "GET" and "prefix" in request.query]


class TestWhichPrefixes:
    @pytest.mark.parametrize("prefix", ["", "/", "//", "foo", "foo/bar", " /x", "a/b"])
    def test_x_16_what_is_no_prefix(self, prefix: str) -> None:
        """X-16: a prefix that is empty, has no segment or does not end in `/` is refused, twice."""
        action = DeletePrefix("b", prefix)

        assert prefix_refused(action) is not None
        with pytest.raises(InvalidEvent):
            work(None, action)

    def test_depth(self) -> None:
        """Settings can ask for more segments below the bucket, never for none."""
        assert prefix_refused(DeletePrefix("b", "a/")) is None
        assert prefix_refused(DeletePrefix("b", "a/"), min_depth=0) is None
        assert prefix_refused(DeletePrefix("b", "//"), min_depth=0) is not None
        assert prefix_refused(DeletePrefix("b", "a//"), min_depth=2) is not None
        assert prefix_refused(DeletePrefix("b", "a/b/"), min_depth=2) is None

    def test_modes_and_tombstones(self) -> None:
        """A prefix names no version to erase, and a tombstone has a key."""
        assert prefix_refused(DeletePrefix("b", "a/", DeleteMode.ERASE_VERSION)) is not None
        assert prefix_refused(DeletePrefix("b", "a/", ERASE)) is None
        assert prefix_refused(DeletePrefix("b", "a/", tombstone="")) is not None


class TestPasses:
    def test_x_16_siblings_survive(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
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
        s3.create_bucket("b", dict.fromkeys([*under, *beside], b"x"))
        step = work(deleter, DeletePrefix("b", "foo/"))

        assert (step.state, step.progress.gone, step.failed) == ("done", len(under), ())
        assert step.effects == {"deleted": len(under)}
        assert set(s3.objects("b")) == set(beside)

    def test_an_empty_prefix(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """Where nothing is, one listing shows it, and nothing is sent."""
        s3.create_bucket("b", {"foo": b""})
        step = work(deleter, DeletePrefix("b", "foo/"))

        assert (step.state, step.progress.gone, step.effects) == ("done", 0, {})
        assert [request.method for request in s3.requests] == ["GET"]

    def test_25_000_objects_in_slices(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """A large prefix goes in steps of a bounded number of objects; each says how far it came."""
        s3.create_bucket("b", {f"p/{i:05d}": b"" for i in range(25_000)})
        s3.buckets.fill("b", {"q/1": b""})
        steps = work_off(deleter, DeletePrefix("b", "p/"))

        assert [step.state for step in steps] == ["more", "more", "done"]
        assert [step.progress.gone for step in steps] == [10_000, 20_000, 25_000]
        assert steps[0].progress.after == "p/09999"
        assert max(len(request.keys) for request in s3.deletes()) <= 1000
        assert len(s3.deletes()) == 25
        assert set(s3.objects("b")) == {"q/1"}

    def test_lost_progress_converges(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """X-14: killed between slices and begun again from an old mark, even a later one: all the same."""
        s3.create_bucket("b", {f"p/{i:03d}": b"" for i in range(100)})
        action = DeletePrefix("b", "p/")
        first = work(deleter, action, max_objects=30)
        work(deleter, action, first.progress, max_objects=30)  # its progress is lost
        again = work(deleter, action, first.progress, max_objects=90)
        s3.buckets.fill("b", {"p/000": b""})
        wrong = work(deleter, action, PrefixProgress(5, "p/999"))

        assert (first.progress.after, again.state) == ("p/029", "done")
        assert (wrong.state, wrong.progress.gone) == ("done", 6)
        assert s3.objects("b") == {}

    def test_a_mark_of_another_prefix(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """A mark that does not lie under the prefix is not believed."""
        s3.create_bucket("b", {"p/1": b"", "p/2": b""})

        assert work(deleter, DeletePrefix("b", "p/"), PrefixProgress(0, "q/1")).progress.gone == 2
        assert lists(s3)[0].query.get("start-after") is None

    def test_time_is_up(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """With no time left a step still works one page, so that the whole comes to an end."""
        s3.create_bucket("b", {f"p/{i:04d}": b"" for i in range(2500)})
        steps = work_off(deleter, DeletePrefix("b", "p/"), deadline=lambda: True)

        assert steps[0].progress == PrefixProgress(1000, "p/0999")
        assert (steps[-1].state, steps[-1].progress.gone) == ("done", 2500)
        assert len(steps) < 6

    def test_a_listing_without_order(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """Where listings have no order no mark is kept: each step begins at the start."""
        deleter.learn(knowing("b", in_order=Ability.NO))
        s3.buckets.traits = Traits(lists_reversed=True)
        s3.create_bucket("b", {f"p/{i:03d}": b"" for i in range(50)})
        steps = work_off(deleter, DeletePrefix("b", "p/"), max_objects=20)

        assert {step.progress.after for step in steps[:-1]} <= {None, FIRST_PASS_OVER}
        assert (steps[-1].state, steps[-1].progress.gone) == ("done", 50)
        assert s3.objects("b") == {}

    def test_a_store_that_lists_strangers(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """X-16: what does not begin with the prefix is never sent, whatever a listing claims."""
        names = ["foo-bar/x", "foo", "foo/a"]
        s3.create_bucket("b", dict.fromkeys(names, b""))
        contents = "".join(f"<Contents><Key>{k}</Key><Size>0</Size></Contents>" for k in names)
        page = f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode()
        s3.script(lambda r: Reply(200, page) if "prefix" in r.query else None)
        step = work(deleter, DeletePrefix("b", "foo/"))

        assert {key for request in s3.deletes() for key in request.keys} == {"foo/a"}
        assert set(s3.objects("b")) == {"foo-bar/x", "foo"}
        assert {key for key, _ in step.failed} >= {"foo-bar/x", "foo"}


class TestKeysThatStay:
    def test_a_denied_key(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """A key that may not go is named with its reason; its neighbours go, and it holds nothing up."""
        s3.create_bucket("b", dict.fromkeys(["p/a", "p/b", "p/c"], b""))
        s3.script(lambda r: deny(r, {"p/b"}, s3))
        step = work(deleter, DeletePrefix("b", "p/", tombstone="t"))

        assert (step.state, step.progress.gone, step.failed_count) == ("done", 2, 1)
        assert [(key, state.kind, state.code) for key, state in step.failed] == [
            ("p/b", Kind.FINAL, "AccessDenied")
        ]
        assert "tombstone stays" in step.note
        assert s3.singles() == []

    def test_a_denied_corner_is_no_policy_of_the_bucket(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """Keys that are denied all together, after others went, are each denied, and it comes to an end."""
        s3.create_bucket("b", dict.fromkeys(["p/a", "p/x/1", "p/x/2"], b""))
        s3.script(lambda r: deny(r, {"p/x/1", "p/x/2"}, s3))
        step = work(deleter, DeletePrefix("b", "p/"))

        assert (step.state, step.failed_count, step.progress.gone) == ("done", 2, 1)

    def test_x_7_everything_denied(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """X-7: where the store denies every key the bucket waits, and nobody's key is given up."""
        s3.create_bucket("b", dict.fromkeys(["p/a", "p/b"], b""))
        s3.script(lambda r: deny(r, {"p/a", "p/b"}, s3))
        step = work(deleter, DeletePrefix("b", "p/"))

        assert (step.state, step.progress.gone) == ("bucket", 0)
        assert step.fault is not None
        assert (step.fault.kind, step.fault.code) == (Kind.BUCKET, "AccessDenied")

    def test_more_than_can_be_named(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """Thousands of keys that stay are counted, a thousand named; what can go beside them goes."""
        stay = {f"p/{i:04d}" for i in range(2500)}
        s3.create_bucket("b", dict.fromkeys([*stay, "p/0000a", "p/z"], b""))
        s3.script(lambda r: deny(r, stay, s3, "InvalidObjectState"))
        steps = work_off(deleter, DeletePrefix("b", "p/"), max_objects=1500)

        assert (steps[-1].state, len(steps[-1].failed)) == ("done", 1000)
        assert steps[-1].failed_count >= 1000
        assert steps[-1].progress.gone == 2
        assert set(s3.objects("b")) == stay

    def test_a_folding_store(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """X-9: a key that the store would take for its sibling is named, not sent."""
        deleter.learn(Abilities("b", versioning=Versioning.OFF, lists_in_order=Ability.YES))
        s3.buckets.traits = Traits(fold=lambda key: key.replace("//", "/"))
        s3.create_bucket("b", dict.fromkeys(["p/x//y", "p/z", "q/x/y"], b""))
        step = work(deleter, DeletePrefix("b", "p/"))

        assert (step.state, [(key, state.code) for key, state in step.failed]) == (
            "done",
            [("p/x//y", "FoldedKey")],
        )
        assert set(s3.objects("b")) == {"p/x//y", "q/x/y"}


def deny(request: Recorded, keys: set[str], s3: S3Recorder, code: str = "AccessDenied") -> Reply | None:
    """Answer a batch: the named keys are refused with a code, the others go."""
    if not request.keys:
        return None
    parts = []
    for key in request.keys:
        if key in keys:
            parts.append(f"<Error><Key>{key}</Key><Code>{code}</Code></Error>")
        else:
            with s3.buckets.lock:
                s3.buckets.of(request.bucket).delete(key, None)
            parts.append(f"<Deleted><Key>{key}</Key></Deleted>")
    return Reply(200, f"<DeleteResult>{''.join(parts)}</DeleteResult>".encode())


class TestFaults:
    def test_transient_keys_are_met_again(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """X-4: of a batch in which some keys fail for now, exactly those are sent again, in the next pass."""
        s3.create_bucket("b", dict.fromkeys(["p/a", "p/b", "p/c"], b""))
        seen: list[list[str]] = []

        def once(request: Recorded) -> Reply | None:
            if not request.keys:
                return None
            seen.append(request.keys)
            if len(seen) > 1:
                return None
            with s3.buckets.lock:
                s3.buckets.of("b").delete("p/a", None)
            errors = "".join(
                f"<Error><Key>{k}</Key><Code>InternalError</Code></Error>" for k in ("p/b", "p/c")
            )
            return Reply(
                200, f"<DeleteResult><Deleted><Key>p/a</Key></Deleted>{errors}</DeleteResult>".encode()
            )

        s3.script(once)
        step = work(deleter, DeletePrefix("b", "p/"))

        assert (step.state, step.progress.gone, step.failed_count) == ("done", 3, 0)
        assert seen == [["p/a", "p/b", "p/c"], ["p/b", "p/c"]]

    def test_one_key_that_never_works(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """A key that the store fails on again and again makes the bucket wait after a few passes."""
        s3.create_bucket("b", dict.fromkeys(["p/a", "p/b"], b""))
        error = b"<DeleteResult><Error><Key>p/b</Key><Code>InternalError</Code></Error></DeleteResult>"
        s3.script(lambda r: Reply(200, error) if r.keys == ["p/b"] else None)
        s3.buckets.fill("b", {"p/b": b""})
        work(deleter, DeletePrefix("b", "p/"))
        s3.buckets.fill("b", {"p/b": b""})
        step = work(deleter, DeletePrefix("b", "p/"))

        assert (step.state, step.progress) == ("bucket", PrefixProgress(0, FIRST_PASS_OVER))
        assert step.fault is not None
        assert (step.fault.kind, step.fault.code) == (Kind.BUCKET, "InternalError")

    def test_x_6_a_few_slow_downs(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """X-6: a store that is busy for a moment is waited for, by listing and deleting; nothing is lost."""
        s3.create_bucket("b", {f"p/{i:04d}": b"" for i in range(1500)})
        slow = Reply(503, b"<Error><Code>SlowDown</Code></Error>", {"Retry-After": "1"})
        waits: list[float] = []
        s3.script(lambda _: slow if len(waits) < 3 else None)
        step = work(deleter, DeletePrefix("b", "p/"), sleep=waits.append)

        assert (step.state, step.progress.gone) == ("done", 1500)
        assert waits == [1.0, 1.0, 1.0]

    def test_x_13_nothing_but_503(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """X-13: a store that goes on so makes the bucket wait; at once if it asks for long."""
        s3.create_bucket("b", {f"p/{i:04d}": b"" for i in range(3000)})
        slow = b"<Error><Code>SlowDown</Code></Error>"
        s3.script(lambda r: Reply(503, slow) if len(s3.deletes()) > 0 else None)
        step = work(deleter, DeletePrefix("b", "p/"))
        sent = len(s3.requests)
        s3.script(lambda r: Reply(503, slow, {"Retry-After": "60"}))
        long = work(deleter, DeletePrefix("b", "p/"), step.progress)

        assert (step.state, step.progress.gone) == ("bucket", 1000)
        assert step.fault is not None
        assert step.fault.code == "SlowDown"
        assert (long.state, long.progress) == ("bucket", step.progress)
        assert len(s3.requests) == sent + 1

    def test_x_7_a_missing_bucket_and_wrong_credentials(
        self, s3: S3Recorder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """X-7: a missing bucket is its own fault, a wrong secret and a store that is away everybody's."""
        s3.create_bucket("b", {"p/a": b""})
        settings = StoreSettings(s3.url)
        with BatchDeleter(settings) as made:
            missing = work(made, DeletePrefix("missing", "p/"))
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with BatchDeleter(settings) as made:
            made.learn(knowing("b"))
            wrong = work(made, DeletePrefix("b", "p/"))
        with BatchDeleter(StoreSettings("http://127.0.0.1:9", connect_timeout_s=1)) as made:
            made.learn(knowing("b"))
            away = work(made, DeletePrefix("b", "p/"))

        assert [missing.state, wrong.state, away.state] == ["bucket", "environment", "environment"]
        assert missing.fault is not None
        assert missing.fault.code == "NoSuchBucket"
        assert set(s3.objects("b")) == {"p/a"}

    def test_credentials_expire_in_the_middle(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """X-7: expired credentials hold everything; what went before is counted."""
        s3.create_bucket("b", {f"p/{i:04d}": b"" for i in range(3000)})
        expired = Reply(400, b"<Error><Code>ExpiredToken</Code></Error>")
        s3.script(lambda r: expired if len(s3.deletes()) > 0 else None)
        step = work(deleter, DeletePrefix("b", "p/"))

        assert (step.state, step.progress.gone, step.effects) == ("environment", 1000, {"deleted": 1000})

    def test_x_11_an_answer_that_never_came(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """X-11: after a cut connection the listing shows which keys are hidden: one marker each."""
        s3.create_bucket("v", {f"p/{i}": b"" for i in range(5)}, versioning="Enabled")
        cut: list[int] = []

        def drop(request: Recorded) -> Reply | None:
            if request.keys and not cut:
                cut.append(1)
                return Reply(drop=True, act_first=True)
            return None

        s3.script(drop)
        step = work(deleter, DeletePrefix("v", "p/"))

        assert (step.state, cut) == ("done", [1])
        assert all([v.is_marker for v in s3.versions("v", f"p/{i}")] == [False, True] for i in range(5))


class TestWriters:
    def test_writers_that_never_stop(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """Where objects keep coming it ends, says so, and names what stands there."""
        s3.create_bucket("b", {f"p/{i}": b"" for i in range(10)})
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                s3.buckets.fill("b", {f"p/new-{number + i}": b"" for i in range(50)})
                number += 50
                time.sleep(0.0005)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            steps = work_off(deleter, DeletePrefix("b", "p/", tombstone="t"))
        finally:
            stop.set()
            writer.join()
        last = steps[-1]

        assert (last.state, "writers keep adding" in last.note) == ("done", True)
        assert last.failed_count > 0
        assert {state.code for _, state in last.failed} == {"StillWritten"}
        assert s3.singles() == []

    def test_more_than_a_slice_after_the_first_pass(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """A writer as quick as the deletes cannot keep it going: after the first pass one slice is enough."""
        s3.create_bucket("b", {f"p/{i:03d}": b"" for i in range(50)})
        counted: list[int] = []

        def refill(request: Recorded) -> None:
            if request.keys:
                counted.append(1)
                s3.buckets.fill("b", {f"p/!{len(counted):03d}-{i}": b"" for i in range(50)})

        s3.script(refill)
        steps = work_off(deleter, DeletePrefix("b", "p/"), max_objects=40)

        assert (steps[-1].state, "writers keep adding" in steps[-1].note) == ("done", True)
        assert steps[-1].failed_count > 0

    def test_a_writer_that_stops(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """Latecomers go too; how many came is noted."""
        s3.create_bucket("b", {"p/a": b""})
        late = iter(["p/b", "p/c"])

        def write(request: Recorded) -> None:
            if request.keys and (key := next(late, None)):
                s3.buckets.fill("b", {key: b""})

        s3.script(write)
        step = work(deleter, DeletePrefix("b", "p/"))

        assert (step.state, step.progress.gone, step.failed_count) == ("done", 3, 0)
        assert s3.objects("b") == {}


class TestTombstone:
    @pytest.mark.parametrize("tombstone", ["p/deleted", "graves/p", "p/odd\r"])
    def test_it_goes_last_and_alone(self, tombstone: str, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """The tombstone goes alone, after a whole pass has listed nothing else."""
        s3.create_bucket("b", dict.fromkeys([tombstone, "p/a", "p/z", "graves/q"], b""))
        step = work(deleter, DeletePrefix("b", "p/", tombstone=tombstone))
        order = [r.keys or [r.key] for r in s3.requests if r.method in ("POST", "DELETE")]
        kinds = ["list" if "prefix" in r.query else r.method for r in s3.requests]

        assert (step.state, step.progress.gone) == ("done", 3)
        assert order == [["p/a", "p/z"], [tombstone]]
        sent = "DELETE" if tombstone.endswith("\r") else "POST"
        assert kinds == ["list", "POST", "list", "HEAD", sent, "HEAD", "HEAD"]
        assert set(s3.objects("b")) == {"graves/q"}

    def test_not_between_slices(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """As long as anything is left the tombstone stands, and it makes no slice of its own."""
        s3.create_bucket("b", dict.fromkeys(["p/0tomb", *(f"p/{i}" for i in range(9))], b""))
        action = DeletePrefix("b", "p/", tombstone="p/0tomb")
        step = work(deleter, action, max_objects=4)
        while step.state == "more":
            assert "p/0tomb" in s3.objects("b")
            step = work(deleter, action, step.progress, max_objects=4)

        assert (step.state, s3.objects("b")) == ("done", {})

    def test_replayed_it_is_not_marked_again(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """A second run hides nothing again, the tombstone neither."""
        s3.create_bucket("v", dict.fromkeys(["p/a", "p/t"], b""), versioning="Enabled")
        action = DeletePrefix("v", "p/", tombstone="p/t")
        first, second = work(deleter, action), work(deleter, action)

        assert (first.state, first.effects) == ("done", {"hidden": 2})
        assert (second.state, second.effects) == ("done", {})
        assert all(len(s3.versions("v", key)) == 2 for key in ("p/a", "p/t"))

    def test_a_tombstone_that_may_not_go(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """A tombstone that is denied is named; the rest is gone."""
        s3.create_bucket("b", dict.fromkeys(["p/a", "t"], b""))
        s3.script(lambda r: deny(r, {"t"}, s3))
        step = work(deleter, DeletePrefix("b", "p/", tombstone="t"))

        assert (step.state, [key for key, _ in step.failed], step.progress.gone) == ("done", ["t"], 1)

    def test_a_bucket_in_trouble_keeps_it(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """A tombstone that cannot be deleted now makes the bucket wait; no pass is lost."""
        s3.create_bucket("b", dict.fromkeys(["p/a", "t"], b""))
        slow = Reply(503, b"<Error><Code>SlowDown</Code></Error>")
        s3.script(lambda r: slow if r.keys == ["t"] else None)
        step = work(deleter, DeletePrefix("b", "p/", tombstone="t"))

        assert (step.state, step.progress) == ("bucket", PrefixProgress(1, FIRST_PASS_OVER))


class TestVersions:
    def test_hide(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """Hiding makes one marker for each current object, and none for what is hidden already."""
        s3.create_bucket("v", {"p/a": b"1", "p/b": b"1", "p": b"1"}, versioning="Enabled")
        s3.buckets.fill("v", {"p/a": b"2"})
        deleter.delete_all("v", ["p/b"]).result(10)
        step = work(deleter, DeletePrefix("v", "p/"))

        assert (step.state, step.effects) == ("done", {"hidden": 1})
        assert [v.is_marker for v in s3.versions("v", "p/a")] == [False, False, True]
        assert [v.is_marker for v in s3.versions("v", "p/b")] == [False, True]

    def test_erase_all_versions(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """Every version and marker goes in slices, the tombstone's last; siblings stay."""
        s3.create_bucket("v", {"p": b"", "p-x": b""}, versioning="Enabled")
        for _ in range(7):
            s3.buckets.fill("v", dict.fromkeys(("p/a", "p/b\r", "p/c", "p/t"), b""))
        deleter.delete_all("v", ["p/a", "p/never", "p/t"]).result(10)
        action = DeletePrefix("v", "p/", ERASE, tombstone="p/t")
        steps = work_off(deleter, action, max_objects=6)

        assert steps[-1].state == "done"
        assert sum(step.effects.get("erased", 0) for step in steps) == steps[-1].progress.gone == 31
        assert set(s3.buckets.of("v").versions) == {"p", "p-x"}
        erasing = [r for r in s3.requests if r.keys or r.method == "DELETE"]
        sent = [{*request.keys} or {request.key} for request in erasing]
        first = sent.index({"p/t"}, 1)
        assert all(keys == {"p/t"} for keys in sent[first:])

    def test_erase_an_unversioned_bucket(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """Without versions there is one way to delete."""
        s3.create_bucket("b", {"p/a": b""})

        assert work(deleter, DeletePrefix("b", "p/", ERASE)).effects == {"deleted": 1}

    def test_locks(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """Locked versions are refused with the date; bypass needs both the intent and the reaper."""
        s3.create_bucket("l", dict.fromkeys(["p/free", "p/gov", "p/held"], b""), locks=True)
        governed, held = (s3.versions("l", key)[0] for key in ("p/gov", "p/held"))
        governed.mode, governed.retain_until, held.legal_hold = "GOVERNANCE", UNTIL, True
        asks = DeletePrefix("l", "p/", ERASE, bypass_governance=True)
        step = work(deleter, asks)
        silent = work(deleter, DeletePrefix("l", "p/", ERASE), allow_bypass=True)
        assert not any("x-amz-bypass-governance-retention" in request.headers for request in s3.requests)
        bypassed = work(deleter, asks, allow_bypass=True)

        assert (step.state, step.effects) == ("done", {"erased": 1})
        assert [(key, state.kind, state.retain_until, state.legal_hold) for key, state in step.failed] == [
            ("p/gov", Kind.REFUSED, UNTIL, False),
            ("p/held", Kind.REFUSED, None, True),
        ]
        assert (silent.failed_count, bypassed.failed_count) == (2, 1)
        assert set(s3.buckets.of("l").versions) == {"p/held"}

    def test_an_older_version_under_lock(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """Above a locked older version the newest one stays: one key that failed, and an end."""
        s3.create_bucket("l", {"p/a": b"1", "p/b": b"1"}, locks=True)
        s3.buckets.fill("l", {"p/a": b"2"})
        s3.versions("l", "p/a")[0].retain_until = datetime.now(UTC) + timedelta(hours=1)
        step = work(deleter, DeletePrefix("l", "p/", ERASE))

        assert (step.state, [key for key, _ in step.failed], step.failed_count) == ("done", ["p/a"], 1)
        assert len(s3.versions("l", "p/a")) == 2

    @pytest.mark.parametrize("locked", [(), (0, 2, 3, 4, 5, 6, 7), range(8)])
    def test_small_pages(self, locked: Sequence[int], s3: S3Recorder, deleter: BatchDeleter) -> None:
        """Wherever pages part a key, one pass takes all that may go, never the newest first."""
        s3.create_bucket("l", locks=True)
        for i in range(8):
            for _ in range(1 + i % 5):
                s3.buckets.fill("l", {f"p/{i}": b""})
        newest = {f"p/{i}": s3.versions("l", f"p/{i}")[-1].version_id for i in range(8)}
        for i in locked:
            s3.versions("l", f"p/{i}")[0].legal_hold = True

        def watch(request: Recorded) -> None:
            for key, version in newest.items():
                left = s3.versions("l", key)
                assert not left or left[-1].version_id == version

        s3.script(watch)
        step = work(SmallPages(deleter), DeletePrefix("l", "p/", ERASE))
        watch(s3.requests[-1])

        assert (step.state, step.failed_count) == ("done", len(locked))
        # Under a lock the oldest stays, and with it the newest.
        stay = {f"p/{i}": min(2, 1 + i % 5) for i in locked}
        assert {key: len(found) for key, found in s3.buckets.of("l").versions.items()} == stay


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


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BatchDeleter, Any]]:
    """A deleter against moto, and a client that is not ours."""
    with (
        s3_stores.moto(Path(tmp_path_factory.mktemp("moto"))) as running,
        pytest.MonkeyPatch.context() as environment,
    ):
        for name, value in running.environ.items():
            environment.setenv(name, value)
        client = boto3.session.Session().client(
            "s3", endpoint_url=running.settings.endpoint_url, region_name=running.settings.region
        )
        with BatchDeleter(running.settings) as deleter:
            yield deleter, client
        client.close()


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
