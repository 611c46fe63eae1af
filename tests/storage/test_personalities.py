"""One contract for all named stores: keys are deleted or truthfully reported, whatever the store calls it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.execute_stage import execution
from tests.support.personalities import PERSONALITIES, Personality
from tests.support.s3_recorder import S3Recorder
from tests.support.tried import executed

from sexton.deploy.doctor import try_bucket
from sexton.schemas.errors import SextonError
from sexton.schemas.events import DeleteMode, DeletePrefix, OutcomeKind
from sexton.schemas.settings import Settings, load
from sexton.storage import BatchDeleter, StoreSettings
from sexton.storage.probing import PREFIX
from sexton.streaming_jobs.reaper.actions.delete_prefix.execution import PrefixExecution
from sexton.streaming_jobs.reaper.execute.result import Result

MakeDeleter = Callable[[StoreSettings], BatchDeleter]
GONE = (OutcomeKind.DELETED, OutcomeKind.ABSENT)
PLAIN = [f"k{n:03d}" for n in range(25)]
ODD = ["with space", "a+b", "ctl\x01b"]
MOST_REQUESTS = 250  # with those of the probe

each_store = pytest.mark.parametrize("store", PERSONALITIES.values(), ids=PERSONALITIES)


@pytest.fixture
def play(s3: S3Recorder, make_deleter: MakeDeleter) -> Callable[..., BatchDeleter]:
    """Let the recorder be a store that holds some keys, and return a deleter for it."""

    def play(store: Personality, *keys: str) -> BatchDeleter:
        s3.buckets._buckets.clear()
        store.play(s3, dict.fromkeys(keys, b""))
        return make_deleter(StoreSettings(s3.url, requests_in_flight=2))

    return play


def is_true(result: Result, keys: list[str], left: set[str]) -> bool:
    """Return whether what is said of the keys is so: those that are said to be gone are, and no others."""
    said = Counter({kind: count for kind, count in result.counts.items() if count})
    gone = sum(said[kind] for kind in GONE)
    kept = {key for key, outcome in result.named if outcome.kind not in GONE}
    return result.held is None and gone + len(kept) == len(keys) and left == kept - {"absent"}


@each_store
def test_p_4_keys_are_deleted_or_truthfully_reported(
    store: Personality, s3: S3Recorder, play: Callable[..., BatchDeleter]
) -> None:
    """P-4, P-10: of each key what is said is so, in a bounded number of requests, and nothing is held."""
    keys = [*PLAIN, *ODD, "absent"]
    deleter = play(store, *PLAIN, *ODD)

    executor, (first, again) = executed(
        deleter, execution(keys[:20], bucket=store.bucket), execution(keys[10:], bucket=store.bucket)
    )

    left = set(s3.objects(store.bucket))
    assert is_true(first, keys[:20], left & set(keys[:20]))
    assert is_true(again, keys[10:], left & set(keys[10:]))
    assert executor.failing() == {}
    assert len(s3.requests) <= MOST_REQUESTS
    if store.ends == "dead":
        assert {outcome.kind for _, outcome in again.named} == {OutcomeKind.DEAD_LETTERED}
        assert s3.requests == []
    else:
        assert left <= set(ODD)
    for key in set(PLAIN) - left:
        markers = [version for version in s3.versions(store.bucket, key) if version.is_marker]
        assert len(markers) == bool(store.versioning)


@each_store
def test_p_4_the_way_is_found_once(
    store: Personality, s3: S3Recorder, play: Callable[..., BatchDeleter]
) -> None:
    """P-4: the second batch goes at the first try, the way that the first one has found."""
    deleter = play(store, *PLAIN)
    states = deleter.delete_all(store.bucket, PLAIN[:5]).result(20).states
    while any(state.code in ("SlowDown", "503", "InternalError") for state in states.values()):
        states = deleter.delete_all(store.bucket, PLAIN[:5]).result(20).states
    asked = len(s3.requests)
    deleter.delete_all(store.bucket, PLAIN[20:]).result(20)

    ways = {request.method for request in s3.requests[asked:]}
    assert len(ways) <= 1
    assert len(s3.requests) - asked <= (5 if ways == {"DELETE"} else 1)


@each_store
def test_p_3_a_prefix_is_deleted_or_truthfully_reported(
    store: Personality, s3: S3Recorder, play: Callable[..., BatchDeleter]
) -> None:
    """P-3: a listing that is not exact leads to no delete, and the reason is told."""
    deleter = play(store, "p/a", "p/b c", "q")

    executor, (result,) = executed(deleter, PrefixExecution(DeletePrefix(store.bucket, "p/")))

    left = set(s3.objects(store.bucket))
    reasons = {outcome.reason for _, outcome in result.named}
    assert result.held is None
    assert executor.failing() == {}
    assert (left == {"q"}) == (not reasons)
    assert left == {"q"} or (
        left == {"p/a", "p/b c", "q"} and reasons <= {"NoDate", "UnreadableKey", "UnsupportedBucket"}
    )


@each_store
def test_p_4_all_versions_go_or_the_reason_is_told(
    store: Personality, s3: S3Recorder, play: Callable[..., BatchDeleter]
) -> None:
    """P-4: one intent that a store cannot execute holds up no other of its bucket."""
    deleter = play(store, "v", "w", "p/a")

    executor, (all_versions, plain, prefix) = executed(
        deleter,
        execution(["v"], bucket=store.bucket, mode=DeleteMode.ERASE_ALL_VERSIONS),
        execution(["w"], bucket=store.bucket),
        PrefixExecution(DeletePrefix(store.bucket, "p/", mode=DeleteMode.ERASE_ALL_VERSIONS)),
    )

    left = set(s3.objects(store.bucket))
    assert is_true(all_versions, ["v"], left & {"v"})
    assert prefix.held is None
    assert ("p/a" in left) == bool(prefix.named)
    assert is_true(plain, ["w"], left & {"w"})
    assert executor.failing() == {}


def asked(settings: Settings, bucket: str) -> tuple[str, str]:
    """Return what the doctor says of a bucket, and its hint."""
    try:
        return try_bucket(settings, bucket), ""
    except SextonError as error:
        return str(error), error.hint or ""


@each_store
def test_the_doctor_says_a_clear_word(
    store: Personality, s3: S3Recorder, play: Callable[..., BatchDeleter]
) -> None:
    """The doctor tells what the store can do, or what is wrong and what to do, and cleans up."""
    play(store, "theirs")
    settings = load({"SEXTON_S3_ENDPOINT_URL": s3.url})
    said, hint = asked(settings, store.bucket)
    assert said.startswith("list, put and delete work; CRC32: ") or (store.bucket in said and hint)
    own = [key for key in s3.buckets.of(store.bucket).versions if PREFIX in key]
    assert own == []
    assert "theirs" in s3.objects(store.bucket)


def test_p_4_a_listing_of_objects_is_none_of_versions(
    s3: S3Recorder, play: Callable[..., BatchDeleter]
) -> None:
    """P-4: nothing is erased by it, the intent is refused, and the bucket's others go on."""
    store = replace(PERSONALITIES["Apache Ozone, older"], versioning="Enabled")

    executor, (all_versions, plain) = executed(
        play(store, "v", "w"),
        execution(["v"], bucket=store.bucket, mode=DeleteMode.ERASE_ALL_VERSIONS),
        execution(["w"], bucket=store.bucket),
    )

    assert [(key, outcome.kind.value) for key, outcome in all_versions.named if outcome.kind] == [
        ("v", "refused")
    ]
    assert (plain.held, executor.failing(), set(s3.objects(store.bucket))) == (None, {}, {"v"})
