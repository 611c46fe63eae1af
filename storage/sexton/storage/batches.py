"""Sending one batch, or one key, and telling what became of each item; no answer of a store raises."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sexton.schemas.errors import StoreUnavailable
from sexton.storage.abilities import Abilities, Ability, has_dot_segments
from sexton.storage.errors_table import Scope, classify, classify_single
from sexton.storage.locks import lock_of
from sexton.storage.reply import child_text, code_of, is_clean, parsed, scan_errors
from sexton.storage.signing import CREDENTIAL_CODES, RequestSigner, checksum_headers, md5_headers
from sexton.storage.states import BatchResult, Delete, Effect, KeyState, Kind, merge_results, with_lock
from sexton.storage.states_of import fault_result, key_state, read_reply, request_fault, unavailable
from sexton.storage.wire import RawReply, Wire, retry_after
from sexton.storage.xml_body import DeleteBody, build_items

__all__ = ["BYPASS", "Batches"]

BYPASS = {"x-amz-bypass-governance-retention": "true"}
_MOST_HALVINGS = 64
_WANTS_MD5 = ("MissingContentMD5", "InvalidRequest", "InvalidDigest")


class Batches:
    """Deletes over one signer and one wire; safe for several threads, one request at a time in each."""

    def __init__(self, signer: RequestSigner, wire: Wire) -> None:
        self._signer = signer
        self._wire = wire
        self._md5: set[str] = set()

    def delete(
        self,
        bucket: str,
        items: Sequence[str | Delete],
        body: DeleteBody,
        abilities: Abilities,
        bypass_governance: bool = False,
    ) -> BatchResult:
        """Send one DeleteObjects; one refused for its content is halved until the culprit stands alone."""
        started = time.monotonic()
        reply = self._batch(bucket, body, abilities, bypass_governance)
        if isinstance(reply, RawReply) and is_clean(body, reply):
            # The common case ends here: nothing was parsed, and no object was made for any key.
            ids = (reply.request_id,) if reply.request_id else ()
            return BatchResult(bucket, body.count, request_ids=ids, seconds=time.monotonic() - started)
        if isinstance(reply, RawReply) and abilities.object_lock is not Ability.YES:
            scanned = _scanned(bucket, body, reply)
            if scanned is not None:
                return replace(scanned, seconds=time.monotonic() - started)
        whole = [Delete(item) if isinstance(item, str) else item for item in items]
        result = self._read(bucket, whole, reply)
        refused = _about_content(result)
        if refused is not None:
            if len(whole) > 1:
                result = self._halved(bucket, whole, result, abilities, bypass_governance)
            elif not refused.code:
                # No store said this: a proxy, or the wrong port. Nobody knows whether it is about the key.
                result = fault_result(bucket, 1, replace(refused, kind=Kind.BUCKET))
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
            request = self._signer.call("DELETE", bucket, item.key, query, headers)
            if has_dot_segments(item.key) and self._wire.folds_paths(request.url):
                return fault_result(bucket, 1, _refused("FoldedKey", "the HTTP proxy would fold the path"))
            reply = self._wire.exchange(bucket, request)
        except StoreUnavailable as error:
            return replace(fault_result(bucket, 1, unavailable(error)), seconds=time.monotonic() - started)
        result = self._renewing(_read_single(bucket, item, reply))
        if result.fault is not None and result.fault.code.isdigit() and self._is_there(bucket):
            # No store said this, and the bucket is there: it is this key that does not get through.
            state = replace(result.fault, kind=Kind.TRANSIENT)
            result = replace(result, states={0: state}, fault=None)
        result = self._with_locks(bucket, [item], result, abilities)
        return replace(result, seconds=time.monotonic() - started)

    def try_checksum(self, bucket: str, body: DeleteBody, *, md5: bool) -> tuple[int, str]:
        """Send a body with one kind of checksum and return the HTTP status and error code; for probes.

        Raises what the wire raises.
        """
        headers = md5_headers(body.data) if md5 else checksum_headers(body.data)
        reply = self._wire.exchange(bucket, self._signer.request(bucket, body.data, headers))
        fault = request_fault(reply)
        return (reply.status if fault is None else fault.status, fault.code if fault else "")

    def _batch(
        self, bucket: str, body: DeleteBody, abilities: Abilities, bypass_governance: bool
    ) -> RawReply | StoreUnavailable:
        needs_md5 = bucket in self._md5 or (abilities.crc32 is Ability.NO and abilities.md5 is Ability.YES)
        reply = self._exchange(bucket, body, needs_md5, bypass_governance)
        if not needs_md5 and isinstance(reply, RawReply) and _wants_md5(reply):
            # An old store that was not probed: it says what it misses, and has done nothing.
            reply = self._exchange(bucket, body, True, bypass_governance)
            if isinstance(reply, RawReply) and reply.status == 200:
                self._md5.add(bucket)
        return reply

    def _exchange(
        self, bucket: str, body: DeleteBody, md5: bool, bypass_governance: bool
    ) -> RawReply | StoreUnavailable:
        headers = md5_headers(body.data) if md5 else checksum_headers(body.data)
        if bypass_governance:
            headers.update(BYPASS)
        try:
            # Signed by the sender, not by the caller: a signature that waits for a connection grows old.
            return self._wire.exchange(bucket, self._signer.request(bucket, body.data, headers))
        except StoreUnavailable as error:
            # Alone: its traceback holds this frame and those above, which hold the body and get the error.
            # While a task runs nobody collects such a circle.
            error.__cause__ = error.__context__ = None
            return error.with_traceback(None)

    def _read(self, bucket: str, items: Sequence[Delete], reply: RawReply | StoreUnavailable) -> BatchResult:
        if not isinstance(reply, RawReply):
            return fault_result(bucket, len(items), unavailable(reply))
        return self._renewing(read_reply(bucket, items, reply))

    def _renewing(self, result: BatchResult) -> BatchResult:
        """Return the result; after one that says that the credentials are old, new ones are looked for."""
        if result.fault is not None and result.fault.code in CREDENTIAL_CODES:
            self._signer.forget_credentials()
        return result

    def _halved(
        self,
        bucket: str,
        items: Sequence[Delete],
        refused: BatchResult,
        abilities: Abilities,
        bypass_governance: bool,
    ) -> BatchResult:
        """Return the states of items whose request was refused as a whole: those of its parts, sent again.

        Bounded: what is left when the bound is reached waits with its bucket. So does everything when every
        part is refused: that is no matter of the keys.
        """
        parts: list[tuple[list[int], BatchResult]] = []
        waiting = [list(half) for half in _halves(range(len(items)))]
        requests = refused.requests
        while waiting:
            indexes = waiting.pop()
            if requests > _MOST_HALVINGS:
                assert refused.fault is not None
                state = replace(refused.fault, kind=Kind.BUCKET)
                parts.append((indexes, fault_result(bucket, len(indexes), state, requests=0)))
                continue
            part = [items[i] for i in indexes]
            reply = self._batch(bucket, build_items(part), abilities, bypass_governance)
            result = self._read(bucket, part, reply)
            requests += 1
            if _about_content(result) and len(part) > 1:
                waiting += [list(half) for half in _halves(indexes)]
            else:
                parts.append((indexes, replace(result, fault=None)))
        if all(_is_refused(part) for _, part in parts):
            assert refused.fault is not None
            return fault_result(
                bucket, len(items), replace(refused.fault, kind=Kind.BUCKET), requests=requests
            )
        return replace(merge_results(bucket, len(items), parts, {}), requests=requests)

    def _is_there(self, bucket: str) -> bool:
        try:
            return self._wire.exchange(bucket, self._signer.call("HEAD", bucket)).status == 200
        except StoreUnavailable:
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
                lock = lock_of(self._signer, self._wire, bucket, items[index].key, items[index].version_id)
                states[index] = with_lock(state, lock.retain_until, lock.legal_hold) if lock else state
        return replace(result, states=states)


def _scanned(bucket: str, body: DeleteBody, reply: RawReply) -> BatchResult | None:
    failed = scan_errors(body, reply)
    if not failed:
        return None
    states = {index: key_state(code or "Error", message) for index, (code, message) in failed.items()}
    ids = (reply.request_id,) if reply.request_id else ()
    return BatchResult(bucket, body.count, states, request_ids=ids, retry_after_s=retry_after(reply.headers))


def _read_single(bucket: str, item: Delete, reply: RawReply) -> BatchResult:
    ids = (reply.request_id,) if reply.request_id else ()
    if reply.status == 204 or (reply.status == 200 and not reply.body):
        is_marker = reply.headers.get("x-amz-delete-marker") == "true"
        version = reply.headers.get("x-amz-version-id", "")
        hidden = is_marker and item.version_id is None
        erased = frozenset((0,)) if is_marker and not hidden else frozenset[int]()
        return BatchResult(bucket, 1, {}, {0: version} if hidden else {}, erased, ids)
    if reply.status < 300:
        fault = request_fault(reply)
        assert fault is not None
        return fault_result(bucket, 1, fault, reply.request_id)
    root = parsed(reply.body)
    code = code_of(root) if root is not None else ""
    message = child_text(root, "Message") if root is not None else ""
    row = classify_single(code, reply.status)
    wait = retry_after(reply.headers)
    state = KeyState(row.kind, code or str(reply.status), message, reply.status, row.effect, wait)
    if row.scope is Scope.REQUEST:
        return fault_result(bucket, 1, state, reply.request_id)
    unknown = row.kind in (Kind.UNKNOWN, Kind.UNACCOUNTED)
    effect = Effect.UNKNOWN if unknown else Effect.KNOWN
    return BatchResult(bucket, 1, {0: state}, request_ids=ids, effect=effect, retry_after_s=wait)


def _refused(code: str, message: str) -> KeyState:
    row = classify(Scope.KEY, code, 0)
    return KeyState(row.kind, code, message, 0, row.effect)


def _about_content(result: BatchResult) -> KeyState | None:
    fault = result.fault
    return fault if fault is not None and classify(Scope.REQUEST, fault.code, fault.status).content else None


def _is_refused(part: BatchResult) -> bool:
    return len(part.states) == part.count and all(
        state.kind in (Kind.FINAL, Kind.BUCKET) for state in part.states.values()
    )


def _wants_md5(reply: RawReply) -> bool:
    if reply.status != 400:
        return False
    fault = request_fault(reply)
    return fault is not None and fault.code in _WANTS_MD5 and "md5" in f"{fault.code}{fault.message}".lower()


def _halves(indexes: Sequence[int]) -> Iterator[Sequence[int]]:
    middle = len(indexes) // 2
    yield indexes[:middle]
    yield indexes[middle:]
