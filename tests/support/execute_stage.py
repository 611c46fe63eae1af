"""The execute stage against a store in memory whose answers are scripted, with a clock that does not wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sexton.schemas.events import DeleteMode, DeleteObjects
from sexton.storage import (
    Abilities,
    Ability,
    BatchResult,
    Delete,
    Effect,
    KeyState,
    Kind,
    Listed,
    ListedVersion,
    Slice,
    StoreRefused,
    Versioning,
    VersionSlice,
)
from sexton.storage.wire import RawReply
from sexton.streaming_jobs.budget import NoBudget
from sexton.streaming_jobs.reaper.actions.delete_objects.execution import ObjectsExecution
from sexton.streaming_jobs.reaper.execute.execution import Execution
from sexton.streaming_jobs.reaper.execute.executor import Executor, Limits
from sexton.streaming_jobs.reaper.execute.result import Result

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
Answer = Callable[[int, str, str | Delete], KeyState | None]

BUSY = KeyState(Kind.BUCKET, "SlowDown", "", 503)
CUT = KeyState(Kind.UNKNOWN, "ReadTimeout", "", 0, Effect.UNKNOWN)
ERROR = KeyState(Kind.TRANSIENT, "InternalError", "", 200, Effect.UNKNOWN)
DENIED = KeyState(Kind.FINAL, "AccessDenied", "no")
INVALID = KeyState(Kind.FINAL, "InvalidArgument", "no")
MISSING = KeyState(Kind.BUCKET, "NoSuchBucket", "", 404)
EXPIRED = KeyState(Kind.ENVIRONMENT, "ExpiredToken", "", 400)
CHANGED = KeyState(Kind.CHANGED, "PreconditionFailed", "", 412)
_WHOLE = (Kind.BUCKET, Kind.UNUSABLE, Kind.ENVIRONMENT, Kind.UNKNOWN)
LOST = KeyState(Kind.UNACCOUNTED, "MissingFromReply", "", 200, Effect.UNKNOWN)


@dataclass
class Store:
    """Objects by bucket; `answer(number of the request, bucket, item)` may give a state instead of acting.

    `acts` says whether the store deleted although the answer was `answer`'s.
    """

    objects: dict[str, set[str]] = field(default_factory=dict)
    answer: Answer = lambda number, bucket, item: None
    acts: bool = False
    versioning: Versioning = Versioning.OFF
    batch_condition: Ability = Ability.UNKNOWN
    in_order: Ability = Ability.UNKNOWN
    exact: Ability = Ability.UNKNOWN
    sent: list[tuple[str, list[str | Delete]]] = field(default_factory=list)
    bypassed: list[bool] = field(default_factory=list)
    verified: list[str] = field(default_factory=list)
    probes: list[str] = field(default_factory=list)
    probe_error: Callable[[str], Exception | None] = lambda bucket: None
    look_status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    date: Callable[[], datetime] | None = lambda: datetime.now(UTC)
    written: dict[str, datetime] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)

    @property
    def calls(self) -> Any:
        return self

    def get(self, bucket: str, key: str) -> bytes:
        if self.look_status is not None:
            raise StoreRefused("no", code=str(self.look_status), status=self.look_status)
        return self.bodies[key]

    def exchange(self, method: str, bucket: str, key: str, query: object) -> RawReply:
        assert method == "HEAD"
        self.verified.append(key)
        status = self.look_status or (200 if key in self.objects.get(bucket, set()) else 404)
        return RawReply(status, "", b"", self.headers)

    def check_bucket(self, bucket: str) -> None:
        pass

    def abilities(self, bucket: str) -> Abilities:
        return Abilities(
            bucket,
            versioning=self.versioning,
            batch_condition=self.batch_condition,
            lists_in_order=self.in_order,
            lists_exactly=self.exact,
        )

    def date_of(self, bucket: str) -> datetime | None:
        return self.date() if self.date else None

    def look_up(self, bucket: str) -> Abilities:
        error = self.probe_error(bucket)
        if error is not None:
            raise error
        return self.abilities(bucket)

    def probe(self, bucket: str, under: str = "") -> Abilities:
        self.probes.append(bucket)
        return self.look_up(bucket)

    def probe_writes(self, bucket: str, under: str = "") -> Abilities:
        return self.look_up(bucket)

    def list_slice(self, bucket: str, prefix: str, after: str | None = None, limit: int = 1000) -> Slice:
        names = sorted(name for name in self.objects.get(bucket, ()) if name.startswith(prefix))
        rest = [name for name in names if after is None or name > after]
        more = rest[limit - 1] if len(rest) > limit else None
        found = tuple(
            Listed(name, "", len(self.bodies.get(name, b"")), written_at=self.written.get(name, LONG_AGO))
            for name in rest[:limit]
        )
        return Slice(found, more, date=self.date_of(bucket))

    def delete_all(
        self, bucket: str, items: Sequence[str | Delete], *, bypass_governance: bool = False
    ) -> Future[BatchResult]:
        number = len(self.sent)
        self.sent.append((bucket, list(items)))
        self.bypassed.append(bypass_governance)
        states: dict[int, KeyState] = {}
        for index, item in enumerate(items):
            key = item if isinstance(item, str) else item.key
            state = self.answer(number, bucket, item)
            if state is not None:
                states[index] = state
            if state is None or self.acts:
                self.objects.get(bucket, set()).discard(key)
        future: Future[BatchResult] = Future()
        whole = {*states.values()} if len(states) == len(items) else set()
        fault = next((state for state in whole if len(whole) == 1 and state.kind in _WHOLE), None)
        wait_s = fault.retry_after_s if fault else None
        future.set_result(
            BatchResult(
                bucket, len(items), states, request_ids=(f"r{number}",), fault=fault, retry_after_s=wait_s
            )
        )
        return future


@dataclass
class Versioned(Store):
    """A store that lists the versions of each key (`listed`, the newest first) but for what was erased.

    The first listings are refused, as many as `busy`; `encoded` says whether they show keys byte for byte.
    """

    versioning: Versioning = Versioning.ON
    listed: Sequence[str] = ()
    encoded: bool = True
    busy: int = 0
    erased: set[str | None] = field(default_factory=set)

    def versions_of(self, bucket: str, key: str, *page: object) -> VersionSlice:
        if self.busy > 0:
            self.busy -= 1
            raise StoreRefused("busy", code="SlowDown", status=503)
        left = [name for name in self.listed if name not in self.erased]
        found = (ListedVersion(key, name, number == 0, False) for number, name in enumerate(left))
        return VersionSlice(tuple(found), None, self.encoded)

    def delete_all(
        self, bucket: str, items: Sequence[str | Delete], *, bypass_governance: bool = False
    ) -> Future[BatchResult]:
        reply = super().delete_all(bucket, items, bypass_governance=bypass_governance)
        states = reply.result().states
        named = [item.version_id for item in items if isinstance(item, Delete)]
        self.erased |= {name for index, name in enumerate(named) if index not in states}
        return reply


class Clock:
    """Seconds that pass only when asked for: a millisecond with each look, so that waits end at once."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.5
        return self.now


def execution(*phases: Sequence[str], bucket: str = "b", **given: Any) -> ObjectsExecution:
    """One intent's execution."""
    mode = given.pop("mode", DeleteMode.HIDE)
    return ObjectsExecution(DeleteObjects(bucket, tuple(tuple(p) for p in phases), mode), **given)


def run(
    store: Store,
    *executions: Execution,
    failure_threshold_s: float = 1000.0,
    held: Mapping[str, str] | None = None,
) -> tuple[Executor, list[Result]]:
    """Run the stage over these intents."""
    for each in executions:
        keys = each.action.keys
        store.objects.setdefault(each.action.bucket, set()).update(keys if each.earlier is None else ())
    limits = Limits(failure_threshold_s=failure_threshold_s)
    executor = Executor(store, NoBudget(), limits, held or {}, clock=Clock(), jitter=lambda: 0.0)
    for each in executions:
        executor.add(each)
    executor.finish()
    return executor, [executor.result(each) for each in executions]


def words(result: Result) -> dict[str, int]:
    """Keys by outcome, as plain text."""
    return {kind.value: number for kind, number in result.counts.items() if number}


def sizes(store: Store) -> list[int]:
    """How many items each request carried."""
    return [len(items) for _, items in store.sent]
