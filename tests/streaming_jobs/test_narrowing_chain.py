"""Pauses, units and narrowed prefixes on the whole chain: Kafka, a reaper, and a store with its own clock."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.chain import Chain
from tests.support.crashes import end_before_receipts
from tests.support.intents import GONE, PROMISE, folded
from tests.support.s3_recorder import Recorded, S3Recorder
from tests.support.s3_state import Traits

from sexton.schemas import events

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.faults]

HOUR = timedelta(hours=1)
SOON = (0.5, 60.0)


def asked(chain: Chain, action: events.Action, *vetoes: events.Veto) -> events.DeletionIntent:
    """An intent that its owner's promise lets pass."""
    return replace(chain.intent("t", None, (), guards=PROMISE, action=action), vetoes=vetoes)


def phased(pause_s: int, *phases: tuple[str, ...]) -> events.DeleteObjects:
    """Phases of keys with a pause between them."""
    return events.DeleteObjects("bucket", phases, pause_s=pause_s)


@contextmanager
def writing(s3: S3Recorder, prefix: str) -> Iterator[None]:
    """Something writes new objects under a prefix, without an end."""
    ended, number = threading.Event(), itertools.count()

    def write() -> None:
        while not ended.wait(0.02):
            s3.create_bucket("bucket", {f"{prefix}new-{next(number):05}": b"x"})

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_g_8_a_promised_prefix_that_is_written_to_for_ever_ends(chain: Chain, s3: S3Recorder) -> None:
    """G-8: what came later stays and is reported; suffix, instant and vetoes of others are kept beside it."""
    old = ["p/1", "p/2", "q/a.23", "q/a.24", "r/old", "r/new", "s/1", "u/1", "new"]
    s3.create_bucket("bucket", dict.fromkeys(old, b"x"))
    for name in old:
        s3.buckets.of("bucket").versions[name][-1].written_at -= 600 if name != "r/new" else 60
    intents = [
        asked(chain, events.DeletePrefix("bucket", "p/", tombstone="p-tombstone")),
        asked(chain, events.DeletePrefix("bucket", "q/", suffix=".23")),
        asked(
            chain,
            events.DeletePrefix("bucket", "r/", written_before=datetime.now(UTC) - timedelta(minutes=5)),
        ),
        asked(chain, events.DeletePrefix("bucket", "s/"), events.ExpiresAt(datetime.now(UTC) - HOUR)),
        asked(chain, events.DeletePrefix("bucket", "u/"), events.OnlyWhileExists("new")),
    ]
    chain.emit(*intents)

    with writing(s3, "p/"):
        chain.reap(s3_endpoint_url=s3.url)

    assert folded(chain, *intents) == [GONE, GONE, GONE, "cancelled", GONE]
    outcomes = {outcome.intent_id: outcome for outcome in chain.outcomes()}
    late = [outcomes[each.intent_id].effects.get("written-later", 0) for each in intents]
    assert late[0] > 0
    assert late[1:] == [0, 1, 0, 0]
    assert "stay" in outcomes[intents[0].intent_id].verdict.detail
    left = {name for name in s3.objects("bucket") if not name.startswith("p/new-")}
    assert left == {"q/a.24", "r/new", "s/1", "new"}
    assert any(name.startswith("p/new-") for name in s3.objects("bucket"))
    assert (chain.dead_letters(), chain.deferred()) == ([], [])


def test_pauses_over_restarts_and_crashes(chain: Chain, s3: S3Recorder) -> None:
    """A pause waits in the delay queue; a crash before its copy counts it anew, and none is shortened."""
    names = ["c1", "d1", "c2", "d2", "e2"]
    s3.create_bucket("bucket", dict.fromkeys(names, b"x"))
    long = asked(chain, phased(3600, ("c1",), ("d1",)))
    short = asked(chain, phased(2, ("c2",), ("d2",), ("e2",)))
    chain.emit(long, short)
    end_before_receipts(chain, s3_endpoint_url=s3.url)
    assert sorted(s3.objects("bucket")) == ["d1", "d2", "e2"]
    restarted, sent = datetime.now(UTC), dict[str, float]()

    def note(request: Recorded) -> None:
        sent.update(dict.fromkeys(request.keys, time.monotonic()))

    s3.script(note)
    for _ in range(10):
        chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=SOON)
        if "e2" in sent:
            break
        time.sleep(0.5)

    assert folded(chain, long, short) == ["pending", GONE]
    assert sorted(s3.objects("bucket")) == ["d1"]
    copies = chain.deferred()
    assert {copy.reason for copy in copies} == {"paused"}
    assert sent["e2"] - sent["d2"] >= 2.0
    first = [copy.resumes_at for copy in copies if b"d1" in copy.raw_value]
    assert len(first) == 1  # it is not written again while it waits
    assert first[0] is not None
    assert first[0] >= restarted + HOUR


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0], ids=["behind", "ahead"])
def test_a_store_whose_clock_is_off_shortens_no_pause(chain: Chain, s3: S3Recorder, ahead_s: float) -> None:
    """By the clock that is ahead, and passed once both have: an hour more, never a second less."""
    s3.create_bucket("bucket", dict.fromkeys(["c", "d"], b"x"))
    s3.buckets.traits = Traits(clock_s=ahead_s)
    intent = asked(chain, phased(1, ("c",), ("d",)))
    began = datetime.now(UTC)
    chain.emit(intent)

    chain.reap(s3_endpoint_url=s3.url)

    assert (folded(chain, intent), list(s3.objects("bucket"))) == (["pending"], ["d"])
    (copy,) = chain.deferred()
    assert copy.resumes_at is not None
    assert copy.resumes_at >= began + timedelta(seconds=1 + max(ahead_s, 0) - 1)
    assert copy.retry_at is not None
    assert copy.retry_at >= began + HOUR - timedelta(seconds=2)


def test_units_are_deleted_unless_they_are_whole(chain: Chain, s3: S3Recorder) -> None:
    """Put back whole: kept; put back in part: the commit object goes first; unreadable: it waits."""
    files = [{"rel_path": "index", "size_bytes": 5}, {"rel_path": "chunks/000001", "size_bytes": 5}]
    meta = json.dumps({"version": 1, "thanos": {"files": files}}).encode()
    units = ["whole", "half", "odd"]
    for unit in units:
        s3.create_bucket("bucket", {f"{unit}/index": b"12345", f"{unit}/chunks/000001": b"12345"})
    s3.create_bucket("bucket", {"whole/meta.json": meta, "half/meta.json": meta, "odd/meta.json": b"{"})
    s3.buckets.of("bucket").versions.pop("half/index")
    intents = [
        asked(
            chain,
            phased(0, (f"{unit}/index", f"{unit}/chunks/000001", f"{unit}/meta.json")),
            events.UnlessWhole(f"{unit}/meta.json"),
        )
        for unit in units
    ]
    chain.emit(*intents)

    chain.reap(s3_endpoint_url=s3.url)

    assert folded(chain, *intents) == ["cancelled", GONE, "pending"]
    assert sorted(s3.objects("bucket")) == sorted(
        f"{unit}/{name}" for unit in ("whole", "odd") for name in ("chunks/000001", "index", "meta.json")
    )

    def first(request: Recorded) -> bool:
        return any("half/" in key for key in request.keys)

    assert next(request.keys for request in s3.requests if first(request)) == ["half/meta.json"]
    assert {copy.reason for copy in chain.deferred()} == {"veto-unknown"}
