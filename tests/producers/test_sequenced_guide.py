"""The page about sequenced metadata: its examples are run, its tables hold what is raised."""

from __future__ import annotations

import re
from typing import Any

import boto3
import pytest
from tests.support import pages
from tests.support.sequenced import MANIFESTS

import sexton.producers
from sexton.producers import SequencedStatistics, SequencedStore, SextonError, sequenced
from sexton.producers.testing import FakeStore

PAGE = pages.ROOT / "docs" / "sequenced.md"


def _example(part: str) -> str:
    (block,) = [block for block in pages.blocks(PAGE, "python") if part in block]
    return block


def test_the_loop_of_the_page_makes_the_next_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """From nothing, from a state, and once another one was faster."""
    store = FakeStore()
    monkeypatch.setattr(boto3, "client", lambda _: store)
    other = sequenced(store, "bucket", "db", "manifest")
    overtaken: list[bytes] = []

    def apply_change(body: bytes) -> bytes:
        overtaken.append(body)
        if len(overtaken) == 2:
            other.create(2, b"other ")
        return body + b"x"

    for _ in range(2):
        names: dict[str, Any] = {"apply_change": apply_change}
        exec(compile(_example("apply_change"), str(PAGE), "exec"), names)

    assert overtaken == [b"", b"x", b"other "]
    assert (names["key"], other.read(3)) == (MANIFESTS.key(3), b"other x")


def test_the_fake_of_the_page_works() -> None:
    """As it stands there."""
    exec(compile(_example("FakeStore()"), str(PAGE), "exec"), {})


def test_the_nonce_in_the_body_of_the_page_works() -> None:
    """And an object gets no metadata of ours then."""
    names: dict[str, Any] = {"s3": FakeStore(), "sequenced": sequenced}
    exec(compile(_example("nonce_of=lambda"), str(PAGE), "exec"), names)
    key = names["manifest"].create(1, b"0123456789abcdef and the rest")
    assert names["s3"].objects["bucket", key].nonce is None


def test_the_store_of_the_page_has_the_calls() -> None:
    """A class with just these is taken for a store."""
    names: dict[str, Any] = {}
    exec(compile(_example("class Files"), str(PAGE), "exec"), names)
    assert isinstance(names["Files"](), SequencedStore)


def test_the_page_names_each_error_and_each_count() -> None:
    """Those of the table exist, and those that exist are in it."""
    text = PAGE.read_text(encoding="utf-8")
    table = text.partition("## What is raised")[2].partition("\n## ")[0]
    named = {name for name in re.findall(r"`([A-Z]\w+)`", table) if hasattr(sexton.producers, name)}
    exported = {
        name
        for name, value in vars(sexton.producers).items()
        if isinstance(value, type)
        and issubclass(value, SextonError)
        and name.startswith(("Sequenced", "Boundary"))
    }
    assert exported | {"StoreUnavailable", "SextonError", "HandleUnusable"} == named
    assert [name for name in SequencedStatistics.__dataclass_fields__ if f"`{name}`" not in text] == []


def test_the_page_shows_the_keys_that_are_written() -> None:
    """Files and boundary."""
    text = PAGE.read_text(encoding="utf-8")
    assert MANIFESTS.key(25) in text
    assert f"{MANIFESTS.boundary_key} " in text
