"""Prefix deletes in trouble: keys that stay, a store that fails, writers that continue."""

from __future__ import annotations

import posixpath
from dataclasses import replace
from itertools import count
from xml.sax.saxutils import escape

import pytest
from tests.support import s3_api
from tests.support.abilities import knowing
from tests.support.prefixes import ERASE, deny, work, work_off
from tests.support.replies import SLOW_DOWN
from tests.support.s3_recorder import Recorded, Reply, S3Recorder, Traits

from sexton.schemas.events import DeleteMode, DeletePrefix
from sexton.storage import Abilities, Ability, BatchDeleter, Kind, StoreSettings, Versioning
from sexton.streaming_jobs.reaper.actions.delete_prefix.progress import FIRST_PASS_OVER, PrefixProgress


class TestKeysThatStay:
    def test_a_denied_key(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """A key that may not go is named with its reason; its neighbours go, the tombstone stays with it."""
        recorder.create_bucket("b", dict.fromkeys(["p/a", "p/b", "p/c", "t"], b""))
        recorder.script(lambda r: deny(r, {"p/b"}, recorder))
        step = work(deleter, DeletePrefix("b", "p/", tombstone="t"))

        assert (step.state, step.progress.gone, step.failed_count) == ("done", 2, 1)
        assert [(key, state.kind, state.code) for key, state in step.failed] == [
            ("p/b", Kind.FINAL, "AccessDenied")
        ]
        assert "tombstone stays" in step.note
        assert set(recorder.objects("b")) == {"p/b", "t"}

    def test_a_denied_corner_is_no_policy_of_the_bucket(
        self, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """Keys that are denied all together, after others went, are each denied, and it comes to an end."""
        recorder.create_bucket("b", dict.fromkeys(["p/a", "p/x/1", "p/x/2"], b""))
        recorder.script(lambda r: deny(r, {"p/x/1", "p/x/2"}, recorder))
        step = work(deleter, DeletePrefix("b", "p/"))

        assert (step.state, step.failed_count, step.progress.gone) == ("done", 2, 1)

    def test_x_7_everything_denied(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """X-7: where the store denies every key the bucket waits, and nobody's key is given up."""
        recorder.create_bucket("b", dict.fromkeys(["p/a", "p/b"], b""))
        recorder.script(lambda r: deny(r, {"p/a", "p/b"}, recorder))
        step = work(deleter, DeletePrefix("b", "p/"))

        assert (step.state, step.progress.gone) == ("bucket", 0)
        assert step.fault is not None
        assert (step.fault.kind, step.fault.code) == (Kind.BUCKET, "AccessDenied")

    @pytest.mark.parametrize("prefix", ["a/../", "./", "x//y/"])
    def test_x_9_a_prefix_that_the_store_would_fold(
        self, prefix: str, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """X-9: its listing may be that of another prefix, or empty: it is refused, nothing is sent."""
        recorder.buckets.traits = Traits(fold=lambda key: posixpath.normpath(key).lstrip("/"))
        recorder.create_bucket("new", {f"{prefix}a": b"", "y/a": b""})
        step = work(deleter, DeletePrefix("new", prefix))

        assert (step.state, step.progress.gone) == ("done", 0)
        assert [(key, state.code) for key, state in step.failed] == [(prefix, "FoldedKey")]
        assert [state.kind for _, state in step.failed] == [Kind.REFUSED]
        assert set(recorder.objects("new")) == {f"{prefix}a", "y/a"}

    @pytest.mark.parametrize("mode", [DeleteMode.HIDE, ERASE])
    def test_x_2_keys_that_the_listing_mangles_are_named_and_never_counted_as_gone(
        self, mode: DeleteMode, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """X-2: a listing in plain XML shows another key: nothing is sent for it, and the others go."""
        recorder.create_bucket("b", {"p/a": b"", "p/\x01": b""}, versioning="Enabled")
        recorder.script(lambda r: _without_encoding(recorder, r))
        steps = work_off(deleter, DeletePrefix("b", "p/", mode))

        assert (steps[-1].state, steps[-1].progress.gone) == ("done", 1)
        assert {(key, state.code) for key, state in steps[-1].failed} == {("p/\ufffd", "UnreadableKey")}
        assert set(recorder.objects("b")) == {"p/\x01"}

    @pytest.mark.parametrize("mode", [DeleteMode.HIDE, ERASE])
    @pytest.mark.parametrize("listed_as", ["encoded", "bare"])
    def test_p_3_a_prefix_is_refused_where_the_listing_is_not_exact(
        self, listed_as: str, mode: DeleteMode, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """P-3: nothing of it goes, plain names neither, and the reason says why."""
        recorder.buckets.traits = Traits(listed_as=listed_as)
        keys = {"p/a+b", "p/a b", "p/é", "p/plain"}
        recorder.create_bucket("odd", dict.fromkeys(keys, b""))
        step = work(deleter, DeletePrefix("odd", "p/", mode))

        assert (step.state, step.progress.gone, dict(step.effects)) == ("done", 0, {})
        assert [(key, state.code, state.kind) for key, state in step.failed] == [
            ("p/", "UnreadableKey", Kind.REFUSED)
        ]
        assert set(recorder.objects("odd")) == keys

    @pytest.mark.parametrize("listed_as", ["", "encoded", "bare"])
    def test_p_3_where_no_probe_could_tell_only_names_of_one_spelling_go(
        self, listed_as: str, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """P-3: an unknown is no yes: what any store lists alike goes, the rest is named and stays."""
        deleter.learn(replace(knowing("odd"), lists_exactly=Ability.UNKNOWN))
        recorder.buckets.traits = Traits(listed_as=listed_as)
        keys = {"p/a+b", "p/a b", "p/é"}
        recorder.create_bucket("odd", dict.fromkeys([*keys, "p/plain-1.x"], b""))
        step = work(deleter, DeletePrefix("odd", "p/"))

        assert (step.state, step.progress.gone) == ("done", 1)
        assert {state.code for _, state in step.failed} == {"UnreadableKey"}
        assert set(recorder.objects("odd")) == keys

    def test_more_than_can_be_named(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """Thousands of keys that stay are counted, a thousand named; what can go beside them goes."""
        stay = {f"p/{i:04d}" for i in range(2500)}
        recorder.create_bucket("b", dict.fromkeys([*stay, "p/0000a", "p/z"], b""))
        recorder.script(lambda r: deny(r, stay, recorder, "InvalidObjectState"))
        steps = work_off(deleter, DeletePrefix("b", "p/"), max_objects=1500)

        assert (steps[-1].state, len(steps[-1].failed)) == ("done", 1000)
        assert steps[-1].failed_count >= 1000
        assert steps[-1].progress.gone == 2
        assert set(recorder.objects("b")) == stay

    def test_a_folding_store(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """X-9: a key that the store would take for its sibling is named, not sent."""
        deleter.learn(Abilities("b", versioning=Versioning.OFF, lists_in_order=Ability.YES))
        recorder.buckets.traits = Traits(fold=lambda key: key.replace("//", "/"))
        recorder.create_bucket("b", dict.fromkeys(["p/x//y", "p/z", "q/x/y"], b""))
        step = work(deleter, DeletePrefix("b", "p/"))

        assert (step.state, [(key, state.code) for key, state in step.failed]) == (
            "done",
            [("p/x//y", "FoldedKey")],
        )
        assert set(recorder.objects("b")) == {"p/x//y", "q/x/y"}


class TestFaults:
    def test_transient_keys_are_met_again(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """X-4: of a batch in which some keys fail for now, exactly those are sent again, in the next pass."""
        recorder.create_bucket("b", dict.fromkeys(["p/a", "p/b", "p/c"], b""))
        seen: list[list[str]] = []

        def once(request: Recorded) -> Reply | None:
            if not request.keys:
                return None
            seen.append(request.keys)
            if len(seen) > 1:
                return None
            with recorder.buckets.lock:
                recorder.buckets.of("b").delete("p/a", None)
            errors = "".join(
                f"<Error><Key>{k}</Key><Code>InternalError</Code></Error>" for k in ("p/b", "p/c")
            )
            return Reply(
                200, f"<DeleteResult><Deleted><Key>p/a</Key></Deleted>{errors}</DeleteResult>".encode()
            )

        recorder.script(once)
        step = work(deleter, DeletePrefix("b", "p/"))

        assert (step.state, step.progress.gone, step.failed_count) == ("done", 3, 0)
        assert seen == [["p/a", "p/b", "p/c"], ["p/b", "p/c"]]

    def test_one_key_that_never_works(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """A key that the store fails on again and again makes the bucket wait after a few passes."""
        recorder.create_bucket("b", dict.fromkeys(["p/a", "p/b"], b""))
        error = b"<DeleteResult><Error><Key>p/b</Key><Code>InternalError</Code></Error></DeleteResult>"
        recorder.script(lambda r: Reply(200, error) if r.keys == ["p/b"] else None)
        recorder.buckets.fill("b", {"p/b": b""})
        work(deleter, DeletePrefix("b", "p/"))
        recorder.buckets.fill("b", {"p/b": b""})
        step = work(deleter, DeletePrefix("b", "p/"))

        assert (step.state, step.progress) == ("bucket", PrefixProgress(0, FIRST_PASS_OVER))
        assert step.fault is not None
        assert (step.fault.kind, step.fault.code) == (Kind.BUCKET, "InternalError")

    def test_what_is_listed_again_and_again_makes_the_bucket_wait(
        self, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """A key that stands in each listing and is absent to each delete: it waits, and grows old."""
        recorder.create_bucket("b")
        page = b"<ListBucketResult><Contents><Key>p/a</Key><Size>0</Size></Contents></ListBucketResult>"
        none = b"<DeleteResult><Error><Key>p/a</Key><Code>NoSuchKey</Code></Error></DeleteResult>"
        recorder.script(lambda r: Reply(200, none if r.keys else page))
        step = work(deleter, DeletePrefix("b", "p/"), max_objects=20)

        assert (step.state, step.progress.gone) == ("bucket", 0)
        assert step.fault is not None
        assert step.fault.code == "StillListed"

    def test_x_6_a_few_slow_downs(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """X-6: a store that is busy for a moment is waited for, by listing and deleting; nothing is lost."""
        recorder.create_bucket("b", {f"p/{i:04d}": b"" for i in range(1500)})
        slow = replace(SLOW_DOWN, headers={"Retry-After": "1"})
        waits: list[float] = []
        recorder.script(lambda _: slow if len(waits) < 3 else None)
        step = work(deleter, DeletePrefix("b", "p/"), sleep=waits.append)

        assert (step.state, step.progress.gone) == ("done", 1500)
        assert waits == [1.0, 1.0, 1.0]

    def test_x_13_nothing_but_503(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """X-13: a store that continues so makes the bucket wait; at once if it asks for long."""
        recorder.create_bucket("b", {f"p/{i:04d}": b"" for i in range(3000)})
        recorder.script(lambda r: SLOW_DOWN if len(recorder.deletes()) > 0 else None)
        step = work(deleter, DeletePrefix("b", "p/"))
        sent = len(recorder.requests)
        recorder.script(lambda r: replace(SLOW_DOWN, headers={"Retry-After": "60"}))
        long = work(deleter, DeletePrefix("b", "p/"), step.progress)

        assert (step.state, step.progress.gone) == ("bucket", 1000)
        assert step.fault is not None
        assert step.fault.code == "SlowDown"
        assert (long.state, long.progress) == ("bucket", step.progress)
        assert len(recorder.requests) == sent + 1

    def test_x_7_a_missing_bucket_and_wrong_credentials(
        self, recorder: S3Recorder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """X-7: a missing bucket is its own fault, a wrong secret and a store that is away everybody's."""
        recorder.create_bucket("b", {"p/a": b""})
        settings = StoreSettings(recorder.url)
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
        assert set(recorder.objects("b")) == {"p/a"}

    def test_credentials_expire_in_the_middle(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """X-7: expired credentials hold everything; what went before is counted."""
        recorder.create_bucket("b", {f"p/{i:04d}": b"" for i in range(3000)})
        expired = Reply(400, b"<Error><Code>ExpiredToken</Code></Error>")
        recorder.script(lambda r: expired if len(recorder.deletes()) > 0 else None)
        step = work(deleter, DeletePrefix("b", "p/"))

        assert (step.state, step.progress.gone, step.effects) == ("environment", 1000, {"deleted": 1000})

    def test_x_11_an_answer_that_never_came(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """X-11: after a cut connection the listing shows which keys are hidden: one marker each."""
        recorder.create_bucket("v", {f"p/{i}": b"" for i in range(5)}, versioning="Enabled")
        cut: list[int] = []

        def drop(request: Recorded) -> Reply | None:
            if request.keys and not cut:
                cut.append(1)
                return Reply(drop=True, act_first=True)
            return None

        recorder.script(drop)
        step = work(deleter, DeletePrefix("v", "p/"))

        assert (step.state, cut) == ("done", [1])
        assert all([v.is_marker for v in recorder.versions("v", f"p/{i}")] == [False, True] for i in range(5))


class TestWriters:
    def test_writers_that_never_stop(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """Where objects keep coming it ends, says so, and names what stands there."""
        recorder.create_bucket("b", {f"p/{i}": b"" for i in range(10)})
        number = count()

        def write(request: Recorded) -> None:
            """Before each listing there is something new."""
            if not request.is_delete_objects:
                recorder.buckets.fill("b", {f"p/new-{next(number)}": b""})

        recorder.script(write)
        last = work_off(deleter, DeletePrefix("b", "p/", tombstone="t"))[-1]

        assert (last.state, "writers keep adding" in last.note) == ("done", True)
        assert last.failed_count > 0
        assert {state.code for _, state in last.failed} == {"StillWritten"}
        assert recorder.singles() == []

    def test_more_than_a_slice_after_the_first_pass(
        self, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """A writer as quick as the deletes cannot keep it going: after the first pass one slice is enough."""
        recorder.create_bucket("b", {f"p/{i:03d}": b"" for i in range(50)})
        counted: list[int] = []

        def refill(request: Recorded) -> None:
            if request.keys:
                counted.append(1)
                recorder.buckets.fill("b", {f"p/!{len(counted):03d}-{i}": b"" for i in range(50)})

        recorder.script(refill)
        steps = work_off(deleter, DeletePrefix("b", "p/"), max_objects=40)

        assert (steps[-1].state, "writers keep adding" in steps[-1].note) == ("done", True)
        assert steps[-1].failed_count > 0

    def test_a_writer_that_stops(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """Latecomers go too; how many came is noted."""
        recorder.create_bucket("b", {"p/a": b""})
        late = iter(["p/b", "p/c"])

        def write(request: Recorded) -> None:
            if request.keys and (key := next(late, None)):
                recorder.buckets.fill("b", {key: b""})

        recorder.script(write)
        step = work(deleter, DeletePrefix("b", "p/"))

        assert (step.state, step.progress.gone, step.failed_count) == ("done", 3, 0)
        assert recorder.objects("b") == {}


def _without_encoding(recorder: S3Recorder, request: Recorded) -> Reply | None:
    """Answer a listing as stores do that know no percent-encoding: what XML cannot carry is U+FFFD."""
    if "encoding-type" not in request.query or request.is_probe:
        return None
    query = {name: value for name, value in request.query.items() if name != "encoding-type"}
    reply = s3_api.answer(recorder.buckets, replace(request, query=query), escape)
    return replace(reply, body=reply.body.replace(b"\x01", "\ufffd".encode()))
