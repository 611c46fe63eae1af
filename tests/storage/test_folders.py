"""Stores that take the folder object `dir/` away with the key `dir`: each key is verified first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.s3_recorder import Recorded, Reply, S3Recorder

from sexton.storage import Ability, BatchDeleter, Effect, Kind, StoreSettings
from sexton.storage.abilities import unprobed

KEYS = ["folder", "beside", "x/", "absent"]


@pytest.fixture
def strict(s3: S3Recorder, deleter: BatchDeleter) -> BatchDeleter:
    """A deleter that knows its store to keep no folder objects."""
    s3.create_bucket("bucket", {"folder/": b"", "beside": b"1", "x/": b"2"})
    deleter.learn(replace(unprobed("bucket", is_aws=True), keeps_folders=Ability.NO))
    return deleter


def test_x_9_a_key_beside_a_folder_object_is_not_sent(s3: S3Recorder, strict: BatchDeleter) -> None:
    """X-9: the key whose folder object would go with it is refused; its neighbours have their own states."""
    result = strict.delete_all("bucket", KEYS).result(10)

    found = [(result.state(i).kind, result.state(i).code) for i in range(len(KEYS))]
    assert found == [(Kind.REFUSED, "FoldedKey"), (Kind.GONE, ""), (Kind.GONE, ""), (Kind.GONE, "")]
    assert [request.keys for request in s3.deletes()] == [["beside", "x/", "absent"]]
    assert list(s3.objects("bucket")) == ["folder/"]
    alone = strict.delete_all("bucket", ["folder"]).result(10)
    assert (alone.state(0).code, len(s3.deletes())) == ("FoldedKey", 1)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (503, Kind.TRANSIENT),
        (500, Kind.TRANSIENT),
        (301, Kind.BUCKET),
        (403, Kind.REFUSED),
        (407, Kind.ENVIRONMENT),
        (204, Kind.UNACCOUNTED),
    ],
)
def test_a_look_that_was_not_answered_sends_nothing(
    status: int, kind: Kind, s3: S3Recorder, strict: BatchDeleter
) -> None:
    """Unknown is never a yes: a key whose folder could not be verified has had no effect, and waits."""

    def script(request: Recorded) -> Reply | None:
        return Reply(status, b"") if request.method == "HEAD" and request.key == "beside/" else None

    s3.script(script)
    result = strict.delete_all("bucket", ["beside", "absent"]).result(10)

    assert (result.state(0).kind, result.state(0).effect) == (kind, Effect.NONE)
    assert result.state(1).kind is Kind.GONE
    assert [request.keys for request in s3.deletes()] == [["absent"]]
    assert "beside" in s3.objects("bucket")


def test_a_look_that_breaks_off_had_no_effect(s3: S3Recorder, strict: BatchDeleter) -> None:
    """The request of which nothing is known was a look: the key is as it was."""
    s3.script(lambda request: Reply(drop=True) if request.method == "HEAD" else None)
    state = strict.delete_all("bucket", ["beside"]).result(10).state(0)

    assert (state.kind, state.code, state.effect) == (Kind.UNKNOWN, "ConnectionBroken", Effect.NONE)
    assert s3.deletes() == []


def test_a_look_at_a_store_that_is_away(
    settings: StoreSettings, make_deleter: Callable[[StoreSettings], BatchDeleter]
) -> None:
    """Where nobody answers the look nothing was sent, so that the key's effect is none."""
    away = make_deleter(replace(settings, endpoint_url="http://127.0.0.1:1"))
    away.learn(replace(unprobed("bucket"), keeps_folders=Ability.NO))
    state = away.delete_all("bucket", ["beside"]).result(10).state(0)

    assert (state.code, state.effect) == ("EndpointUnreachable", Effect.NONE)
