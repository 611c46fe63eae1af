"""Reading an unclean reply to DeleteObjects: one state for each item that is not plainly gone.

Nothing is accepted that the reply does not say of exactly one item. A key that the reply leaves out, or names
more often than it was sent, is unaccounted; so is every key beside an unexpected key that cannot be
explained, since the reply may be another request's.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.etree import ElementTree

from sexton.schemas.errors import StoreUnavailable
from sexton.storage.errors import HINTS, NoReply, StoreRefused
from sexton.storage.errors_table import Scope, classify, classify_single
from sexton.storage.reply import child_text, code_of, local_name, parsed
from sexton.storage.states import BatchResult, Delete, Effect, KeyState, Kind
from sexton.storage.wire import RawReply, retry_after

__all__ = [
    "fault_result",
    "key_state",
    "read_reply",
    "read_single",
    "request_fault",
    "unavailable",
    "unreadable",
]

_SHOWN = 80  # characters of an unexpected key: it stands in the message of each of its neighbours


@dataclass(frozen=True, slots=True)
class _Entry:
    is_error: bool
    key: str
    version_id: str | None
    code: str
    message: str
    marker: str | None

    def made_marker(self, item: Delete) -> bool:
        """Return whether it reports a new marker, and not the erasing of the version that was named."""
        # That may be a marker itself; some stores name it as the marker alone, and some without an id.
        named = item.version_id is not None and self.marker in ("", item.version_id)
        return self.marker is not None and self.version_id is None and not named

    def erased_marker(self, item: Delete) -> bool:
        """Return whether it reports the erasing of a marker."""
        return self.marker is not None and not self.made_marker(item)


@dataclass(slots=True)
class _Reading:
    items: Sequence[Delete]
    message: list[list[_Entry]]
    unexpected: list[_Entry] = field(default_factory=list)


def read_reply(bucket: str, items: Sequence[Delete], reply: RawReply) -> BatchResult:
    """Return the states of all items by what the reply says, and nothing but what it says."""
    fault = request_fault(reply)
    if fault is not None:
        return fault_result(bucket, len(items), fault, reply.request_id)
    root = parsed(reply.body)
    assert root is not None
    reading = _assign(items, [_entry(element) for element in root if _is_entry(element)])
    states = {i: state for i in range(len(items)) if (state := _state(reading, i))}
    states.update(_uncertain(reading, states))
    gone = [i for i in range(len(items)) if i not in states]
    unknown = any(state.kind is Kind.UNACCOUNTED for state in states.values())
    return BatchResult(
        bucket,
        len(items),
        states,
        {i: reading.message[i][0].marker or "" for i in gone if reading.message[i][0].made_marker(items[i])},
        frozenset(i for i in gone if reading.message[i][0].erased_marker(items[i])),
        (reply.request_id,) if reply.request_id else (),
        Effect.UNKNOWN if unknown else Effect.KNOWN,
        retry_after_s=retry_after(reply.headers),
    )


def read_single(bucket: str, item: Delete, reply: RawReply) -> BatchResult:
    """Return what became of an item that went by a call of its own."""
    ids = (reply.request_id,) if reply.request_id else ()
    if reply.status == 204 or (reply.status == 200 and not reply.body):
        is_marker = reply.headers.get("x-amz-delete-marker") == "true"
        version = reply.headers.get("x-amz-version-id", "")
        hidden = is_marker and item.version_id is None
        if is_marker and not hidden and version not in ("", item.version_id):
            state = key_state(
                "MarkerInstead", "a delete marker was made: the store does not go by version ids"
            )
            return BatchResult(bucket, 1, {0: state}, {0: version}, request_ids=ids)
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


def request_fault(reply: RawReply) -> KeyState | None:
    """Return the state of a request that was answered as a whole, None when the reply goes key by key."""
    root = parsed(reply.body)
    name = local_name(root) if root is not None else ""
    if reply.status == 200 and name == "DeleteResult":
        return None
    code = code_of(root) if root is not None and name == "Error" else ""
    message = child_text(root, "Message") if root is not None and name == "Error" else ""
    if not code and reply.status < 300:
        code = "NotADeleteResult" if reply.body else "EmptyReply"
    if not message:
        message = f"HTTP {reply.status}, {reply.body[:80]!r}" if reply.body else f"HTTP {reply.status}"
    row = classify(Scope.REQUEST, code, reply.status)
    if row.kind is Kind.UNUSABLE and code in HINTS:
        message = f"{message} ({HINTS[code]})"
    return KeyState(row.kind, code, message, reply.status, row.effect, retry_after(reply.headers))


def unavailable(error: StoreUnavailable | StoreRefused) -> KeyState:
    """Return the state of what was asked of a store that did not answer or refused, or not at all."""
    if isinstance(error, StoreRefused):
        row = classify(Scope.REQUEST, error.code, error.status)
        message = error.with_hint if row.kind is Kind.UNUSABLE else str(error)
        wait = error.retry_after_s
        return KeyState(row.kind, error.code, message, error.status, row.effect, retry_after_s=wait)
    code = error.code if isinstance(error, NoReply) else "CredentialsUnavailable"
    row = classify(Scope.REQUEST, code, 0)
    return KeyState(row.kind, code, error.with_hint, 0, row.effect)


def unreadable(error: BaseException) -> KeyState:
    """Return the state that stands for an answer at which our own reading of it failed."""
    row = classify(Scope.REQUEST, "UnreadableReply", 0)
    return KeyState(row.kind, row.code, f"{type(error).__name__}: {error}", 0, row.effect)


def fault_result(
    bucket: str, count: int, fault: KeyState, request_id: str = "", requests: int = 1
) -> BatchResult:
    """Return the result of a request in which every item has the state of the whole."""
    return BatchResult(
        bucket,
        count,
        dict.fromkeys(range(count), fault),
        request_ids=(request_id,) if request_id else (),
        effect=fault.effect,
        fault=fault,
        retry_after_s=fault.retry_after_s,
        requests=requests,
    )


def key_state(code: str, message: str = "", status: int = 200) -> KeyState:
    """Return the state of one key by the code that a reply, or Sexton itself, gives it."""
    row = classify(Scope.KEY, code, status)
    return KeyState(row.kind, code, message, status, row.effect)


def _is_entry(element: ElementTree.Element) -> bool:
    return local_name(element) in ("Deleted", "Error")


def _entry(element: ElementTree.Element) -> _Entry:
    fields: Mapping[str, str] = {local_name(child): child.text or "" for child in element}
    is_marker = fields.get("DeleteMarker") == "true"
    return _Entry(
        local_name(element) == "Error",
        fields.get("Key", ""),
        fields.get("VersionId") or None,
        code_of(element),
        fields.get("Message", ""),
        fields.get("DeleteMarkerVersionId", "") if is_marker else None,
    )


def _assign(items: Sequence[Delete], entries: Sequence[_Entry]) -> _Reading:
    exact = {(item.key, item.version_id): i for i, item in enumerate(items)}
    of_key: dict[str, list[int]] = {}
    for i, item in enumerate(items):
        of_key.setdefault(item.key, []).append(i)
    reading = _Reading(items, [[] for _ in items])
    for entry in entries:
        indexes = of_key.get(entry.key, [])
        erased = exact.get((entry.key, entry.marker)) if entry.marker and not entry.version_id else None
        index = exact.get((entry.key, entry.version_id)) if erased is None else erased
        if index is None and len(indexes) == 1 and _may_be(items[indexes[0]], entry):
            # Some stores leave the version id out of the reply, or tell that of the new marker.
            index = indexes[0]
        if index is None:
            reading.unexpected.append(entry)
        else:
            reading.message[index].append(entry)
    return reading


def _may_be(item: Delete, entry: _Entry) -> bool:
    return item.version_id is None or entry.version_id is None


def _state(reading: _Reading, index: int) -> KeyState | None:
    entries = reading.message[index]
    if not entries:
        return key_state("MissingFromReply")
    if len(entries) > 1:
        # Deleted and failed, or any of it twice: it may be gone, so that not even a final error is accepted,
        # which would end in a dead letter for what is gone. It is of unknown effect, and verified.
        words = ", ".join(entry.code or "Error" if entry.is_error else "Deleted" for entry in entries[:3])
        return key_state("AmbiguousReply", f"named {len(entries)} times: {words}")
    (entry,) = entries
    if entry.is_error:
        return key_state(entry.code or "Error", entry.message)
    item = reading.items[index]
    if item.version_id is not None and entry.made_marker(item):
        return key_state("MarkerInstead", "a delete marker was made: the store does not go by version ids")
    return None


def _uncertain(reading: _Reading, states: Mapping[int, KeyState]) -> dict[int, KeyState]:
    """Return the items that the reply calls deleted and that are not believed to be.

    A store may fold a key in its echo: then the echo of a missing key could stand under a neighbour's name.
    """
    missing = {_loose(reading.items[i].key) for i, entries in enumerate(reading.message) if not entries}
    unexplained = [entry for entry in reading.unexpected if _loose(entry.key) not in missing]
    beside = unexplained[0].key[:_SHOWN] if unexplained else ""
    uncertain = {}
    for index, item in enumerate(reading.items):
        if index in states:
            continue
        if unexplained:
            uncertain[index] = key_state("NotAskedFor", f"beside an unexpected key: {beside!r}")
        elif missing and _loose(item.key) in missing:
            uncertain[index] = key_state("AmbiguousReply", "may be the echo of another key")
    return uncertain


def _loose(key: str) -> str:
    """Return what is left of a key under every folding that a store might do: its letters and digits."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", key).casefold()))
