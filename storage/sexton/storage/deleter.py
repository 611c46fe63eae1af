"""DeleteObjects, the hot path: hand-built bodies, signed and sent once, replies accounted for key by key.

`delete_all` returns the state of every key and decides nothing about repeating: what failed, or may have
failed, is the caller's.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import TracebackType

from sexton.schemas.errors import StoreUnavailable
from sexton.storage.abilities import Abilities, Ability, Versioning, unprobed
from sexton.storage.batches import Batches
from sexton.storage.calls import Calls
from sexton.storage.errors import BucketUnusable
from sexton.storage.exchange import Exchange
from sexton.storage.folders import beside_folders
from sexton.storage.planning import Plan, make_plan, plain_body
from sexton.storage.probes import look_up, probe_store
from sexton.storage.racing import race_writers
from sexton.storage.settings import StoreSettings
from sexton.storage.signing import RequestSigner
from sexton.storage.states import BatchResult, Delete, merge_results
from sexton.storage.states_of import fault_result, unreadable
from sexton.storage.wire import Wire

__all__ = ["READY", "BatchDeleter", "open_deleter"]

_log = logging.getLogger("sexton.storage")
_HEADS = 8  # HEADs of folder objects under way at a time
_ASK_AGAIN_S = 60.0  # what a bucket says of itself is accepted so long

READY = 2
"""Requests that may wait, with their bodies built, for a sender: its next one never waits for its caller."""


class BatchDeleter:
    """Sends deletes, at most `requests_in_flight` requests at a time; safe for several threads."""

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings
        self._signer = RequestSigner(settings)
        self._wire = Wire(settings, self._signer.ca_bundle)
        exchange = Exchange(self._signer, self._wire)
        self._batches = Batches(exchange)
        self.calls = Calls(exchange)
        self._abilities: dict[str, Abilities] = {}
        self._defaults: dict[str, Abilities] = {}
        self._asked: dict[str, float] = {}
        self._raced: dict[str, float] = {}
        self._probing: dict[str, threading.Lock] = {}
        self._free = threading.BoundedSemaphore(settings.requests_in_flight + READY)
        # Threads start with their first task: stores that keep folder objects never see these two.
        self._lookers = ThreadPoolExecutor(settings.requests_in_flight, thread_name_prefix="sexton-folders")
        self._heads = ThreadPoolExecutor(_HEADS, thread_name_prefix="sexton-folder")
        self._senders = ThreadPoolExecutor(settings.requests_in_flight, thread_name_prefix="sexton-delete")

    def delete_all(
        self, bucket: str, items: Sequence[str | Delete], *, bypass_governance: bool = False
    ) -> Future[BatchResult]:
        """Delete 1 to 1000 objects of a bucket, each reported by its index; a `str` is a plain key.

        What a batch can carry goes in one DeleteObjects, the rest by DeleteObject; what the store would
        fold, or whose condition it would not check, is not sent (state `refused`). Waits while as many
        requests are out as may be. Raises InvalidBatch at once for an empty or too long list, or the same
        key and version twice (of one key, whole or by version, each at most once). The future raises nothing
        that a store can cause. `bypass_governance` asks the store to disregard governance retention.
        """
        abilities = self._abilities.get(bucket) or self._unprobed(bucket)
        if abilities.keeps_folders is Ability.NO:
            return self._lookers.submit(self._delete_looked, bucket, items, abilities, bypass_governance)
        return self._delete(bucket, items, abilities, bypass_governance)

    def _delete(
        self, bucket: str, items: Sequence[str | Delete], abilities: Abilities, bypass_governance: bool
    ) -> Future[BatchResult]:
        body = plain_body(items, abilities)
        if not self._batches.has_batches(bucket):
            plan = make_plan(items, abilities)
            singles = sorted([*plan.batch, *plan.singles])
            plan = replace(plan, batch=(), body=None, singles=singles)
            return self._delete_planned(bucket, plan, abilities, bypass_governance)
        if body is not None:
            plain = body
            return self._launch(
                partial(self._batches.delete, bucket, items, plain, abilities, bypass_governance),
                bucket,
                len(items),
            )
        return self._delete_planned(bucket, make_plan(items, abilities), abilities, bypass_governance)

    def date_of(self, bucket: str) -> datetime | None:
        """Return the time by the clock of the bucket's last reply, None where none has told it."""
        return self._wire.date_of(bucket)

    def ask_first(self, fence: Callable[[], None]) -> None:
        """Call `fence` before each request from now on; an EnvironmentFault that it raises keeps it back."""
        self._wire.fence = fence

    def probe(self, bucket: str, under: str = "") -> Abilities:
        """Return what the bucket's store can do, tried once in this process (some 200 small requests).

        Works on keys of its own, `under` and then `.sexton-probe/`, and removes them. Raises StoreRefused or
        StoreUnavailable when the store cannot be asked now; then nothing is remembered. `delete_all` goes by
        what was found.
        """
        # One lock for each bucket: a store that hangs holds up nobody else's probe.
        with self._probing.setdefault(bucket, threading.Lock()):
            found = self._abilities.get(bucket)
            if found is None:
                raced = self.abilities(bucket)
                found = replace(
                    probe_store(self.calls, self._batches, bucket, under),
                    conditional_writes=raced.conditional_writes,
                    writes_detail=raced.writes_detail,
                )
                if found.lists_exactly is Ability.UNKNOWN:  # nothing may be put there
                    found = replace(found, lists_exactly=self._unprobed(bucket).lists_exactly)
                self.learn(found)
        return found

    def probe_writes(self, bucket: str, under: str = "") -> Abilities:
        """Return what is known of the bucket, with whether its store's conditional writes are real.

        That is found out by writers that race, once in this process (some 170 small requests on keys like a
        probe's, removed again); who writes nothing on a condition never needs it. What stays unknown is asked
        again, once in a minute. Raises what `probe` raises.
        """
        with self._probing.setdefault(bucket, threading.Lock()):
            known = self.abilities(bucket)
            old = time.monotonic() - self._raced.get(bucket, -math.inf) > _ASK_AGAIN_S
            if known.conditional_writes is not Ability.UNKNOWN or not old:
                return known
            found = race_writers(self.calls, self._batches, bucket, under)
            known = replace(known, conditional_writes=found.ability, writes_detail=found.detail)
            (self._abilities if bucket in self._abilities else self._defaults)[bucket] = known
            self._raced[bucket] = time.monotonic()
            return known

    def look_up(self, bucket: str) -> Abilities:
        """Return what the bucket says of itself (versioning, object lock), asked once in a minute.

        Two requests, nothing is written: enough for plain keys. What this leaves unknown is refused by
        `delete_all` until a probe has tried it. Raises what `probe` raises.
        """
        with self._probing.setdefault(bucket, threading.Lock()):
            probed = self._abilities.get(bucket)
            found = probed or self._unprobed(bucket)
            # An owner may switch versioning on while the process runs.
            old = time.monotonic() - self._asked.get(bucket, -math.inf) > _ASK_AGAIN_S
            if not old and (probed or found.versioning is not Versioning.UNKNOWN):
                return found
            said = look_up(self.calls, self._batches, found)
            if probed:
                said = replace(probed, versioning=said.versioning, object_lock=said.object_lock)
            (self._abilities if probed else self._defaults)[bucket] = said
            self._asked[bucket] = time.monotonic()
            return said

    def abilities(self, bucket: str) -> Abilities:
        """Return what is known of the bucket's store: what a probe has found, else nothing. Asks nobody."""
        return self._abilities.get(bucket) or self._unprobed(bucket)

    def learn(self, abilities: Abilities) -> None:
        """Take what a probe has found as the rule for the bucket from now on."""
        self._abilities[abilities.bucket] = abilities
        self._asked[abilities.bucket] = time.monotonic()

    def close(self) -> None:
        """Wait for what is out, then drop the connections."""
        for pool in (self._lookers, self._heads, self._senders):
            pool.shutdown(wait=True)
        self._wire.close()

    def __enter__(self) -> BatchDeleter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _launch(self, work: Callable[[], BatchResult], bucket: str, count: int) -> Future[BatchResult]:
        self._free.acquire()
        try:
            future = self._senders.submit(_told, work, bucket, count)
        except BaseException:
            self._free.release()
            raise
        future.add_done_callback(lambda _: self._free.release())
        return future

    def _delete_looked(
        self, bucket: str, items: Sequence[str | Delete], abilities: Abilities, bypass_governance: bool
    ) -> BatchResult:
        """Delete what takes no folder object with it."""
        states = beside_folders(self.calls, bucket, items, self._heads)
        left = [index for index in range(len(items)) if index not in states]
        if not left:
            return merge_results(bucket, len(items), [], states)
        part = self._delete(bucket, [items[i] for i in left], abilities, bypass_governance).result()
        return merge_results(bucket, len(items), [(left, part)], states)

    def _delete_planned(
        self, bucket: str, plan: Plan, abilities: Abilities, bypass_governance: bool
    ) -> Future[BatchResult]:
        gathering = _Gathering(bucket, plan)
        if plan.body is not None:
            body, items = plan.body, [plan.items[i] for i in plan.batch]
            gathering.add(
                plan.batch,
                self._launch(
                    partial(self._batches.delete, bucket, items, body, abilities, bypass_governance),
                    bucket,
                    len(items),
                ),
            )
        for index in plan.singles:
            item = Delete.of(plan.items[index])
            gathering.add(
                [index],
                self._launch(
                    partial(self._batches.delete_one, bucket, item, abilities, bypass_governance), bucket, 1
                ),
            )
        return gathering.close()

    def _unprobed(self, bucket: str) -> Abilities:
        found = self._defaults.get(bucket)
        if found is None:
            try:
                host = self._signer.address(bucket).host
            except (StoreUnavailable, BucketUnusable):
                # Without an address nothing is known; sending says why there is none.
                return unprobed(bucket)
            aws = host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
            found = self._defaults[bucket] = unprobed(bucket, is_aws=aws)
        return found


