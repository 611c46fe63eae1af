"""Sending one batch, or one key, and telling what became of each item; no answer of a store raises."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sexton.schemas.errors import StoreUnavailable
from sexton.storage.abilities import Abilities, Ability, has_dot_segments
from sexton.storage.errors import BucketUnusable
from sexton.storage.exchange import Exchange
from sexton.storage.locks import lock_of
from sexton.storage.narrowing import SIGNATURE, Narrowing
from sexton.storage.reply import is_clean, scan_errors
from sexton.storage.states import BatchResult, Delete, Effect, KeyState, Kind, merge_results, with_lock
from sexton.storage.states_of import (
    fault_result,
    key_state,
    read_reply,
    read_single,
    request_fault,
    unavailable,
)
from sexton.storage.ways import Way, Ways
from sexton.storage.wire import RawReply, retry_after
from sexton.storage.xml_body import DeleteBody, build_items

__all__ = ["BYPASS", "Batches"]

BYPASS = {"x-amz-bypass-governance-retention": "true"}
_DELETE = {"delete": ""}


class Batches:
    """Deletes of a store; safe for several threads, one request at a time in each."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._ways = Ways()

    def has_batches(self, bucket: str) -> bool:
        """Return False once the bucket's store was seen to refuse DeleteObjects and to take DeleteObject."""
        return self._ways.of(bucket) is not Way.SINGLE

    def delete(
        self,
        bucket: str,
        items: Sequence[str | Delete],
        body: DeleteBody,
        abilities: Abilities,
        bypass_governance: bool = False,
    ) -> BatchResult:
        """Send one DeleteObjects; one refused for its content is halved until the culprit stands alone.

        Where the store has no DeleteObjects each key goes by a DeleteObject.
        """
        started = time.monotonic()
        way = self._ways.of(bucket, abilities)
        send = partial(self._send, bucket, abilities, bypass_governance)
        if way is Way.SINGLE:
            return send([Delete.of(item) for item in items], way)
        reply = self._batch(bucket, body, way, bypass_governance)
        if isinstance(reply, RawReply) and is_clean(body, reply):
            # The common case ends here: nothing was parsed, and no object was made for any key.
            ids = (reply.request_id,) if reply.request_id else ()
            return BatchResult(bucket, body.count, request_ids=ids, seconds=time.monotonic() - started)
        if isinstance(reply, RawReply) and abilities.object_lock is not Ability.YES:
            scanned = _scanned(bucket, body, reply)
            if scanned is not None:
                return replace(scanned, seconds=time.monotonic() - started)
        whole = [Delete.of(item) for item in items]
        result = _read(bucket, whole, reply)
        if result.fault is not None and not result.fault.effect_unknown:
            is_there = partial(self._is_there, bucket)
            result = Narrowing(bucket, whole, result, way, self._ways, send, is_there).result()
        result = self._with_locks(bucket, whole, result, abilities)
        return replace(result, seconds=time.monotonic() - started)

    def delete_one(
        self, bucket: str, item: Delete, abilities: Abilities, bypass_governance: bool = False
    ) -> BatchResult:
        """Send one DeleteObject: for keys and conditions that no batch can carry."""
        started = time.monotonic()
        headers = dict(BYPASS) if bypass_governance else {}
        if item.etag is not None:
            headers["If-Match"] = item.etag if item.etag[:1] in ('"', "*") else f'"{item.etag}"'
        query = {} if item.version_id is None else {"versionId": item.version_id}
        try:
            if has_dot_segments(item.key) and self._exchange.folds_paths(bucket):
                folded = key_state("FoldedKey", "the HTTP proxy would fold the path", 0)
                return fault_result(bucket, 1, folded)
            reply = self._exchange.send("DELETE", bucket, item.key, query, headers)
        except (StoreUnavailable, BucketUnusable) as error:
            return replace(fault_result(bucket, 1, unavailable(error)), seconds=time.monotonic() - started)
        result = read_single(bucket, item, reply)
        fault = result.fault
        of_key = fault is not None and (fault.code.isdigit() or fault.code == SIGNATURE)
        if fault is not None and of_key and self._is_there(bucket):
            # The bucket is there for the same credentials: it is this key that does not get through. What no
            # store said may be for now; a path that is rewritten on its way is so for good.
            kind = Kind.FINAL if fault.code == SIGNATURE else Kind.TRANSIENT
            result = replace(result, states={0: replace(fault, kind=kind)}, fault=None)
        result = self._with_locks(bucket, [item], result, abilities)
        return replace(result, seconds=time.monotonic() - started)

    def try_checksum(self, bucket: str, body: DeleteBody, *, md5: bool) -> tuple[int, str]:
        """Send a body with one kind of checksum and return the HTTP status and error code; for probes.

        Raises what the wire raises.
        """
        way = Way.MD5 if md5 else Way.CRC32
        headers = {"Content-Type": "application/xml", **way.headers(body.data)}
        reply = self._exchange.send("POST", bucket, query=_DELETE, headers=headers, body=body.data)
        fault = request_fault(reply)
        return (reply.status if fault is None else fault.status, fault.code if fault else "")

    def _batch(
        self, bucket: str, body: DeleteBody, way: Way, bypass_governance: bool
    ) -> RawReply | StoreUnavailable | BucketUnusable:
        headers = {"Content-Type": "application/xml", **way.headers(body.data)}
        if bypass_governance:
            headers.update(BYPASS)
        try:
            return self._exchange.send("POST", bucket, query=_DELETE, headers=headers, body=body.data)
        except (StoreUnavailable, BucketUnusable) as error:
            # Alone: its traceback holds this frame and those above, which hold the body and get the error.
            # While a task runs nobody collects such a circle.
            error.__cause__ = error.__context__ = None
            return error.with_traceback(None)

    def _send(
        self, bucket: str, abilities: Abilities, bypass_governance: bool, items: Sequence[Delete], way: Way
    ) -> BatchResult:
        """Send items in a way: in one batch, or each by a call of its own."""
        if way is not Way.SINGLE:
            return _read(bucket, items, self._batch(bucket, build_items(items), way, bypass_governance))
        parts: list[tuple[list[int], BatchResult]] = []
        for index, item in enumerate(items):
            part = self.delete_one(bucket, item, abilities, bypass_governance)
            if part.fault is not None:
                # The bucket as a whole, or everything: the others are not tried.
                parts.append(([index], part))
                left = list(range(index + 1, len(items)))
                parts.append((left, fault_result(bucket, len(left), _unsent(part.fault), requests=0)))
                break
            parts.append(([index], part))
        return merge_results(bucket, len(items), parts, {})

    def _is_there(self, bucket: str) -> bool:
        try:
            return self._exchange.send("HEAD", bucket).status == 200
        except (StoreUnavailable, BucketUnusable):
            return False

    def _with_locks(
        self, bucket: str, items: Sequence[Delete], result: BatchResult, abilities: Abilities
    ) -> BatchResult:
        """Return the result with the date until which, where a lock kept a version and can be read."""
        if abilities.object_lock is not Ability.YES or result.fault is not None:
            return result
        states = dict(result.states)
        for index, state in result.states.items():
            if state.kind is Kind.FINAL:
                lock = lock_of(self._exchange, bucket, items[index].key, items[index].version_id)
                states[index] = with_lock(state, lock.retain_until, lock.legal_hold) if lock else state
        return replace(result, states=states)


def _scanned(bucket: str, body: DeleteBody, reply: RawReply) -> BatchResult | None:
    failed = scan_errors(body, reply)
    if not failed:
        return None
    states = {index: key_state(code or "Error", message) for index, (code, message) in failed.items()}
    ids = (reply.request_id,) if reply.request_id else ()
    return BatchResult(bucket, body.count, states, request_ids=ids, retry_after_s=retry_after(reply.headers))


def _read(
    bucket: str, items: Sequence[Delete], reply: RawReply | StoreUnavailable | BucketUnusable
) -> BatchResult:
    if not isinstance(reply, RawReply):
        return fault_result(bucket, len(items), unavailable(reply))
    return read_reply(bucket, items, reply)


def _unsent(fault: KeyState) -> KeyState:
    """Return the state of what was not sent, as what went before it met this: nothing happened to it."""
    kind = Kind.BUCKET if fault.effect_unknown else fault.kind
    return replace(fault, kind=kind, effect=Effect.NONE)
