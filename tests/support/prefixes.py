"""Prefix deletes step by step, against a store whose answers a test scripts."""

from __future__ import annotations

from typing import Any

from tests.support.replies import partly
from tests.support.s3_recorder import Recorded, Reply, S3Recorder

from sexton.schemas.events import DeleteMode, DeletePrefix
from sexton.streaming_jobs.reaper.actions.delete_prefix.passes import work_prefix
from sexton.streaming_jobs.reaper.actions.delete_prefix.progress import PrefixProgress, PrefixStep

ERASE = DeleteMode.ERASE_ALL_VERSIONS


def work(
    deleter: Any, action: DeletePrefix, progress: PrefixProgress | None = None, **changes: Any
) -> PrefixStep:
    """Work one step without waiting anywhere; unless told otherwise no instant binds it."""
    options = {"max_objects": 10_000, "deadline": lambda: False, "sleep": lambda _: None, **changes}
    options.setdefault("ends_writes", True)
    return work_prefix(deleter, action, progress or PrefixProgress(), **options)


def work_off(deleter: Any, action: DeletePrefix, **changes: Any) -> list[PrefixStep]:
    """Work step after step until one does not ask for more."""
    steps = [work(deleter, action, **changes)]
    while steps[-1].state == "more":
        assert len(steps) < 100
        steps.append(work(deleter, action, steps[-1].progress, **changes))
    return steps


def lists(recorder: S3Recorder) -> list[Recorded]:
    """Return the listings so far."""
    return [request for request in recorder.requests if request.method == "GET" and "prefix" in request.query]


def deny(request: Recorded, keys: set[str], recorder: S3Recorder, code: str = "AccessDenied") -> Reply | None:
    """Answer a batch: the named keys are refused with a code, the others go."""
    return partly(recorder, request, dict.fromkeys(keys, code)) if request.keys else None
