"""How a step of a prefix ends when its time is up, when writers continue, and when the tombstone stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.prefixes import ERASE, lists, work, work_off
from tests.support.replies import SLOW_DOWN
from tests.support.s3_recorder import Recorded, Reply, S3Recorder

from sexton.schemas.events import DeletePrefix
from sexton.storage import BatchDeleter, Kind
from sexton.streaming_jobs.reaper.actions.delete_prefix.progress import FIRST_PASS_OVER, PrefixProgress

ACTION = DeletePrefix("b", "p/", tombstone="t")
OVER = PrefixProgress(5, FIRST_PASS_OVER)


def is_listing(request: Recorded) -> bool:
    """Whether the prefix is listed."""
    return request.method == "GET" and "prefix" in request.query


def writing(
    recorder: S3Recorder, until: int, last: Reply | None = None
) -> Callable[[Recorded], Reply | None]:
    """A script: something new before each listing but for that after so many, which `last` answers."""

    def write(request: Recorded) -> Reply | None:
        if not is_listing(request):
            return None
        number = len(lists(recorder))  # before this one
        if number < until:
            recorder.buckets.fill("b", {f"p/new-{number}": b""})
        return last if number == until else None

    return write


class TestTimeIsUp:
    def test_a_listing_that_never_came_is_no_end(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """X-6: after the first pass, too: nothing was seen, so that nothing is known to be gone."""
        recorder.create_bucket("b", {"p/a": b"", "t": b""})
        recorder.script(lambda request: SLOW_DOWN if is_listing(request) else None)
        step = work(deleter, ACTION, OVER, deadline=lambda: True)

        assert (step.state, step.progress, step.failed_count) == ("more", OVER, 0)
        assert set(recorder.objects("b")) == {"p/a", "t"}

    def test_what_is_left_after_the_first_pass_goes_in_the_next_step(
        self, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """No key that was not tried is reported as one that stays."""
        recorder.create_bucket("b", {**{f"p/{i:04d}": b"" for i in range(1500)}, "t": b""})
        step = work(deleter, ACTION, OVER, deadline=lambda: True)

        assert (step.state, step.failed) == ("more", ())
        assert step.progress == PrefixProgress(1005, FIRST_PASS_OVER)
        assert work(deleter, ACTION, step.progress).state == "done"
        assert recorder.objects("b") == {}

    def test_keys_that_stay_are_not_the_whole_while_others_are_unlisted(
        self, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """A page of nothing but denied keys is no whole pass: what follows it is deleted all the same."""
        recorder.create_bucket("b", {**{f"p/{i:04d}": b"" for i in range(1000)}, "p/z": b""})
        errors = "".join(
            f"<Error><Key>p/{i:04d}</Key><Code>InvalidObjectState</Code></Error>" for i in range(1000)
        )
        refused = Reply(200, f"<DeleteResult>{errors}</DeleteResult>".encode())
        recorder.script(lambda request: refused if len(request.keys) == 1000 else None)
        steps = work_off(deleter, DeletePrefix("b", "p/"), deadline=lambda: True)

        assert (steps[0].state, steps[0].progress.after) == ("more", "p/0999")
        assert (steps[-1].state, steps[-1].progress.gone) == ("done", 1)
        assert len(recorder.objects("b")) == 1000


class TestWritersContinue:
    def test_a_writer_within_the_step_of_the_first_pass_ends_nothing(
        self, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """What came while the first pass went on is deleted by the next step, and not called a failure."""
        recorder.create_bucket("b", {"p/1": b"", "p/2": b"", "p/3": b"", "t": b""})
        late = {"p/4": b"", "p/5": b"", "p/6": b""}

        def write(request: Recorded) -> None:
            if request.keys and late:
                recorder.buckets.fill("b", late)
                late.clear()

        recorder.script(write)
        step = work(deleter, ACTION, max_objects=4)

        assert (step.state, step.failed) == ("more", ())
        assert step.progress == PrefixProgress(4, FIRST_PASS_OVER)
        assert work(deleter, ACTION, step.progress).state == "done"
        assert recorder.objects("b") == {}

    def test_a_slow_writer_does_not_keep_it_going_for_ever(
        self, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """After the first pass a step whose passes all met something new is the last: it says so."""
        recorder.create_bucket("b", {"p/a": b"", "t": b""})
        recorder.script(writing(recorder, 99))
        step = work(deleter, ACTION, OVER, deadline=lambda: len(lists(recorder)) >= 4)

        assert (step.state, "writers keep adding" in step.note) == ("done", True)
        assert {state.code for _, state in step.failed} == {"StillWritten"}
        assert "t" in recorder.objects("b")

    def test_a_writer_that_stops_in_the_last_moment(
        self, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """Where the look at what stands there shows nothing, all is gone, and the tombstone goes."""
        recorder.create_bucket("b", {"p/a": b"", "t": b""})
        recorder.script(writing(recorder, 6))
        step = work(deleter, ACTION)

        assert (step.state, step.failed) == ("done", ())
        assert len(lists(recorder)) == 7
        assert recorder.objects("b") == {}

    @pytest.mark.parametrize(
        ("last", "state", "code"),
        [(SLOW_DOWN, "bucket", "SlowDown"), (Reply(drop=True), "bucket", "ConnectionBroken")],
        ids=["busy", "cut"],
    )
    def test_a_look_that_fails_at_the_end_holds_the_bucket(
        self, last: Reply, state: str, code: str, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """X-13: nobody could name what stands there: it waits, and what went before is counted."""
        recorder.create_bucket("b", {"p/a": b"", "t": b""})
        recorder.script(writing(recorder, 6, last))
        step = work(deleter, ACTION)

        assert step.fault is not None
        assert (step.state, step.fault.kind, step.fault.code) == (state, Kind.BUCKET, code)
        assert (step.progress.after, step.progress.gone > 5) == (FIRST_PASS_OVER, True)
        assert "t" in recorder.objects("b")

    def test_writers_of_versions_that_never_stop(self, recorder: S3Recorder, deleter: BatchDeleter) -> None:
        """Where all versions go, too, it ends and names the keys of those that stand there, each once."""
        recorder.create_bucket("v", {"p/a": b"", "t": b""}, versioning="Enabled")

        def write(request: Recorded) -> None:
            if is_listing(request):
                for _ in range(2):
                    recorder.buckets.fill("v", {f"p/new-{len(lists(recorder))}": b""})

        recorder.script(write)
        step = work(deleter, DeletePrefix("v", "p/", ERASE, tombstone="t"))

        assert (step.state, step.failed_count) == ("done", 1)
        assert [(key, state.code) for key, state in step.failed] == [("p/new-6", "StillWritten")]
        assert len(recorder.versions("v", "t")) == 1


class TestTombstoneStays:
    def test_a_tombstone_that_is_there_again_and_again(
        self, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """A store that shows it after each delete makes the bucket wait: it was not seen to go."""
        recorder.create_bucket("b", {"p/a": b"", "t": b""})
        recorder.script(lambda request: Reply(200) if request.method == "HEAD" else None)
        step = work(deleter, ACTION)

        assert step.fault is not None
        assert (step.state, step.fault.code) == ("bucket", "StillListed")
        assert step.progress.after == FIRST_PASS_OVER

    def test_all_older_versions_of_a_tombstone_may_be_denied(
        self, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """After everything else went that is no policy of the bucket: the tombstone is named, and it ends."""
        recorder.create_bucket("v", {"p/a": b"", "t": b""}, versioning="Enabled")
        for _ in range(2):
            recorder.buckets.fill("v", {"t": b""})
        older = [version.version_id for version in recorder.versions("v", "t")[:-1]]
        errors = "".join(
            f"<Error><Key>t</Key><VersionId>{each}</VersionId><Code>AccessDenied</Code></Error>"
            for each in reversed(older)
        )
        denied = Reply(200, f"<DeleteResult>{errors}</DeleteResult>".encode())
        recorder.script(lambda request: denied if request.keys == ["t", "t"] else None)
        step = work(deleter, DeletePrefix("v", "p/", ERASE, tombstone="t"))

        assert (step.state, [(key, state.code) for key, state in step.failed]) == (
            "done",
            [("t", "AccessDenied")],
        )
        assert len(recorder.versions("v", "t")) == 3


class TestPages:
    def test_a_page_and_what_the_one_before_left_are_two_requests(
        self, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """X-1: the newest version that waits for the next page makes its thousand one more."""
        recorder.create_bucket("v", {f"p/{i:04d}": b"" for i in range(2000)}, versioning="Enabled")
        step = work(deleter, DeletePrefix("v", "p/", ERASE))

        assert (step.state, step.progress.gone, step.note) == ("done", 2000, "")
        assert sorted(len(request.keys) for request in recorder.deletes()) == [1, 999, 1000]
        assert recorder.buckets.of("v").versions == {}

    def test_x_6_a_listing_of_versions_that_fails_is_made_again(
        self, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """X-6: busy or cut, no page is passed over."""
        recorder.create_bucket("v", {f"p/{i}": b"" for i in range(5)}, versioning="Enabled")
        answers = iter([SLOW_DOWN, Reply(drop=True)])
        recorder.script(lambda request: next(answers, None) if is_listing(request) else None)
        step = work(deleter, DeletePrefix("v", "p/", ERASE))

        assert (step.state, step.progress.gone) == ("done", 5)

    @pytest.mark.parametrize("answer", [SLOW_DOWN, Reply(drop=True)], ids=["busy", "cut"])
    def test_x_6_a_page_that_was_listed_ahead_in_vain_is_listed_again(
        self, answer: Reply, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """X-6: the deletes under way end first; what failed beside them is asked for once more."""
        recorder.create_bucket("b", {f"p/{i:04d}": b"" for i in range(1500)})
        recorder.script(lambda request: answer if is_listing(request) and len(lists(recorder)) == 1 else None)
        step = work(deleter, DeletePrefix("b", "p/"))

        assert (step.state, step.progress.gone) == ("done", 1500)
        assert recorder.objects("b") == {}

    def test_what_stays_above_a_locked_version_did_not_come_meanwhile(
        self, recorder: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """Nobody wrote: the versions that each pass meets again are no newcomers."""
        recorder.create_bucket("l", {f"p/{i}": b"1" for i in range(3)}, locks=True)
        recorder.buckets.fill("l", {f"p/{i}": b"2" for i in range(3)})
        for i in range(3):
            recorder.versions("l", f"p/{i}")[0].legal_hold = True
        recorder.buckets.fill("l", {"p/free": b""})
        free = recorder.versions("l", "p/free")[0].version_id
        body = f"<Key>p/free</Key><VersionId>{free}</VersionId><Code>InternalError</Code>"
        failed = iter([Reply(200, f"<DeleteResult><Error>{body}</Error></DeleteResult>".encode())])
        recorder.script(lambda request: next(failed, None) if request.keys == ["p/free"] else None)
        step = work(deleter, DeletePrefix("l", "p/", ERASE))

        assert (step.state, step.failed_count, step.note) == ("done", 3, "")
        assert (step.progress.gone, len(lists(recorder))) == (1, 3)
