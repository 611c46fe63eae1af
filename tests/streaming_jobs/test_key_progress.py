"""What is known of each key of an intent that waited: what is gone is not sent again, every outcome is
true.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.chain import Chain, forget_last_commit
from tests.support.crashes import markers, without_a_look_back
from tests.support.intents import PROMISE, outcome, promised
from tests.support.replies import SLOW_DOWN, on_deletes
from tests.support.s3_recorder import Recorded, Reply, S3Recorder
from tests.support.s3_state import Traits, etag_of

from sexton.schemas import events, records
from sexton.schemas.events import DeleteMode, DeleteObjects, KeyCondition, OutcomeKind
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt
from sexton.streaming_jobs.reaper.recovery.key_progress import before_of, progress_of

on_real_parts = [pytest.mark.real, pytest.mark.spark]
DONE = [(OutcomeKind.DELETED, "hidden"), (OutcomeKind.DELETED, "erased"), (OutcomeKind.ABSENT, "absent")]
STATES = st.lists(st.lists(st.sampled_from([*DONE, "unknown", "left"]), max_size=8), min_size=1, max_size=4)


@given(STATES, st.booleans())
def test_progress_is_read_as_it_was_written(phases: list[list[Any]], since: bool) -> None:
    """Every key is done, of unknown effect or left, as it was, and left keys keep their phases.

    Since when one may have been sent is only told where it is known of all.
    """
    names = [[f"k{at}-{n}" for n in range(len(phase))] for at, phase in enumerate(phases)]
    states = [state for phase in phases for state in phase]
    keys = [name for phase in names for name in phase]
    done = {n: state for n, state in enumerate(states) if isinstance(state, tuple)}
    unknown = {n: Attempt(1e9 + n) for n, state in enumerate(states) if state == "unknown"}
    if unknown and not since:
        unknown[max(unknown)] = Attempt()

    written = progress_of(done, unknown, ["r1"])
    assert written is not None
    read = before_of(DeleteObjects("b", names), written)

    assert read.done == done
    assert read.unknown == {keys[n] for n in unknown}
    assert read.sent_since == (1e9 + min(unknown) if unknown and since else None)
    not_done = {keys[n] for n in range(len(keys)) if n not in done}
    assert read.left == [[name for name in phase if name in not_done] for phase in names]


def test_progress_says_the_same_in_whatever_order_keys_were_done() -> None:
    """What was done before comes first, by its outcome; ranges that ran backwards would not be believed."""
    action = DeleteObjects("b", [[f"k{n}" for n in range(6)]])
    done = {4: DONE[0], 5: DONE[0], 1: DONE[2], 0: DONE[0], 3: DONE[2]}

    written = progress_of(done, {2: Attempt()}, [])
    assert written is not None

    assert written == progress_of(dict(sorted(done.items())), {2: Attempt()}, [])
    assert before_of(action, written).done == done


def test_too_many_ranges_are_not_written() -> None:
    """A copy stays within a record's limit: then nothing is said of single keys."""
    every_other = dict.fromkeys(range(0, 120000, 2), DONE[0])

    assert progress_of(every_other, {}, []) is None
    assert progress_of({}, dict.fromkeys(every_other, Attempt()), []) is None
    half = dict.fromkeys(range(0, 60_000, 2), Attempt())
    assert progress_of(dict.fromkeys(range(1, 60_000, 2), DONE[0]), half, []) is None
    assert progress_of(dict.fromkeys(range(120_000), DONE[0]), {}, [str(n) for n in range(300)]) == (
        events.KeyProgress(
            [events.DoneKeys(*DONE[0], [0, 120_000])], [], None, [str(n) for n in range(200, 300)]
        )
    )


