"""What a collector that runs again and again says of its runs."""

from __future__ import annotations

import io
import json
import threading
from typing import Any, cast

import pytest

from sexton.schemas.errors import SextonError
from sexton.streaming_jobs.collectors import commands
from sexton.streaming_jobs.collectors.commands import Format
from sexton.streaming_jobs.collectors.driver import Driver
from sexton.streaming_jobs.collectors.progress import Progress


class Runs:
    """A driver whose runs fail or not, in this order; the last one is followed by a stop."""

    def __init__(self, failing: list[bool], stop: threading.Event) -> None:
        self.failing, self.stop = failing, stop

    def run(self) -> Any:
        """Fail, or return a report."""
        fails = self.failing.pop(0)
        if not self.failing:
            self.stop.set()
        if fails:
            raise SextonError("the listing is empty")
        return type("Report", (), {"state": "reported"})


def test_each_run_says_how_many_have_failed_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that does not fail ends the row; the count of all that failed goes on."""
    monkeypatch.setattr(commands, "_tell", lambda report, form: 0)
    out, stop = io.StringIO(), threading.Event()
    driver = cast(Driver, Runs([True, True, False, True], stop))

    commands._repeat(driver, 0.0, stop, Progress(out), Format.JSON)

    notes = [json.loads(line) for line in out.getvalue().splitlines()]
    runs = [(each["failed"], each["failed_in_a_row"]) for each in notes if each["event"] == "run"]
    assert runs == [(1, 1), (2, 2), (2, 0), (3, 1)]
    assert notes[-1] == {"event": "stopped", "runs": 4, "failed": 3, "refused": 0}
