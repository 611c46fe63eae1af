"""Stage 3, execute: the keys of all intents that passed, merged by bucket into requests of 1,000.

Keys of all tenants of a bucket share requests. A key that several intents name goes over the wire once.
Several requests are in flight; phases are kept: the next phase of any intent starts when everything before
it is acknowledged gone (a commit object before its data). An unclean reply is raised to the caller: nothing
of the micro-batch is settled then, and it is worked off again from its start. Repeating a delete is
harmless.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from sexton.schemas import events

__all__ = ["MAX_KEYS", "Deleter", "DryDeleter", "Execution", "Executor"]

MAX_KEYS = 1000  # S3's limit for one DeleteObjects
_REAP_AFTER = 32  # look at replies from time to time, so that a failure stops the task early


class Deleter(Protocol):
    """What this stage needs of `sexton.storage`: a reply has a `request_id` and is clean in every key."""

    def submit(self, bucket: str, keys: Sequence[str]) -> Future[Any]:
        """Send one request of at most 1,000 distinct keys, waiting while too many are in flight."""


@dataclass(frozen=True, slots=True)
class _Imagined:
    request_id: str = "dry-run"


class DryDeleter:
    """Sends nothing and says that all went well: for a dry run, whose rows are shown and never written."""

    def submit(self, bucket: str, keys: Sequence[str]) -> Future[Any]:
        """Return an answer at once."""
        answer: Future[Any] = Future()
        answer.set_result(_Imagined())
        return answer


@dataclass(slots=True)
class Execution:
    """One intent's way through the stage; `requests` are those that carried its keys, by number."""

    action: events.DeleteObjects
    requests: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Bucket:
    seen: set[str] = field(default_factory=set)
    waiting: list[str] = field(default_factory=list)
    users: list[Execution] = field(default_factory=list)


class Executor:
    """Merges keys into requests for one task; `add` every intent, then `finish` once."""

    def __init__(self, deleter: Deleter) -> None:
        self._deleter = deleter
        self._buckets: dict[str, _Bucket] = {}
        self._in_flight: deque[Future[Any]] = deque()
        self._phased: list[Execution] = []
        self.request_ids: list[str] = []
        self.requests = 0
        self.keys_sent = 0

    def add(self, action: events.DeleteObjects) -> Execution:
        """Queue the first phase of an intent; sends whatever fills a request."""
        execution = Execution(action)
        self._queue(execution, action.phases[0])
        if len(action.phases) > 1:
            self._phased.append(execution)
        return execution

    def finish(self) -> None:
        """Send the rest, then phase after phase; returns when every key is acknowledged gone.

        Raises what the deleter raises: the first unclean reply or fault of the store.
        """
        self._drain()
        phase = 1
        while self._phased:
            # Not before here: a later phase that overtakes an earlier one would leave a commit object
            # that names data which is gone.
            for execution in self._phased:
                self._queue(execution, execution.action.phases[phase])
            self._drain()
            phase += 1
            self._phased = [e for e in self._phased if len(e.action.phases) > phase]

    def _queue(self, execution: Execution, keys: Sequence[str]) -> None:
        bucket = self._buckets.setdefault(execution.action.bucket, _Bucket())
        new = self._unseen(bucket, keys)
        if not new:
            return
        bucket.waiting += new
        bucket.users.append(execution)
        while len(bucket.waiting) >= MAX_KEYS:
            self._send(execution.action.bucket, bucket)

    @staticmethod
    def _unseen(bucket: _Bucket, keys: Sequence[str]) -> Sequence[str]:
        before = len(bucket.seen)
        if bucket.seen.isdisjoint(keys):
            bucket.seen.update(keys)
            if len(bucket.seen) - before == len(keys):
                return keys
            return list(dict.fromkeys(keys))
        new = [key for key in dict.fromkeys(keys) if key not in bucket.seen]
        bucket.seen.update(new)
        return new

    def _send(self, name: str, bucket: _Bucket) -> None:
        keys, bucket.waiting = bucket.waiting[:MAX_KEYS], bucket.waiting[MAX_KEYS:]
        for execution in bucket.users:
            execution.requests.append(self.requests)
        # The last one may have keys left for the next request.
        bucket.users = bucket.users[-1:] if bucket.waiting else []
        self._in_flight.append(self._deleter.submit(name, keys))
        self.requests += 1
        self.keys_sent += len(keys)
        if len(self._in_flight) > _REAP_AFTER:
            self._acknowledge(len(self._in_flight) - _REAP_AFTER)

    def _drain(self) -> None:
        for name, bucket in self._buckets.items():
            while bucket.waiting:
                self._send(name, bucket)
        self._acknowledge(len(self._in_flight))

    def _acknowledge(self, count: int) -> None:
        for _ in range(count):
            self.request_ids.append(self._in_flight.popleft().result().request_id)
