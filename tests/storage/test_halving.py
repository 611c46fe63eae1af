"""A batch that is refused for its content: halved until the culprit stands alone, and every key told of."""

from __future__ import annotations

import pytest
from tests.storage.conftest import BUCKET
from tests.support.s3_recorder import Recorded, Reply, S3Recorder

from sexton.storage import BatchDeleter, BatchResult, Effect, Kind, narrowing

MALFORMED = Reply(400, b"<Error><Code>MalformedXML</Code></Error>")


def kinds(result: BatchResult) -> list[Kind]:
    """Return the kind of each item."""
    return [result.state(i).kind for i in range(result.count)]


def test_of_two_keys_one_spoils_the_batch(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """The other one is not told to have failed with it: it goes alone."""
    s3.create_bucket(BUCKET, {"bad": b"", "good": b""})
    s3.script(lambda request: MALFORMED if "bad" in request.keys else None)
    result = deleter.delete_all(BUCKET, ["bad", "good"]).result(10)

    assert (kinds(result), set(s3.objects(BUCKET))) == ([Kind.FINAL, Kind.GONE], {"bad"})


def test_what_is_left_when_the_search_ends_waits(
    s3: S3Recorder, deleter: BatchDeleter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that was not sent any more is not gone: it waits with its bucket, and its object is there."""
    monkeypatch.setattr(narrowing, "_MOST_HALVINGS", 3)
    keys = [f"k{i}" for i in range(16)]
    s3.create_bucket(BUCKET, dict.fromkeys(keys, b""))
    s3.script(lambda request: MALFORMED if "k0" in request.keys else None)
    result = deleter.delete_all(BUCKET, keys).result(10)

    assert set(s3.objects(BUCKET)) == {"k0", "k1", "k2", "k3"}
    assert kinds(result) == [Kind.BUCKET] * 4 + [Kind.GONE] * 12
    assert result.state(0).effect is Effect.NONE
    assert result.requests == len(s3.deletes()) == 4


def test_a_half_of_unknown_effect_stays_one(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """Beside parts that are refused, one that broke off may have been done: that is reported of its keys."""
    s3.create_bucket(BUCKET, {"a": b"", "b": b""})

    def answer(request: Recorded) -> Reply:
        return Reply(drop=True, act_first=True) if request.keys == ["a"] else MALFORMED

    s3.script(answer)
    result = deleter.delete_all(BUCKET, ["a", "b"]).result(10)

    assert (kinds(result), result.effect) == ([Kind.UNKNOWN, Kind.FINAL], Effect.UNKNOWN)
    assert (result.state(0).effect, set(s3.objects(BUCKET))) == (Effect.UNKNOWN, {"b"})
