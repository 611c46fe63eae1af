"""The examples of the page about transactions, run as they stand there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support import pages

from sexton.producers import StateNotSaved, UsageError
from sexton.producers.testing import FakeIssuer, FakeSexton
from sexton.schemas.events import AdvanceHorizon, ImportedTransactions, NumberPlace

PAGE = pages.ROOT / "docs" / "transactions-sdk.md"
PREFIX = "tenants/tenant-42/"


def _example(part: str) -> str:
    (block,) = [block for block in pages.blocks(PAGE, "python") if part in block]
    return block


@pytest.fixture
def issuer() -> FakeIssuer:
    """An issuer that knows the page's tenant, of which 22 is the last committed one."""
    issuer = FakeIssuer()
    issuer.import_transactions([ImportedTransactions("tenant-42", 22, 22, NumberPlace.LAST)])
    return issuer


@pytest.mark.parametrize("doomed", [False, True])
def test_the_first_example_commits_or_acknowledges(issuer: FakeIssuer, doomed: bool) -> None:
    """With the numbers and keys of its comments."""
    said: list[str] = []

    def put_index() -> None:
        if doomed:
            issuer.start_transaction("node-8", "tenant-42")

    with FakeSexton("node-7", issuer) as sexton:
        names = {"upload": said.append, "put_index": put_index, "end_uploads": lambda: said.append("ended")}
        body = _example("end_uploads").split("as sexton:\n", 1)[1]
        code = "from sexton.producers import CommitRejected\nif True:\n" + body
        exec(compile(code, str(PAGE), "exec"), {**names, "sexton": sexton})
        deadlist, horizon = sexton.intents
    (open_one, *_) = issuer.unfinished_transactions() or (None,)

    assert said == ["tenants/tenant-42/layer-1.23", *(["ended"] if doomed else [])]
    assert list(deadlist.action.keys) == ["tenants/tenant-42/layer-1.17"]
    assert horizon.action == AdvanceHorizon("main", 4711)
    assert (open_one is not None and open_one.status) == ("reject-acknowledged" if doomed else False)


def test_the_names_are_those_of_the_table(issuer: FakeIssuer) -> None:
    """Cell by cell, in both places."""
    first = FakeIssuer()
    first.import_transactions([ImportedTransactions("tenant-42", 22, 22, NumberPlace.FIRST)])
    for column, (place, of) in enumerate((("last", issuer), ("first", first)), start=1):
        with FakeSexton("node-7", of) as sexton:
            txn = sexton.transaction("tenant-42", prefix=PREFIX, number_place=place)
            shown = _row('`txn.key("a/layer-1")`')[column], _row('`txn.visible("a/layer-1")`')[column]
            assert shown == (f"`{txn.key('a/layer-1')}`", f"`{txn.visible('a/layer-1')}`")
            if place == "first":
                assert _row('`txn.prefix("a")`')[column] == f"`{txn.prefix('a')}`"
            else:
                with pytest.raises(UsageError, match="no prefix has"):
                    txn.prefix("a")


def _row(head: str) -> list[str]:
    (line,) = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {head}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_store_of_the_page_is_a_compare_and_set(issuer: FakeIssuer, tmp_path: Path) -> None:
    """The state of 23 is resumed as the page shows; the process before loses its next save."""
    names: dict[str, Any] = {}
    exec(compile(_example("class Store"), str(PAGE), "exec"), names)
    store = names["Store"](tmp_path / "states.db")
    with FakeSexton("node-7", issuer) as sexton:
        start, resume = (
            line.split(" = ", 1)[1]
            for line in _example("persist=store.save").splitlines()
            if "txn = " in line
        )
        before = eval(start, {"sexton": sexton, "store": store})
        txn = eval(resume, {"sexton": sexton, "store": store})
        assert (before.id, txn.id, store.load("tenant-42", 24)) == (23, 23, None)
        with pytest.raises(StateNotSaved):
            before.commit(pytest.fail)
        txn.commit(lambda: None)
        kept = store.load("tenant-42", 23)

    assert (kept["version"], kept["phase"]) == (4, "commit")
    assert store.save(kept, 4) == 0
    assert store.save({**kept, "transaction": 24}, 1) == 1
    assert store.save({**kept, "transaction": 24}, 1) == 0


def test_the_fakes_of_the_page_work() -> None:
    """As they stand there."""
    exec(compile(_example("FakeSexton("), str(PAGE), "exec"), {})
