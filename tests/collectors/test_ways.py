"""The two ways to list, here and on Spark, and what the first one does without."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from tests.support.collecting import Collecting, lines
from tests.support.commands import Command

from sexton.deploy.local import Installation
from sexton.issuer.client import IssuerClient, TransactionStatus
from sexton.schemas.events import NumberPlace, OutcomeKind
from sexton.streaming_jobs.collectors.transactions.room import ROOM as TRANSACTIONS

pytestmark = [pytest.mark.real, pytest.mark.faults]
HIDDEN = """
import builtins
imported = builtins.__import__
def importing(name, *args, **kwargs):
    if name.partition(".")[0] in ("pyspark", "py4j"):
        raise ModuleNotFoundError(name, name=name)
    return imported(name, *args, **kwargs)
builtins.__import__ = importing
"""


def findings_of(out: str) -> tuple[dict[str, Any], list[Any]]:
    """The amounts, and the findings, without what is of one run: instants, ids, emitters."""
    head, *rest = lines(out)
    facts = {name: value for name, value in head["report"].items() if not name.endswith(("_at", "_id"))}
    found = []
    for each in rest:
        finding = each["finding"]
        if finding["intent"] is not None:
            for name in ("emitted_at", "emitter", "vetoes"):
                finding["intent"].pop(name)
            finding["intent"]["action"]["DeletePrefix"].pop("written_before")
        found.append(finding)
    return facts, sorted(found, key=json.dumps)


@pytest.mark.spark
def test_both_ways_report_the_same(collecting: Collecting) -> None:
    """One bucket, listed here without Spark and Java, and on Spark in parallel: the same report."""
    tenants = [collecting.tenant(dropped=number % 2 == 0) for number in range(4)]
    at = collecting.promise("data/deep/er/", "promise-ways")
    collecting.settle("promise-ways", OutcomeKind.DELETED, effects={"written-later": 1}, position=at)
    collecting.put(*(f"{tenant}/{n:03}" for tenant in tenants for n in range(60)))
    collecting.put("plain", "deep/er/a", "deep/er/b", "deep/c", f"{tenants[0]}", f"{tenants[0]}-x/a")
    collecting.store.put(collecting.bucket, f"data/{tenants[2]}/", b"")  # as some tools make folders

    arguments = ("--format", "json", "--max-share", "1.0")
    here = collecting.command(*arguments, patch=HIDDEN, JAVA_HOME="/nowhere", PATH="/nowhere")
    spark = collecting.command(*arguments, "--spark")

    collecting.command(*arguments, "--spark", patch=HIDDEN, code=2)  # who asks for Spark is told what lacks

    facts, found = findings_of(here)
    assert (facts["objects"], facts["garbage_objects"]) == (247, 123)
    assert len(found) == 3
    assert findings_of(spark) == (facts, found)


@pytest.mark.spark
@pytest.mark.parametrize("place", NumberPlace)
def test_m_5_rejected_transactions_are_found_on_spark_as_here(
    collecting: Collecting, place: NumberPlace
) -> None:
    """M-5: over many ranges each object counts once, and what is left of nothing is told to the issuer."""
    collecting.room, collecting.prefix = TRANSACTIONS, "data/{tenant}/"
    name = f"tx-ways-{place.value}-{collecting.bucket}"
    with IssuerClient.of(collecting.settings) as issuer:
        for number in (1, 2, 3):
            issuer.start_transaction(f"node-{number}", name, number_place=place)
        for number in (1, 2):
            issuer.acknowledge_transaction(name, number, f"node-{number}")
        form = "f{0}/{1:02}.{2}" if place is NumberPlace.LAST else "{2}/f{0}/{1:02}"
        keys = [form.format(n % 7, n, m) for n in range(40) for m in (1, 3)]
        collecting.put(f"{name}/index", *(f"{name}/{key}" for key in keys))
        arguments = ("--format", "json", "--max-share", "1.0")

        here, spark = collecting.command(*arguments), collecting.command(*arguments, "--spark")
        facts, found = findings_of(here)
        assert findings_of(spark) == (facts, found)
        assert facts["garbage_objects"] == 40
        assert {each["state"] for each in found if each["tenant"] == name} == {"ask", "nothing-left"}

        asked = collecting.command(*arguments, "--spark", "--emit")
        told = [each["finding"] for each in lines(asked)[1:]]
        assert {each["state"] for each in told if each["tenant"] == name} == {"ask", "collected"}
        state = issuer.transactions(name)
    assert state is not None
    assert {each.transaction: each.status for each in state.transactions} == {
        1: TransactionStatus.REJECT_ACKNOWLEDGED,
        2: TransactionStatus.COLLECTED,
        3: TransactionStatus.OPEN,
    }


@pytest.mark.spark
def test_what_is_asked_for_is_deleted(
    installation: Installation, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a dropped tenant's objects to nothing left: reported, asked for, gone, and found no more."""
    monkeypatch.setenv("SEXTON_REPORTS", str(tmp_path / "reports"))
    collecting = Collecting(installation.bucket, installation.env)
    dropped, kept = collecting.tenant(dropped=True), collecting.tenant(dropped=False)
    collecting.put(f"{dropped}/a", f"{dropped}/b", f"{kept}/a")
    assert collecting.run(emit=True).garbage_objects == 2

    reaper = Command(installation, "--once")
    assert reaper.wait(120) == 0, reaper.printed

    left = list(collecting.store.list_keys(collecting.bucket, "data/"))
    again = collecting.run(emit=True)
    collecting.store.close()
    assert left == [f"data/{kept}/a"], reaper.printed
    assert (again.garbage_objects, list(again.findings)) == (0, [])


def test_without_spark_nothing_of_it_is_imported() -> None:
    """The help and the modules of collectors need neither Spark nor Arrow at import time."""
    code = "import sexton.streaming_jobs.collectors.commands, sys; print(sorted(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'pyspark'" not in found.stdout
    assert "'pyarrow'" not in found.stdout
