"""What Sexton does with each named store, found out by letting it: the rows of the table in docs/tried.md."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.support.execute_stage import execution
from tests.support.personalities import Personality
from tests.support.s3_recorder import S3Recorder, recorder_of_this_process

from sexton.schemas.events import DeleteMode, DeletePrefix, OutcomeKind
from sexton.storage import BatchDeleter, StoreSettings
from sexton.streaming_jobs.budget import NoBudget
from sexton.streaming_jobs.reaper.actions.delete_prefix.execution import PrefixExecution
from sexton.streaming_jobs.reaper.execute.execution import Execution
from sexton.streaming_jobs.reaper.execute.executor import Executor, Limits
from sexton.streaming_jobs.reaper.execute.result import Result

__all__ = ["Tried", "executed", "tried"]

_GONE = (OutcomeKind.DELETED, OutcomeKind.ABSENT)
_KEYS = [f"k{n:03d}" for n in range(12)]


@dataclass(frozen=True, slots=True)
class Tried:
    """What was done, and what was refused, with the words for it."""

    done: str
    refused: str


def executed(deleter: BatchDeleter, *executions: Execution) -> tuple[Executor, list[Result]]:
    """Run the reaper's execute stage over these intents."""
    executor = Executor(deleter, NoBudget(), Limits(failure_threshold_s=10.0))
    for each in executions:
        executor.add(each)
    executor.finish()
    return executor, [executor.result(each) for each in executions]


def tried(store: Personality) -> Tried:
    """Let the reaper delete named keys, all versions of one and a prefix, and return what became of them."""
    with pytest.MonkeyPatch.context() as patch, recorder_of_this_process(patch) as s3:
        store.play(s3, dict.fromkeys([*_KEYS, "all", "p/a"], b""))
        with BatchDeleter(StoreSettings(s3.url, requests_in_flight=2)) as deleter:
            _, named = executed(deleter, execution(_KEYS, bucket=store.bucket))
            done = _done(s3, store)
            _, rest = executed(
                deleter,
                execution(["all"], bucket=store.bucket, mode=DeleteMode.ERASE_ALL_VERSIONS),
                PrefixExecution(DeletePrefix(store.bucket, "p/")),
            )
    told = {"keys": named[0], "all versions of a key": rest[0], "prefixes": rest[1]}
    reasons = {
        what: {outcome.reason for _, outcome in result.named if outcome.kind not in _GONE}
        for what, result in told.items()
    }
    refused = [f"{what}: `{', '.join(sorted(words))}`" for what, words in reasons.items() if words]
    return Tried(done, "; ".join(refused) or "-")


def _done(s3: S3Recorder, store: Personality) -> str:
    batches, singles = s3.deletes(), s3.singles()
    if not batches and not singles:
        return "sends nothing: dead letters at once"
    last = [request for request in s3.requests if request in (*batches, *singles)][-1]
    way = "single calls" if last.method == "DELETE" else "batches"
    if "content-md5" in last.headers and last.method == "POST":
        way += " with Content-MD5"
    if store.elsewhere is not None:
        way += f", signed for {store.region}"
    looks = sum(request.method == "HEAD" and bool(request.key) for request in s3.requests)
    repeats = "" if len(batches) <= 2 or last.method == "DELETE" else "; what did not go, again"
    return way + repeats + ("; a look at each key that was not named" if looks else "")