@pytest.mark.parametrize(
    "progress",
    [
        events.KeyProgress([events.DoneKeys(*DONE[0], [0, 4])], [], None, []),
        events.KeyProgress([events.DoneKeys(*DONE[0], [-1, 1])], [], None, []),
        events.KeyProgress([events.DoneKeys(*DONE[0], [2, 1])], [], None, []),
        events.KeyProgress([events.DoneKeys(*DONE[0], [0])], [], None, []),
        events.KeyProgress(
            [events.DoneKeys(*DONE[0], [0, 1]), events.DoneKeys(*DONE[2], [0, 2])], [], None, []
        ),
        events.KeyProgress([events.DoneKeys(OutcomeKind.CHANGED, "", [0, 1])], [], None, []),
        events.KeyProgress([], [3, 9], None, []),
    ],
)
def test_progress_that_does_not_fit_is_refused(progress: events.KeyProgress) -> None:
    """A key that is not the intent's, or has two outcomes, is never taken for gone."""
    with pytest.raises(ValueError, match=r"keys|gone|twice"):
        before_of(DeleteObjects("b", [["a", "b"], ["c"]]), progress)


class TestWithAReaper:
    """The same through the whole chain."""

    pytestmark = on_real_parts

    @pytest.mark.parametrize("versioning", ["", "Enabled"])
    @pytest.mark.slow
    def test_x_4_what_is_gone_is_not_sent_again(self, chain: Chain, s3: S3Recorder, versioning: str) -> None:
        """X-4: the key that was busy goes alone when it comes back; its neighbours are not even verified."""
        names = ["a", "b", "busy"]
        s3.create_bucket("bucket", dict.fromkeys(names, b"x"), versioning=versioning)
        s3.buckets.traits = Traits(failing={"busy": "SlowDown"})
        (intent_id,) = chain.emit(promised(chain, *names))
        hold(chain, s3)
        s3.buckets.fill("bucket", {"a": b"new"})
        before = len(s3.requests)

        come_back(chain, s3)

        assert [r.keys for r in s3.deletes()][-1] == ["busy"]
        again = s3.requests[before:]
        assert {r.key for r in again} | {key for r in again for key in r.keys} <= {"", "busy"}
        assert s3.objects("bucket") == {"a": b"new"}
        found = outcome(chain, intent_id)
        effect = "hidden" if versioning else "deleted"
        assert (found.counts, found.effects, found.exceptions) == ({"deleted": 3}, {effect: 3}, [])
        assert len(found.store_request_ids) >= 2
        if versioning:
            assert markers(s3, "bucket", names) == dict.fromkeys(names, 1)

    @pytest.mark.slow
    def test_x_19_each_key_keeps_its_own_word(self, chain: Chain, s3: S3Recorder) -> None:
        """X-19: of three conditions one was carried out unseen, one never held, and one held: all told."""
        names = ["unseen", "changed", "gone"]
        s3.create_bucket("bucket", dict.fromkeys(names, b"x"))
        conditions = [KeyCondition(name, etag_of(b"y" if name == "changed" else b"x")) for name in names]
        guards = (*PROMISE, events.UnchangedGuard(conditions))
        (intent_id,) = chain.emit(chain.intent("t", None, (), guards=guards, action=delete(names)))
        s3.script(unsure_of("unseen", "changed"))
        hold(chain, s3)
        (keys,) = [d.keys for d in chain.deferred() if d.keys]
        assert (keys.unknown, keys.sent_since is not None) == ([0, 1], True)
        s3.script(None)
        s3.buckets.fill("bucket", {"unseen": b"new"})

        come_back(chain, s3)

        found = outcome(chain, intent_id)
        assert found.counts == {"absent": 1, "changed": 1, "deleted": 1}
        assert {(e.key, e.outcome.value) for e in found.exceptions} >= {
            ("unseen", "absent"),
            ("changed", "changed"),
        }
        assert sorted(s3.objects("bucket")) == ["changed", "unseen"]

    def test_x_16_phases_go_on_where_they_stood(self, chain: Chain, s3: S3Recorder) -> None:
        """X-16: a phase that is gone is not sent again; the next one continues with what is left of it."""
        names = ["meta", "a", "busy", "last"]
        s3.create_bucket("bucket", dict.fromkeys(names, b"x"))
        s3.buckets.traits = Traits(failing={"busy": "SlowDown"})
        action = DeleteObjects("bucket", (("meta",), ("a", "busy"), ("last",)))
        (intent_id,) = chain.emit(chain.intent("t", None, (), guards=PROMISE, action=action))
        hold(chain, s3)
        assert sorted(s3.objects("bucket")) == ["busy", "last"]
        sent = len(s3.deletes())

        come_back(chain, s3)

        assert [r.keys for r in s3.deletes()][sent:] == [["busy"], ["last"]]
        assert (outcome(chain, intent_id).counts, s3.objects("bucket")) == ({"deleted": 4}, {})

    @pytest.mark.slow
    def test_x_18_what_is_gone_stays_gone_when_the_rest_is_refused(
        self, chain: Chain, s3: S3Recorder
    ) -> None:
        """X-18: the allow-list was made narrower while it waited: the outcome tells both."""
        s3.create_bucket("bucket", {"a": b"x", "busy": b"x"})
        s3.buckets.traits = Traits(failing={"busy": "SlowDown"})
        (intent_id,) = chain.emit(promised(chain, "a", "busy"))
        hold(chain, s3)

        come_back(chain, s3, allow="another-bucket")

        found = outcome(chain, intent_id)
        assert (found.outcome, found.counts) == ("refused", {"deleted": 1, "refused": 1})
        assert [(e.key, e.outcome) for e in found.exceptions] == [("busy", "refused")]

    @pytest.mark.slow
    def test_x_19_what_may_be_gone_is_looked_at_before_the_rest_is_refused(
        self, chain: Chain, s3: S3Recorder
    ) -> None:
        """X-19, I7: of two keys of unknown effect one is gone: `absent`, and only the other is refused."""
        s3.create_bucket("bucket", {"unseen": b"x", "there": b"x"})
        (intent_id,) = chain.emit(promised(chain, "unseen", "there"))
        s3.script(unsure_of("unseen", "there", "InternalError"))
        hold(chain, s3)
        s3.script(None)
        s3.buckets.fill("bucket", {"there": b"x"})

        come_back(chain, s3, allow='["another-bucket"]')

        found = outcome(chain, intent_id)
        assert (found.outcome, found.counts) == ("refused", {"absent": 1, "refused": 1})
        assert found.effects == {"absent": 1}

    def test_i_7_slices_of_a_prefix_are_counted_when_the_rest_is_refused(
        self, chain: Chain, s3: S3Recorder
    ) -> None:
        """I7: what went in earlier slices has its receipt."""
        s3.create_bucket("bucket", {f"p/{n:02d}": b"x" for n in range(25)})
        action = events.DeletePrefix("bucket", "p/")
        (intent_id,) = chain.emit(chain.intent("t", None, (), guards=PROMISE, action=action))
        chain.reap(s3_endpoint_url=s3.url, reaper_prefix_slice=10, reaper_defer_delays_s=(3600.0,))
        assert [d.gone for d in chain.deferred()] == [10]

        come_back(chain, s3, allow='["another-bucket"]')

        found = outcome(chain, intent_id)
        assert (found.outcome, found.counts) == ("refused", {"deleted": 10, "refused": 1})

    def test_x_11_a_key_of_two_phases_is_one_delete_also_after_a_wait(
        self, chain: Chain, s3: S3Recorder
    ) -> None:
        """X-11: named in the next phase again, and written anew meanwhile: not sent, no second marker."""
        s3.create_bucket("bucket", dict.fromkeys(["m", "busy", "d"], b"x"), versioning="Enabled")
        s3.buckets.traits = Traits(failing={"busy": "SlowDown"})
        action = DeleteObjects("bucket", (("m", "busy"), ("m", "d")))
        (intent_id,) = chain.emit(chain.intent("t", None, (), guards=PROMISE, action=action))
        hold(chain, s3)
        s3.buckets.fill("bucket", {"m": b"new"})

        come_back(chain, s3)

        assert markers(s3, "bucket", ["m", "busy", "d"]) == {"m": 1, "busy": 1, "d": 1}
        assert s3.objects("bucket") == {"m": b"new"}
        assert outcome(chain, intent_id).counts == {"deleted": 4}

    @pytest.mark.parametrize("mode", [DeleteMode.HIDE, DeleteMode.ERASE_ALL_VERSIONS])
    @pytest.mark.slow
    def test_past_the_age_limit_what_is_gone_keeps_its_word(
        self, chain: Chain, s3: S3Recorder, mode: DeleteMode
    ) -> None:
        """X-19: the dead letter names the key that is still there, alone."""
        s3.create_bucket("bucket", {"a": b"x", "busy": b"x"}, versioning="Enabled")
        busy = Traits(failing={"busy": "SlowDown"})
        s3.buckets.traits = busy
        action = DeleteObjects("bucket", (("a", "busy"),), mode)
        (intent_id,) = chain.emit(chain.intent("t", None, (), guards=PROMISE, action=action))
        hold(chain, s3)

        come_back(chain, s3, busy, reaper_age_limit_s=0.001, reaper_patience_s=0.3)

        assert [d.keys for d in chain.dead_letters()] == [["busy"]]
        found = outcome(chain, intent_id)
        assert found.counts == {"deleted": 1, "dead-lettered": 1}
        assert found.effects == {"hidden" if mode is DeleteMode.HIDE else "erased": 1}

    def test_x_11_a_copy_that_is_older_than_a_replay(self, chain: Chain, s3: S3Recorder) -> None:
        """X-11, X-14: killed between sink and commit: the replay deletes, and the copy is verified first."""
        s3.create_bucket("bucket", {"a": b"x"}, versioning="Enabled")
        s3.script(on_deletes(lambda request: SLOW_DOWN))
        (intent_id,) = chain.emit(promised(chain, "a"))
        hold(chain, s3)
        assert [d.keys.unknown for d in chain.deferred() if d.keys] == [[]]
        forget_last_commit(chain)
        s3.script(None)

        with without_a_look_back():
            come_back(chain, s3)

        assert markers(s3, "bucket", ["a"]) == {"a": 1}
        assert {found.outcome.value for found in chain.outcomes()} <= {"deleted", "absent"}
        assert len(chain.outcomes()) == 2
        assert {found.intent_id for found in chain.outcomes()} == {intent_id}

    def test_a_copy_that_does_not_fit_its_intent_is_a_dead_letter(self, chain: Chain, s3: S3Recorder) -> None:
        """Ranges beyond the intent's keys: nothing is sent, the raw bytes are kept."""
        s3.create_bucket("bucket", {"a": b"x"})
        intent = promised(chain, "a")
        position = events.Position(chain.topic_id(records.INTENTS), 0, 0)
        value = chain.codec.encode(intent)
        keys = events.KeyProgress([events.DoneKeys(OutcomeKind.DELETED, "deleted", [0, 2])], [], None, [])
        copy = events.DeferredIntent(position, intent.emitted_at, "test", "", 1, None, None, value, keys=keys)
        chain.emit(promised(chain, "x"))
        chain.produce(chain.codec.encode(copy), partition=0, topic=records.DEFERRED)

        come_back(chain, s3)

        (dead,) = chain.dead_letters()
        assert (dead.reason, dead.intent_id, dead.raw_value) == ("malformed", intent.intent_id, value)
        assert s3.objects("bucket") == {"a": b"x"}


