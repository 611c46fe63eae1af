"""An operator's commands that fold the log by themselves: brokers that do not answer are reported soon."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from sexton.issuer.cli import maintenance
from sexton.issuer.deadline import Deadline
from sexton.issuer.log import truncation
from sexton.issuer.snapshots import keeper as snapshot_keeper
from sexton.schemas.errors import KafkaUnavailable
from sexton.schemas.settings import Settings, load


def _plan(settings: Settings) -> Any:
    return truncation.plan(settings, Deadline.after(600))


@pytest.mark.parametrize(
    ("module", "call"),
    [
        (maintenance, maintenance.verify_projection),
        (maintenance, maintenance.rebuild_projection),
        (snapshot_keeper, snapshot_keeper.take_snapshot),
        (truncation, _plan),
    ],
)
def test_brokers_that_do_not_answer_are_told(
    module: ModuleType, call: Callable[[Settings], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time for folding a long log is not the time to wait for the first answer."""
    monkeypatch.setattr(module, "REACH_S", 0.5)
    begun = time.monotonic()

    with pytest.raises(KafkaUnavailable):
        call(load({"SEXTON_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}))

    assert time.monotonic() - begun < 15
