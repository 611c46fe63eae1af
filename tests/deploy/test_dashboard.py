"""The dashboard and Prometheus' configuration: what they name exists, and Prometheus can read it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.dashboard import DASHBOARD, METRIC, expressions, filled
from tests.support.pages import ROOT
from tests.support.prometheus import program

CONFIGURATION = ROOT / "deploy" / "prometheus" / "prometheus.yml"


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `promtool`."""
    found = program("promtool")
    if found is None:
        pytest.skip("there is no promtool: Debian has it in the package prometheus")
    return subprocess.run([found, *arguments], capture_output=True, text=True, timeout=150, check=False)


def documented() -> set[str]:
    """Every metric of the operating page, which are those of the code."""
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    return set(
        re.findall(r"\bsexton_\w+", page.partition("\n## Metrics\n")[2].partition("\nWhat adds up:")[0])
    )


def test_the_dashboard_shows_every_metric_and_no_other() -> None:
    """A metric that was renamed or added is missed here, as it would be on the wall."""
    named = {re.sub(r"_bucket$", "", name) for text in expressions() for name in METRIC.findall(text)}

    assert named == documented()


def test_every_query_of_the_dashboard_is_one(tmp_path: Path) -> None:
    """Prometheus parses each, with Grafana's own variable filled in."""
    rules = [{"record": f"panel:{number}", "expr": filled(text)} for number, text in enumerate(expressions())]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")

    done = promtool("check", "rules", str(file))

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_panels_have_places_of_their_own() -> None:
    """No id is given twice, no panel lies on another, and each asks the chosen data source."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    taken: list[tuple[int, int]] = []
    for panel in panels:
        where: dict[str, Any] = panel["gridPos"]
        xs, ys = range(where["x"], where["x"] + where["w"]), range(where["y"], where["y"] + where["h"])
        taken += [(x, y) for x in xs for y in ys]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(taken)) == len(taken)
    assert {target["datasource"]["uid"] for p in panels for target in p.get("targets", ())} == {
        "${datasource}"
    }


def test_prometheus_takes_the_configuration() -> None:
    """The file is valid."""
    done = promtool("check", "config", "--syntax-only", str(CONFIGURATION))

    assert done.returncode == 0, done.stdout + done.stderr
