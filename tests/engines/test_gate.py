"""The gate before a store: what is held has not reached it, what is hung up never does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError
from tests.engines.gate import Gate, Passing, opened
from tests.support.s3_recorder import S3Recorder
from tests.support.sequenced import client_of, running_of


@pytest.fixture
def store() -> Iterator[S3Recorder]:
    """A strict store with one object."""
    with S3Recorder(plain=True) as made:
        made.create_bucket("bucket", {"a/b": b"old"})
        yield made


@pytest.fixture
def gate(store: S3Recorder) -> Iterator[Gate]:
    """A gate before it."""
    with opened(store.url) as made:
        yield made


@pytest.fixture
def s3(store: S3Recorder, gate: Gate) -> Any:
    """A client that comes through the gate."""
    running = running_of(store)
    return client_of(replace(running, settings=replace(running.settings, endpoint_url=gate.url)))


def is_put(passing: Passing) -> bool:
    """Return whether it writes the object."""
    return passing.method == "PUT" and passing.key == "a/b"


def test_b_9_a_request_that_is_held_reaches_the_store_once_it_is_let_go(
    store: S3Recorder, gate: Gate, s3: Any
) -> None:
    """B-9: the store has the old object until then, and others pass; the next request is not held."""
    let_go = threading.Event()
    held = gate.next(is_put, before=lambda: assert_set(let_go))
    with ThreadPoolExecutor(1) as pool:
        put = pool.submit(s3.put_object, Bucket="bucket", Key="a/b", Body=b"new")
        assert_set(held.arrived)
        assert held.key == "a/b"
        assert s3.get_object(Bucket="bucket", Key="a/b")["Body"].read() == b"old"
        let_go.set()
        put.result(30)

    s3.put_object(Bucket="bucket", Key="a/b", Body=b"newer")
    assert store.objects("bucket") == {"a/b": b"newer"}


def test_b_8_a_delete_that_is_hung_up_never_reaches_the_store(store: S3Recorder, gate: Gate, s3: Any) -> None:
    """B-8: the keys of a batch are told, and the client is left without an answer."""

    def hang_up() -> None:
        raise ConnectionResetError

    held = gate.next(lambda passing: "a/b" in passing.deleted, before=hang_up)
    with pytest.raises(BotoCoreError):
        s3.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": "a/b"}]})

    assert held.arrived.is_set()
    assert store.deletes() == []
    s3.delete_object(Bucket="bucket", Key="a/b")
    assert store.objects("bucket") == {}


def test_b_9_what_follows_an_answer_happens_when_the_store_has_acted_and_the_client_does_not_know(
    store: S3Recorder, gate: Gate, s3: Any
) -> None:
    """B-9: the object is gone by then."""
    seen: list[dict[str, bytes]] = []
    gate.next(lambda passing: passing.deleted == ["a/b"], after=lambda: seen.append(store.objects("bucket")))
    s3.delete_object(Bucket="bucket", Key="a/b")

    assert seen == [{}]


def assert_set(event: threading.Event) -> None:
    """Wait for something."""
    assert event.wait(30)