def delete(names: list[str]) -> DeleteObjects:
    """A deletion of these keys in one phase."""
    return DeleteObjects("bucket", (tuple(names),))


def hold(chain: Chain, s3: S3Recorder) -> None:
    """Run a reaper whose only intent is held."""
    chain.reap(s3_endpoint_url=s3.url, reaper_patience_s=0.3, reaper_defer_delays_s=(3600.0,))
    assert (chain.outcomes(), len(chain.deferred())) == ([], 1)


def come_back(chain: Chain, s3: S3Recorder, traits: Traits | None = None, **given: Any) -> None:
    """Run a reaper for what waits, on a store that is well again or has these traits."""
    s3.buckets.traits = traits or Traits()
    chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=(0.001,), **given)


def unsure_of(name: str, other: str, code: str = "PreconditionFailed") -> Any:
    """A script of a store that deletes once says that one key failed, and is busy with it since."""
    answers: list[str] = []

    def script(request: Recorded) -> Reply | None:
        if not request.is_delete_objects or request.is_probe or name not in request.keys:
            return None
        if answers:
            return SLOW_DOWN
        codes = {name: "InternalError", other: code}
        answers.extend(
            f"<Error><Key>{key}</Key><Code>{codes[key]}</Code></Error>"
            if key in codes
            else f"<Deleted><Key>{key}</Key></Deleted>"
            for key in request.keys
        )
        return Reply(200, f"<DeleteResult>{''.join(answers)}</DeleteResult>".encode(), act_first=True)

    return script
