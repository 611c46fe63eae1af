"""The tables of docs/benchmarks.md that are made from results.

    python -m benchmarks.tables

Each stands between `<!-- table: NAME -->` and `<!-- end -->`, NAME being that of a file in
benchmarks/results, and is written anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS, Target
from benchmarks.pipeline import TARGETS

__all__ = ["page_with", "pipeline_tables"]

_PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_WHOSE = {
    "reaper": "cpu_us_per_key",
    "plain consumer": "plain_consumer_cpu_us_per_key",
    "reaper, plain HTTP": "http_cpu_us_per_key",
    "plain consumer, plain HTTP": "http_plain_consumer_cpu_us_per_key",
}


def pipeline_tables(content: Mapping[str, Any]) -> str:
    """Return the machine, the figures beside their targets, and the CPU of each part, as Markdown."""
    figures, machine = content["figures"], content["machine"]
    by_part = tuple(f"pipeline.{start}." for start in _WHOSE.values())
    load = machine["load_average"][0]
    lines = [
        f"Measured {machine['at']} on {machine['cpu']}, {machine['cores']} cores, load {load} at its start.",
        "",
        "| figure | value | target |",
        "|---|---|---|",
        *(
            f"| `{name}` | {_number(value)} | {_wanted(TARGETS.get(name), value)} |"
            for name, value in figures.items()
            if not name.startswith(by_part)
        ),
        "",
        f"| CPU, µs a key | {' | '.join(_WHOSE)} |",
        "|---|---|---|---|---|",
        *_parts(figures),
    ]
    return "\n".join(lines)


def page_with(page: str, tables: Mapping[str, str]) -> str:
    """Return the page with these tables in place of those that stand there; others stay."""
    return _TABLE.sub(
        lambda found: f"{found[1]}{tables[found[2]]}\n{found[3]}" if found[2] in tables else found[0], page
    )


def _parts(figures: Mapping[str, float]) -> list[str]:
    spent = {
        who: {
            name.removeprefix(start).replace("_", " "): value
            for name, value in figures.items()
            if name.startswith(start)
        }
        for who, start in ((who, f"pipeline.{start}.") for who, start in _WHOSE.items())
    }
    names = list(dict.fromkeys(part for parts in spent.values() for part in parts))
    rows = [(part, [parts.get(part) for parts in spent.values()]) for part in names]
    rows.append(("all", [sum(parts.values()) if parts else None for parts in spent.values()]))
    return [
        f"| {part} | {' | '.join('' if value is None else f'{value:.2f}' for value in values)} |"
        for part, values in rows
    ]


def _wanted(target: Target | None, value: float) -> str:
    if target is None:
        return ""
    relation = "≥" if target.relation == ">=" else "≤"
    return f"{relation} {target.value:,g}, {'reached' if target.met(value) else '**not reached**'}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def main() -> None:
    """Write the tables of every result that is there into the page."""
    result = RESULTS / "pipeline.json"
    tables = {"pipeline": pipeline_tables(json.loads(result.read_text(encoding="utf-8")))}
    _PAGE.write_text(page_with(_PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    main()
