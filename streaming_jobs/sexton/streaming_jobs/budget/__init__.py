"""Throttling: one budget for each bucket, shared by all tasks and executors."""

from __future__ import annotations

import os

from sexton.schemas.memo import cache
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.budget.pacing import Budget, NoBudget, SharedBudget

__all__ = ["Budget", "NoBudget", "open_budget"]


def open_budget(settings: Settings, *, tasks: int) -> Budget:
    """Return this process's budget; `tasks` is how many may run at once on the whole cluster."""
    url = settings.redis_url.get_secret_value()
    return _opened(os.getpid(), url, max(1, tasks), settings.reaper_requests_in_flight)


@cache
def _opened(pid: int, url: str, tasks: int, in_flight: int) -> Budget:
    # By the process's id: after a fork two processes would read each other's answers from one connection.
    from sexton.streaming_jobs.budget.shared import RedisBoard

    return SharedBudget(RedisBoard(url), tasks, in_flight)
