"""The dashboard's queries."""

from __future__ import annotations

import json
import re

from tests.support.pages import ROOT

__all__ = ["DASHBOARD", "METRIC", "expressions", "filled"]

DASHBOARD = ROOT / "deploy" / "dashboards" / "sexton.json"
METRIC = re.compile(r"\bsexton_\w+")


def expressions() -> list[str]:
    """Return every query, in the order of the panels."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def filled(expression: str) -> str:
    """Return a query as Prometheus gets it: Grafana fills in the interval."""
    return expression.replace("$__rate_interval", "5m")
