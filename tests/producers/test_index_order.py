"""Index acknowledged, then intent: the order that `replace_index` keeps."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest

from sexton.producers import (
    EnvironmentFault,
    IndexFateUnknown,
    IndexNotWritten,
    InvalidEvent,
    KeyReused,
    Sexton,
    Superseded,
    UsageError,
)
from sexton.producers.testing import FakeSexton
from sexton.schemas.events import DeletionIntent

Connect = Callable[..., Sexton]
Arrived = Callable[[], list[DeletionIntent]]


def test_the_intent_follows_the_acknowledged_index(fake: FakeSexton) -> None:
    """Nothing is emitted before `put` has returned."""
    tenant = fake.attach("t")
    seen: list[int] = []
    tenant.replace_index(lambda: seen.append(len(fake.intents)), unlinked=["a"], bucket="bucket").wait(1)

    assert seen == [0]
    assert fake.keys == ["a"]


@pytest.mark.parametrize("error", [TimeoutError("read"), ConnectionResetError(), ValueError("503")])
def test_j_10_a_put_of_unknown_fate_poisons_the_handle(fake: FakeSexton, error: Exception) -> None:
    """J-10: after any error of `put` the handle emits nothing more until the service has re-attached."""
    tenant = fake.attach("t")

    def put() -> NoReturn:
        raise error

    with pytest.raises(IndexFateUnknown) as caught:
        tenant.replace_index(put, unlinked=["a"], bucket="bucket")
    for call in (
        lambda: tenant.delete("bucket", ["b"]),
        lambda: tenant.replace_index(lambda: None, unlinked=["c"], bucket="bucket"),
        tenant.detach,
    ):
        with pytest.raises(IndexFateUnknown):
            call()

    assert caught.value.__cause__ is error
    assert fake.intents == []
    again = fake.re_attach()["t"]
    again.replace_index(lambda: None, unlinked=["a"], bucket="bucket")
    assert [guard.generation for intent in fake.intents for guard in intent.guards] == [2]  # type: ignore[union-attr]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_j_10_an_interrupted_put_poisons_the_handle_and_comes_through(
    fake: FakeSexton, error: type[BaseException]
) -> None:
    """J-10: Ctrl-C or a cancelled task leaves the PUT's outcome unknown too, and stays what it is."""
    tenant = fake.attach("t")

    def put() -> NoReturn:
        raise error

    with pytest.raises(error):
        tenant.replace_index(put, unlinked=["a"], bucket="bucket")
    with pytest.raises(IndexFateUnknown):
        tenant.delete("bucket", ["a"])

    assert fake.intents == []


def test_j_10_an_index_that_was_certainly_not_written_leaves_the_handle_good(fake: FakeSexton) -> None:
    """J-10: `IndexNotWritten` is the one error that says so; nothing is emitted and the keys stay free."""
    tenant = fake.attach("t")

    def put() -> NoReturn:
        raise IndexNotWritten("412")

    with pytest.raises(IndexNotWritten):
        tenant.replace_index(put, unlinked=[tenant.key("a")], bucket="bucket")

    assert fake.intents == []
    assert tenant.key("a") == "a-00000001"
    tenant.replace_index(lambda: None, unlinked=["a-00000001"], bucket="bucket")
    assert fake.keys == ["a-00000001"]


def test_j_10_a_put_that_was_only_started_poisons_the_handle(fake: FakeSexton) -> None:
    """J-10: a coroutine or a future is no acknowledgement."""

    async def upload() -> None:
        raise AssertionError

    with ThreadPoolExecutor(1) as pool:
        for number, put in enumerate((upload, lambda: pool.submit(lambda: None)), start=1):
            tenant = fake.attach("t")
            assert tenant.generation == number
            with pytest.raises(IndexFateUnknown):
                tenant.replace_index(put, unlinked=["a"], bucket="bucket")

    assert fake.intents == []


def test_what_is_wrong_with_the_keys_is_found_before_the_index_is_written(fake: FakeSexton) -> None:
    """A bad key, or one named before, leaves the index as it was."""
    tenant = fake.attach("t")
    tenant.delete("bucket", ["a"])
    puts: list[None] = []
    with pytest.raises(InvalidEvent):
        tenant.replace_index(lambda: puts.append(None), unlinked=["b", ""], bucket="bucket")
    with pytest.raises(KeyReused):
        tenant.replace_index(lambda: puts.append(None), unlinked=["b", "a"], bucket="bucket")

    assert puts == []


def test_a_handle_superseded_during_the_put_emits_nothing(fake: FakeSexton) -> None:
    """The generation is asked for once more after the PUT: these intents would be stale."""
    tenant = fake.attach("t")
    with pytest.raises(Superseded):
        tenant.replace_index(lambda: fake.attach("t"), unlinked=["a"], bucket="bucket")

    assert fake.intents == []


def test_an_index_without_unlinked_keys_is_only_written(fake: FakeSexton) -> None:
    """The first index of an attachment goes through the SDK too, so that its outcome is known here."""
    puts: list[None] = []
    receipt = fake.attach("t").replace_index(lambda: puts.append(None), unlinked=[], bucket="bucket")

    assert receipt.intent_ids == ()
    assert puts == [None]


def test_a_delete_waits_for_the_index_put_of_another_thread(fake: FakeSexton) -> None:
    """A PUT in flight is of unknown outcome: a delete beside it waits, and fails at its deadline."""
    tenant = fake.attach("t")
    started, finish = threading.Event(), threading.Event()

    def put() -> None:
        started.set()
        assert finish.wait(10)

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(tenant.replace_index, put, ["a"], bucket="bucket")
        assert started.wait(10)
        with pytest.raises(EnvironmentFault, match="another call"):
            tenant.delete("bucket", ["b"], timeout=0.05)
        finish.set()
        call.result(10)
    tenant.delete("bucket", ["b"])

    assert fake.keys == ["a", "b"]


def test_put_may_not_call_back_into_its_handle(fake: FakeSexton) -> None:
    """A delete inside `put` would come before the index: a usage error, and the PUT's outcome is unknown."""
    tenant = fake.attach("t")
    with pytest.raises(IndexFateUnknown) as caught:
        tenant.replace_index(lambda: tenant.delete("bucket", ["a"]), unlinked=["b"], bucket="bucket")

    assert isinstance(caught.value.__cause__, UsageError)
    assert fake.intents == []


def test_the_connections_bucket_is_used_where_none_is_given(connect: Connect, arrived: Arrived) -> None:
    """`replace_index` deletes in the connection's bucket; without any bucket nothing is put or emitted."""
    put: list[str] = []
    connect("a", bucket="own").attach("t").replace_index(lambda: put.append("a"), unlinked=["a"]).wait(10)

    with pytest.raises(UsageError, match="no bucket"):
        connect("b").attach("u").replace_index(lambda: put.append("b"), unlinked=["b"])

    assert put == ["a"]
    assert [getattr(intent.action, "bucket", None) for intent in arrived()] == ["own"]
