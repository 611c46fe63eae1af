"""Sending one batch, or one key, and telling what became of each item; no answer of a store raises."""

from __future__ import annotations

import time
from collections.abc import Sequence
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
_NO_BATCHES = (
    "InvalidArgument",
    "InvalidRequest",
    "MalformedPOSTRequest",
    "NotImplemented",
    "MethodNotAllowed",
)
_SIGNATURE = "SignatureDoesNotMatch"
_Part = tuple[list[int], BatchResult]


class Batches:
    """Deletes over one signer and one wire; safe for several threads, one request at a time in each."""

    def __init__(self, signer: RequestSigner, wire: Wire) -> None:
        self._signer = signer
        self._wire = wire
        self._md5: set[str] = set()
        self._with: set[str] = set()
        self._without: set[str] = set()

    def has_batches(self, bucket: str) -> bool:
        """Return False once the bucket's store was seen to refuse DeleteObjects and to take DeleteObject."""
        return bucket not in self._without

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
        if bucket in self._without:
            whole = [Delete(item) if isinstance(item, str) else item for item in items]
            return self._one_by_one(bucket, whole, abilities, bypass_governance)
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
        if result.fault is not None:
            result = self._narrowed(bucket, whole, result, abilities, bypass_governance)
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
        fault = result.fault
        of_key = fault is not None and (fault.code.isdigit() or fault.code == _SIGNATURE)
        if fault is not None and of_key and self._is_there(bucket):
            # The bucket is there for the same credentials: it is this key that does not get through. What no
            # store said may be for now; a path that is rewritten on its way is so for good.
            kind = Kind.FINAL if fault.code == _SIGNATURE else Kind.TRANSIENT
            result = replace(result, states={0: replace(fault, kind=kind)}, fault=None)
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

    def _narrowed(
        self,
        bucket: str,
        items: Sequence[Delete],
        refused: BatchResult,
        abilities: Abilities,
        bypass_governance: bool,
    ) -> BatchResult:
        """Return what becomes of a request that was refused as a whole: by another way, or in parts."""
        fault = refused.fault
        assert fault is not None
        done: list[_Part] = []
        if _may_lack_batches(fault) and bucket not in self._with:
            done = self._other_way(bucket, items, abilities, bypass_governance)
            refused = replace(refused, requests=refused.requests + sum(part.requests for _, part in done))
            if sum(len(indexes) for indexes, _ in done) == len(items):
                return replace(merge_results(bucket, len(items), done, {}), requests=refused.requests)
        if not self._is_of_content(bucket, fault):
            return refused
        if len(items) > 1:
            return self._halved(bucket, items, refused, done, abilities, bypass_governance)
        if not fault.code:
            # No store said this: a proxy, or the wrong port. Nobody knows whether it is about the key.
            return fault_result(bucket, 1, replace(fault, kind=Kind.BUCKET), requests=refused.requests)
        return refused

    def _other_way(
        self, bucket: str, items: Sequence[Delete], abilities: Abilities, bypass_governance: bool
    ) -> list[_Part]:
        """Try the checksum of the old kind, then one key alone, then that key by a call of its own.

        Some stores refuse the newer checksum in words of their own, some have no DeleteObjects. Asked once
        for each bucket. Returns the results of those items of which something was sent, with their indexes:
        all where that was another way; the first alone where it passed, so that the matter is another key.
        """
        every = list(range(len(items)))
        if bucket not in self._md5:
            reply = self._exchange(bucket, build_items(items), True, bypass_governance)
            if isinstance(reply, RawReply) and reply.status == 200:
                self._md5.add(bucket)
                return [(every, self._read(bucket, items, reply))]
        alone = self._read(
            bucket, items[:1], self._exchange(bucket, build_items(items[:1]), True, bypass_governance)
        )
        if alone.fault is None or alone.fault.status not in (400, 405, 501):
            self._with.add(bucket)
            return [([0], replace(alone, requests=2))] if alone.fault is None else []
        single = self.delete_one(bucket, items[0], abilities, bypass_governance)
        if single.fault is not None or any(state.kind is not Kind.ABSENT for state in single.states.values()):
            return []
        self._without.add(bucket)
        single = replace(single, requests=3)
        return [([0], single), (every[1:], self._one_by_one(bucket, items[1:], abilities, bypass_governance))]

    def _one_by_one(
        self, bucket: str, items: Sequence[Delete], abilities: Abilities, bypass_governance: bool
    ) -> BatchResult:
        """Delete each item by a call of its own, until the bucket as a whole, or everything, refuses."""
        parts: list[_Part] = []
        for index, item in enumerate(items):
            part = self.delete_one(bucket, item, abilities, bypass_governance)
            if part.fault is not None:
                left = list(range(index, len(items)))
                parts.append((left, fault_result(bucket, len(left), part.fault, requests=part.requests)))
                break
            parts.append(([index], part))
        return merge_results(bucket, len(items), parts, {})

    def _is_of_content(self, bucket: str, fault: KeyState) -> bool:
        """Return whether a part of the request may pass: its content was refused, by the store or on its way.

        A filter answers 403 in words of its own for a body that it dislikes, and a proxy that rewrites a
        path spoils one signature. Where the bucket is there for the same credentials these are not at fault.
        """
        if classify(Scope.REQUEST, fault.code, fault.status).content:
            return True
        odd = fault.code == _SIGNATURE or (not fault.code and fault.status in (403, 406))
        return odd and self._is_there(bucket)

    def _halved(
        self,
        bucket: str,
        items: Sequence[Delete],
        refused: BatchResult,
        done: Sequence[_Part],
        abilities: Abilities,
        bypass_governance: bool,
    ) -> BatchResult:
        """Return the states of items whose request was refused as a whole: those of its parts, sent again.

        Bounded: what is left when the bound is reached waits with its bucket. So does everything when every
        part is refused: that is no matter of the keys. What of it is `done` is not sent again.
        """
        parts: list[_Part] = list(done)
        known = {index for indexes, _ in done for index in indexes}
        waiting = _halves([index for index in range(len(items)) if index not in known])
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
            alike = result.fault is not None and _is_alike(result.fault, refused.fault)
            if alike and len(part) > 1:
                waiting += _halves(indexes)
            elif alike:
                # Its neighbours pass, so that it is this key that does not: for good.
                assert result.fault is not None
                state = replace(result.fault, kind=Kind.FINAL)
                parts.append((indexes, replace(result, states={0: state}, fault=None)))
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


def _may_lack_batches(fault: KeyState) -> bool:
    """Return whether a refusal may be about DeleteObjects itself, or about a header of it."""
    if fault.status in (405, 501):
        return True
    known = classify(Scope.REQUEST, fault.code, 0).code == fault.code
    return fault.status == 400 and (fault.code in _NO_BATCHES or not known)


def _is_alike(fault: KeyState, refused: KeyState | None) -> bool:
    """Return whether a part was refused as the whole was."""
    content = classify(Scope.REQUEST, fault.code, fault.status).content
    same = refused is not None and (fault.code, fault.status) == (refused.code, refused.status)
    return content or same


def _is_refused(part: BatchResult) -> bool:
    return len(part.states) == part.count and all(
        state.kind in (Kind.FINAL, Kind.BUCKET) for state in part.states.values()
    )


def _wants_md5(reply: RawReply) -> bool:
    if reply.status != 400:
        return False
    fault = request_fault(reply)
    return fault is not None and fault.code in _WANTS_MD5 and "md5" in f"{fault.code}{fault.message}".lower()


def _halves(indexes: Sequence[int]) -> list[list[int]]:
    middle = len(indexes) // 2
    return [list(half) for half in (indexes[:middle], indexes[middle:]) if half]