def _told(work: Callable[[], BatchResult], bucket: str, count: int) -> BatchResult:
    """Return what a request came to, also where its reply trips our own reading of it.

    One bucket's odd answer must not end the work of all others; its keys are of unknown effect.
    """
    try:
        return work()
    except Exception as error:  # noqa: BLE001  whatever it is, it is reported
        _log.exception("a reply could not be read: bucket %s", bucket)
        return fault_result(bucket, count, unreadable(error))


class _Gathering:
    """Makes one result of the requests that a list of items was divided into."""

    def __init__(self, bucket: str, plan: Plan) -> None:
        self._bucket = bucket
        self._plan = plan
        self._parts: list[tuple[list[int], Future[BatchResult]]] = []
        self._left = 1
        self._lock = threading.Lock()
        self._future: Future[BatchResult] = Future()
        self._future.set_running_or_notify_cancel()

    def add(self, indexes: Sequence[int], part: Future[BatchResult]) -> None:
        """Count a request in; `indexes` are those of its items."""
        with self._lock:
            self._left += 1
            self._parts.append((list(indexes), part))
        part.add_done_callback(lambda _: self._one_less())

    def close(self) -> Future[BatchResult]:
        """Return the future of the whole; nothing is added after this."""
        self._one_less()
        return self._future

    def _one_less(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        try:
            parts = [(indexes, part.result()) for indexes, part in self._parts]
            self._future.set_result(
                merge_results(self._bucket, len(self._plan.items), parts, self._plan.refused)
            )
        except BaseException as error:  # noqa: BLE001  it belongs to whoever waits for the future
            self._future.set_exception(error)


_open: dict[StoreSettings, BatchDeleter] = {}
_open_lock = threading.Lock()


def open_deleter(settings: StoreSettings) -> BatchDeleter:
    """Return this process' deleter for these settings; it stays open for the next caller.

    A client made anew for each task halves the speed: Spark's Python workers are reused, and so is this.
    """
    with _open_lock:
        if settings not in _open:
            _open[settings] = BatchDeleter(settings)
        return _open[settings]


def _forget_after_fork() -> None:
    # A child must not write into its parent's connections, and has none of its threads.
    global _open_lock
    _open_lock = threading.Lock()
    _open.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
