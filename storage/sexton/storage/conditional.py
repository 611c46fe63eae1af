"""Conditional writes and reads of one object: of several writers at most one wins, and each is told truly.

Each call is one request that is sent once. A put of unknown fate is told as one and never sent again here:
the first try may have landed, and the second would take its own success for a lost race. Who gets
`FateUnknown` reads again and decides by what stands there; what is absent then may still land, as long as the
put is under way somewhere. Whether a store's conditions hold between writers that race is for a probe to find
out (`Deleter.probe_writes`); without its yes a `Written` says no more than a plain put does.

Errors are those of `Calls`: StoreRefused for what the store names and has not done, NoReply where nothing was
sent or a read was not answered, CredentialsUnavailable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sexton.schemas.errors import UsageError
from sexton.storage.calls import Calls, check_reply
from sexton.storage.errors import NoReply, StoreRefused
from sexton.storage.errors_table import classify_single
from sexton.storage.states import Effect, KeyState, Kind
from sexton.storage.states_of import unavailable

__all__ = [
    "Absent",
    "FateUnknown",
    "Found",
    "Lost",
    "NotModified",
    "Put",
    "Read",
    "Written",
    "compare_and_put",
    "create_if_absent",
    "read_if_changed",
]


@dataclass(frozen=True, slots=True)
class Written:
    """The condition held and the object was written; `version_id` is empty on unversioned buckets."""

    etag: str
    version_id: str = ""


@dataclass(frozen=True, slots=True)
class Lost:
    """The condition did not hold and nothing was written; by whom the object stands there is not said."""


@dataclass(frozen=True, slots=True)
class FateUnknown:
    """Nobody can tell whether it was written: no whole answer, a 5xx, or a conflict under way (409)."""

    state: KeyState


@dataclass(frozen=True, slots=True)
class Found:
    """The object as it stands, with the ETag for the next condition."""

    body: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class NotModified:
    """The object still has the ETag that was named."""


@dataclass(frozen=True, slots=True)
class Absent:
    """The store says of this key that nothing is there, or that a delete marker hides it."""


Put = Written | Lost | FateUnknown
Read = Found | NotModified | Absent


def create_if_absent(calls: Calls, bucket: str, key: str, body: bytes) -> Put:
    """Write an object where none is (If-None-Match: *), else Lost."""
    return _put(calls, bucket, key, body, {"If-None-Match": "*"})


def compare_and_put(calls: Calls, bucket: str, key: str, body: bytes, etag: str) -> Put:
    """Replace the object while it has this ETag (If-Match), else Lost: it was changed, or is gone."""
    return _put(calls, bucket, key, body, {"If-Match": _one_object(etag)})


def read_if_changed(calls: Calls, bucket: str, key: str, etag: str | None = None) -> Read:
    """Return the object, 32 MiB at most; with `etag` only where it has another one now (If-None-Match).

    Absent only where the store names the key as missing: a bare 404 may be a proxy's page, and is refused.
    """
    condition = None if etag is None else {"If-None-Match": _one_object(etag)}
    reply = calls.exchange("GET", bucket, key, None, condition)
    what = f"get {bucket}/{key!r}"
    told = reply.headers.get("etag", "")
    if reply.status == 304 and etag is not None:
        if told and _opaque(told) != _opaque(etag):
            raise _unreadable(f"not modified, but its ETag is {told}", what)
        return NotModified()
    try:
        check_reply(reply, what)
    except StoreRefused as refused:
        if refused.status == 404 and refused.kind is Kind.ABSENT:
            return Absent()
        raise
    if reply.status != 200 or not told:
        raise _unreadable(f"HTTP {reply.status} without the object or its ETag", what)
    return Found(reply.body, told)


def _put(calls: Calls, bucket: str, key: str, body: bytes, condition: Mapping[str, str]) -> Put:
    try:
        made = calls.put(bucket, key, body, condition)
    except NoReply as error:
        if not error.effect_unknown:
            raise
        return _unknown(error)
    except StoreRefused as error:
        if _is_lost(error, replaces="If-Match" in condition):
            return Lost()
        if _may_have_acted(error):
            return _unknown(error)
        raise
    if not made.etag:
        # Who writes an object names its ETag: a page of somebody in between does not.
        what = f"put {bucket}/{key!r}"
        return _unknown(NoReply(f"no ETag in the reply: {what}", effect_unknown=True, code="UnreadableReply"))
    return Written(made.etag, made.version_id)


def _is_lost(error: StoreRefused, *, replaces: bool) -> bool:
    """Return whether a store says that the condition did not hold.

    That is 412; to If-Match on a missing key 404 NoSuchKey (S3 User Guide, "Conditional requests"); to
    If-None-Match some stores say 304, as to a read.
    """
    if error.status == 404:
        return replaces and error.kind is Kind.ABSENT
    return error.status == 412 or (error.status == 304 and not replaces)


def _may_have_acted(error: StoreRefused) -> bool:
    """Return whether a put may have landed though an error came: 5xx but 501, and 409.

    A 409 says that another one was under way and which of both will stand is not decided yet; a 503 may come
    from a gateway that did not wait for its store.
    """
    if error.status == 409 or (error.status >= 500 and error.status != 501):
        return True
    return classify_single(error.code, error.status).effect is Effect.UNKNOWN


def _unknown(error: NoReply | StoreRefused) -> FateUnknown:
    return FateUnknown(replace(unavailable(error), effect=Effect.UNKNOWN))


def _one_object(etag: str) -> str:
    """Return an ETag that names one object; raises UsageError for what every object, or none, has."""
    if etag.strip() in ("", "*"):
        raise UsageError(f"not the ETag of an object: {etag!r}")
    return etag


def _opaque(etag: str) -> str:
    return etag.removeprefix("W/").strip('"')


def _unreadable(found: str, what: str) -> NoReply:
    return NoReply(f"{found}: {what}", effect_unknown=False, code="UnreadableReply")
