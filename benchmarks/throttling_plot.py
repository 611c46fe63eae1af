"""Draw docs/throttling.png from docs/throttling.json; needs matplotlib, which `make draw` installs."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.throttling import DOCS
from matplotlib import pyplot  # type: ignore[import-not-found,unused-ignore]

__all__ = ["main"]

_SMOOTHED_S = 5


def main() -> None:
    """Draw one panel for each curve."""
    curves: list[dict[str, Any]] = json.loads((DOCS / "throttling.json").read_text("utf-8"))["curves"]
    figure, panels = pyplot.subplots(len(curves), 1, figsize=(10, 3.6 * len(curves)), layout="constrained")
    for panel, curve in zip(panels, curves, strict=True):
        at = curve["at"]
        panel.plot(
            at, curve["allowed"], color="#444444", linestyle="--", linewidth=1.2, label="allowed by the store"
        )
        panel.plot(
            at, _smoothed(curve["achieved"]), color="#2a7fba", linewidth=1.0, label="deleted (mean of 5 s)"
        )
        panel.plot(at, curve["budget"], color="#d9822b", linewidth=1.6, label="the budget's rate")
        said_no = [second for second, count in zip(at, curve["throttled"], strict=True) if count]
        marks = [-0.03 * max(curve["allowed"])] * len(said_no)
        panel.scatter(said_no, marks, marker="|", color="#c0392b", label="seconds with throttled requests")
        panel.set_ylim(-0.07 * max(curve["allowed"]), 1.3 * max(curve["allowed"]))
        panel.set_xlim(0, at[-1])
        panel.set_title(curve["name"], fontsize=10)
        panel.set_xlabel("seconds")
        panel.set_ylabel("keys per second")
        panel.grid(alpha=0.25)
        panel.legend(loc="upper right", fontsize=8, ncols=2)
    figure.savefig(DOCS / "throttling.png", dpi=110, metadata={"Software": None})


def _smoothed(values: list[float]) -> list[float]:
    half = _SMOOTHED_S // 2
    windows = [values[max(0, i - half) : i + half + 1] for i in range(len(values))]
    return [sum(window) / len(window) for window in windows]


if __name__ == "__main__":
    main()
