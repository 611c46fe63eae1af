"""What the benchmarks count, and when they fail: rules that need no run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from benchmarks import harness
from benchmarks.accounting import tally
from benchmarks.harness import Target, missed_targets, write_results
from benchmarks.pipeline import figures_of
from benchmarks.reaper_run import ReaperRun
from benchmarks.tables import page_with, pipeline_tables

from sexton.schemas import events
from sexton.schemas.events import Outcome, OutcomeKind, VerdictResult

DUE = {"run-1": True, "run-2": True, "run-3": False}


def outcome(intent_id: str, kind: OutcomeKind, counts: Mapping[str, int]) -> Outcome:
    """Return an outcome of an intent."""
    now = datetime.now(UTC)
    verdict = events.Verdict(VerdictResult.PASS, "pass", "", 1)
    return Outcome(intent_id, "t", "b", kind, 100, counts, [], verdict, events.Position("t", 0, 0), [], now)


GOOD = [
    outcome("run-1", OutcomeKind.DELETED, {"deleted": 100}),
    outcome("run-2", OutcomeKind.DELETED, {"deleted": 100}),
    outcome("run-3", OutcomeKind.STALE, {"stale": 100}),
]


def test_outcomes_add_up() -> None:
    """Deleted and stale make up all that was submitted, each intent by its own id; others are left out."""
    reported = tally(DUE, [*GOOD, outcome("other-1", OutcomeKind.REFUSED, {"refused": 100})], 100)

    assert reported.exact
    assert (reported.submitted, reported.intents) == (3, {"deleted": 2, "stale": 1})
    assert reported.keys == {"deleted": 200, "stale": 100}


@pytest.mark.parametrize(
    ("outcomes", "differs"),
    [
        (GOOD[:2], "missing"),
        ([*GOOD, GOOD[0]], "repeated"),
        ([GOOD[0], outcome("run-2", OutcomeKind.STALE, {"stale": 100}), GOOD[2]], "wrong"),
        ([*GOOD[:2], outcome("run-3", OutcomeKind.DELETED, {"deleted": 100})], "wrong"),
        ([GOOD[0], outcome("run-2", OutcomeKind.DELETED, {"deleted": 99}), GOOD[2]], "wrong"),
    ],
)
def test_each_difference_is_counted(outcomes: list[Outcome], differs: str) -> None:
    """A missing, a repeated and a wrong outcome, and one that leaves a key out, are each told apart."""
    reported = tally(DUE, outcomes, 100)

    assert not reported.exact
    assert {name: getattr(reported, name) for name in ("missing", "repeated", "wrong")} == {
        **dict.fromkeys(("missing", "repeated", "wrong"), 0),
        differs: 1,
    }


def test_rates_count_what_was_deleted() -> None:
    """Keys per second and CPU per key are of deleted keys, not of those that were judged stale."""
    batches = [
        {"at": 0.0, "keys": 50, "keys_by_state": {"deleted": 50}, "stages": {}},
        {"at": 2.0, "keys": 100, "keys_by_state": {"deleted": 60, "stale": 40}, "stages": {"decode": 0.3}},
        {"at": 3.0, "keys": 90, "keys_by_state": {"deleted": 90}, "stages": {"decode": 0.3}},
    ]
    run = ReaperRun(batches, [{"jvm": 1.0}, {"jvm": 2.0}, {"jvm": 2.5}])
    steady = run.steady()

    assert (run.deleted(), steady["keys"], steady["keys_per_s"]) == (200, 150, 50)
    assert steady["cpu_us_per_key_by_part"] == {"jvm": 10_000.0}


def test_a_missed_target_is_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results are written and the code is 1 when any target was missed, 0 when none or not measured."""
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    targets = {"a": Target(">=", 5), "b": Target("<=", 5), "c": Target(">=", 1)}

    assert missed_targets({"a": 5, "b": 5}, targets) == []
    assert missed_targets({"a": 4.9, "b": 5.1}, targets) == ["a", "b"]
    assert missed_targets({"a": float("nan")}, targets) == ["a"]
    assert write_results("one", [], {"a": 5}, targets) == 0
    assert write_results("two", [], {"a": 5, "b": 6}, targets) == 1
    assert (tmp_path / "two.json").is_file()


def test_figures_of_rounds() -> None:
    """Ratios are taken within each round, plain HTTP has names of its own, and a case has its clean rate."""
    judged = {"kind": "many subjects", "issuer_calls": 8, "subjects": 80_000}
    runs = [
        run("reaper", 100, 2.0),
        run("plain consumer", 20, 10.0),
        run("reaper, HTTP", 300, 1.0),
        run("plain consumer, HTTP", 100, 4.0),
        run("odd 1 %", 70, 3.0),
        {**run("latency 50 ms", 90, 3.0), "limit_keys_per_s": 100},
        run("reaper", 200, 2.0),
        run("plain consumer", 20, 12.0),
        run("reaper", 150, 2.0),
        run("plain consumer", 50, 6.0),
    ]
    figures = figures_of(runs, judged)

    assert figures["pipeline.keys_per_s"] == 150
    assert figures["pipeline.ratio_to_plain_consumer"] == 5  # of 5, 10 and 3
    assert figures["pipeline.cpu_ratio_to_plain_consumer"] == 5
    assert figures["pipeline.http_keys_per_s"] == 300
    assert figures["pipeline.http_ratio_to_plain_consumer"] == 3
    assert figures["pipeline.cpu_us_per_key.black_hole"] == 0.5
    assert figures["pipeline.odd_1pct_ratio"] == pytest.approx(0.7)
    assert figures["pipeline.latency_50ms_ratio"] == pytest.approx(0.9)
    assert figures["pipeline.issuer_calls_per_100k_subjects"] == 10


def run(kind: str, rate: float, cpu: float) -> dict[str, Any]:
    """Return what a run of a kind came to."""
    parts = {"workers": cpu - 0.5, "black hole": 0.5}
    return {
        "kind": kind,
        "keys_per_s": rate,
        "cpu_us_per_key_by_part": parts,
        "batch_fill": 1.0,
        "limit_keys_per_s": None,
    }


def test_the_pages_table_is_made_from_results() -> None:
    """Figures stand beside their targets, CPU by part and by who spent it; other tables of the page stay."""
    machine = {"at": "2026-11-28", "cpu": "EPYC", "cores": 2, "python": "3.11.7", "load_average": [0.1, 0, 0]}
    figures = {
        "pipeline.keys_per_s": 300_000,
        "pipeline.ratio_to_plain_consumer": 3.25,
        "pipeline.cpu_us_per_key": 3.0,
        "pipeline.cpu_us_per_key.workers": 2.0,
        "pipeline.cpu_us_per_key.black_hole": 1.0,
        "pipeline.plain_consumer_cpu_us_per_key.consumers": 9.5,
    }
    made = pipeline_tables({"machine": machine, "figures": figures})
    page = "a\n<!-- table: pipeline -->\nold\n<!-- end -->\nb\n<!-- table: sdk -->\nkept\n<!-- end -->\n"

    assert "| `pipeline.keys_per_s` | 300,000 | ≥ 250,000, reached |" in made
    assert "| `pipeline.ratio_to_plain_consumer` | 3.25 | ≥ 5, **not reached** |" in made
    assert "| black hole | 1.00 |  |  |  |" in made
    assert "| all | 3.00 | 9.50 |  |  |" in made
    assert page_with(page, {"pipeline": made}) == page.replace("old", made)
