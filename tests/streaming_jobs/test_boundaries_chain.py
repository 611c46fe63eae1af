"""Boundary guards on the whole chain: Kafka, Spark's tasks, and a store that records its requests."""

from __future__ import annotations

import io
import json

import pytest
from tests.support.boundaries import BOUNDARY, BUCKET, COMPACTIONS, MANIFESTS, asked, files
from tests.support.chain import Chain
from tests.support.crashes import end_before_receipts
from tests.support.intents import GONE, folded
from tests.support.s3_recorder import S3Recorder

from sexton.schemas import events
from sexton.streaming_jobs.reaper.progress import Progress

pytestmark = [pytest.mark.real, pytest.mark.spark]


def fill(s3: S3Recorder, boundary: bytes = b"3") -> None:
    """Have ten manifests and three compactions stand, and the manifests' boundary."""
    names = [*files(range(1, 11)), *files(range(1, 4), COMPACTIONS)]
    s3.create_bucket(BUCKET, {**dict.fromkeys(names, b"x"), BOUNDARY: boundary})


def ids(s3: S3Recorder) -> list[int]:
    """Return the ids of the manifests that stand."""
    found = (MANIFESTS.id_of(key) for key in s3.objects(BUCKET))
    return sorted(id for id in found if id is not None)


def puts(s3: S3Recorder) -> list[bytes]:
    """Return what was written to the boundary, in order."""
    return [each.body for each in s3.requests if each.method == "PUT" and each.key == BOUNDARY]


@pytest.mark.slow
def test_b_8_a_reaper_that_ends_before_its_receipts_changes_nothing_twice(
    chain: Chain, s3: S3Recorder
) -> None:
    """B-8: raised and deleted, and nobody was told; the next one tells it, and the boundary stays."""
    fill(s3)
    chain.emit(intent := asked([4, 5, 6]))

    end_before_receipts(chain, s3_endpoint_url=s3.url)
    assert (ids(s3), puts(s3)) == ([1, 2, 3, 7, 8, 9, 10], [b"6"])
    chain.reap(s3_endpoint_url=s3.url)

    assert folded(chain, intent) == [GONE]
    assert (ids(s3), puts(s3), s3.objects(BUCKET)[BOUNDARY]) == ([1, 2, 3, 7, 8, 9, 10], [b"6"], b"6")
    assert chain.dead_letters() == []


@pytest.mark.slow
def test_b_2_b_3_b_11_tasks_of_a_micro_batch_raise_one_boundary(chain: Chain, s3: S3Recorder) -> None:
    """Intents of three partitions, a bad one and one of another namespace: the highest that passed stands."""
    fill(s3)
    intents = {
        0: asked([4, 5], name="a"),
        1: asked([8], name="b"),
        2: asked([6], name="c"),
    }
    bad = asked([9], 2**62, name="bad")
    other = asked([1, 2], name="other", space=COMPACTIONS)
    for partition, intent in intents.items():
        chain.emit(intent, partition=partition)
    chain.emit(bad, other, partition=1)

    chain.reap(s3_endpoint_url=s3.url)

    words = chain.words()
    assert words == {"a": "deleted", "b": "deleted", "c": "deleted", "bad": "refused", "other": "deleted"}
    assert ids(s3) == [1, 2, 3, 7, 9, 10]
    assert (s3.objects(BUCKET)[BOUNDARY], s3.objects(BUCKET)[COMPACTIONS.boundary_key]) == (b"8", b"2")
    assert len(puts(s3)) <= 2 * len(intents)  # one for each task, and one more where it lost a race
    reasons = {outcome.intent_id: outcome.verdict.reason for outcome in chain.outcomes()}
    assert reasons["bad"] == "newest-file"


@pytest.mark.slow
def test_b_4_b_11_a_boundary_that_was_set_back_is_named(chain: Chain, s3: S3Recorder) -> None:
    """Restored from a backup: nothing is done, the log names the namespace; mended by a person it goes on."""
    fill(s3, b"1")
    chain.emit(intent := asked([4, 5], floor=3))
    out = io.StringIO()

    counts = chain.reap(Progress(out), s3_endpoint_url=s3.url, reaper_defer_delays_s=(0.1,) * 3)

    assert (ids(s3), puts(s3), counts.intents["deferred"] > 0) == (list(range(1, 11)), [], True)
    said = [
        line for line in map(json.loads, out.getvalue().splitlines()) if line["event"] == "boundary_set_back"
    ]
    assert {line["namespace"] for line in said} == {"bucket/db/manifest"}
    assert "was 3" in said[0]["found"]
    deferred: events.DeferredIntent = chain.deferred()[-1]
    assert (deferred.reason, deferred.waiting_since) == ("boundary-lowered", None)

    s3.buckets.fill(BUCKET, {BOUNDARY: b"3"})
    chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=(0.1,) * 3)

    assert folded(chain, intent) == [GONE]
    assert (ids(s3), puts(s3)) == ([1, 2, 3, 6, 7, 8, 9, 10], [b"5"])
