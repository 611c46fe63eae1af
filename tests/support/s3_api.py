"""What the recording S3 server can do: calls on buckets and objects, as the S3 API documents."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import formatdate
from typing import Protocol
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.support.s3_listing import list_objects, list_versions
from tests.support.s3_signature import Refused
from tests.support.s3_state import MAX_KEY_BYTES, Bucket, Buckets, Deleted, Traits, Version, etag_of

__all__ = ["Buckets", "Call", "Reply", "Traits", "answer", "error_reply", "keys_of"]

_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
_METADATA = "x-amz-meta-"
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_Escape = Callable[[str], str]


class Call(Protocol):
    """The parts of a request that decide what is done."""

    @property
    def method(self) -> str: ...
    @property
    def query(self) -> Mapping[str, str]: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def body(self) -> bytes: ...
    @property
    def bucket(self) -> str: ...
    @property
    def key(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, also a scripted one: sent after `delay_s`; with `drop` the connection is closed instead.

    With `act_first` the request takes its effect and only its answer is replaced.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    drop: bool = False
    act_first: bool = False


@dataclass(frozen=True, slots=True)
class _Entry:
    key: str
    etag: str | None
    version_id: str | None


def answer(buckets: Buckets, call: Call, escaped: _Escape = escape) -> Reply:
    """Carry a request out and return the reply; raises Refused for what S3 refuses."""
    if call.key:
        action = _ON_OBJECTS.get(call.method)
    elif call.bucket:
        action = _ON_BUCKETS.get(call.method)
    else:
        return _list_buckets(buckets)
    if action is None:
        raise Refused(405, "MethodNotAllowed", f"not allowed against this resource: {call.method}")
    with buckets.lock:
        return action(buckets, call, escaped)


def error_reply(status: int, code: str, message: str) -> Reply:
    """Return an S3 error."""
    body = f"{_XML}<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    return Reply(status, body.encode())


def keys_of(body: bytes) -> list[str]:
    """Return the keys of a DeleteObjects body as a real XML parser reads them; none when it is not one."""
    try:
        return [entry.key for entry in _entries(body)]
    except Refused:
        return []


def _entries(body: bytes) -> list[_Entry]:
    try:
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise Refused(400, "MalformedXML", f"the XML is not well-formed: {error}") from error
    if _name(root) != "Delete":
        raise Refused(400, "MalformedXML", "the root is not Delete")
    entries = []
    for child in root:
        if _name(child) == "Object":
            fields = {_name(part): part.text or "" for part in child}
            if not fields.get("Key"):
                raise Refused(400, "MalformedXML", "an Object needs a Key")
            entries.append(_Entry(fields["Key"], fields.get("ETag"), fields.get("VersionId")))
    return entries


def _delete_objects(buckets: Buckets, call: Call, escaped: _Escape) -> Reply:
    if "delete" not in call.query:
        raise Refused(405, "MethodNotAllowed", "POST to a bucket is DeleteObjects only")
    traits = buckets.traits
    if traits.wants_md5 and "content-md5" not in call.headers:
        raise Refused(400, "InvalidRequest", "Missing required header for this request: Content-MD5")
    entries = _entries(call.body)
    if not 1 <= len(entries) <= traits.keys_per_batch:
        raise Refused(400, "MalformedXML", f"a batch holds 1 to {traits.keys_per_batch} keys")
    bucket = buckets.of(call.bucket)
    quiet = b"<Quiet>true</Quiet>" in call.body
    parts = []
    for entry in entries:
        try:
            done = _delete_one(bucket, entry, traits, "batch", bypass=_bypasses(call))
        except Refused as refused:
            parts.append(_error_entry(entry, refused, escaped))
        else:
            done = Deleted() if traits.markers_unsaid else done
            parts += [] if quiet else [_deleted_entry(entry, done, escaped)]
    return _xml(f'<DeleteResult xmlns="{_NAMESPACE}">{"".join(parts)}</DeleteResult>')


def _delete_one(bucket: Bucket, entry: _Entry, traits: Traits, way: str, *, bypass: bool) -> Deleted:
    if len(entry.key.encode()) > MAX_KEY_BYTES:
        raise Refused(400, "KeyTooLongError", "Your key is too long")
    if (code := traits.failing.get(entry.key)) is not None:
        raise Refused(503, code, "no")
    key = traits.fold(entry.key) if traits.fold else entry.key
    if entry.etag is not None and way not in traits.conditions_ignored:
        found = bucket.version(key, entry.version_id) if entry.version_id else bucket.current(key)
        if found is None or found.body is None:
            raise Refused(404, "NoSuchKey", "The specified key does not exist.")
        if entry.etag != "*" and entry.etag.strip('"') != etag_of(found.body).strip('"'):
            raise Refused(412, "PreconditionFailed", "At least one of the preconditions did not hold")
    version_id = None if way in traits.versions_ignored else entry.version_id
    return bucket.delete(key, version_id, bypass=bypass)


def _error_entry(entry: _Entry, refused: Refused, escaped: _Escape) -> str:
    version = f"<VersionId>{entry.version_id}</VersionId>" if entry.version_id else ""
    return (
        f"<Error><Key>{escaped(entry.key)}</Key>{version}<Code>{refused.code}</Code>"
        f"<Message>{escape(refused.message)}</Message></Error>"
    )


def _deleted_entry(entry: _Entry, done: Deleted, escaped: _Escape) -> str:
    parts = f"<Key>{escaped(entry.key)}</Key>"
    if done.version_id is not None:
        parts += f"<VersionId>{done.version_id}</VersionId>"
    marker = done.new_marker or (done.version_id if done.was_marker else None)
    if marker is not None:
        parts += f"<DeleteMarker>true</DeleteMarker><DeleteMarkerVersionId>{marker}</DeleteMarkerVersionId>"
    return f"<Deleted>{parts}</Deleted>"


def _delete(buckets: Buckets, call: Call, _: _Escape) -> Reply:
    entry = _Entry(call.key, call.headers.get("if-match"), call.query.get("versionId"))
    bucket = buckets.of(call.bucket)
    done = _delete_one(bucket, entry, buckets.traits, "single", bypass=_bypasses(call))
    headers = {}
    if done.new_marker is not None:
        headers = {"x-amz-delete-marker": "true", "x-amz-version-id": done.new_marker}
    elif done.version_id is not None:
        headers = {"x-amz-version-id": done.version_id}
        if done.was_marker:
            headers["x-amz-delete-marker"] = "true"
    return Reply(204, headers=headers)


def _create_bucket(buckets: Buckets, call: Call, _: _Escape) -> Reply:
    if "versioning" in call.query:
        bucket = buckets.of(call.bucket)
        bucket.versioning = "Enabled" if b"<Status>Enabled<" in call.body else "Suspended"
        return Reply()
    locks = call.headers.get("x-amz-bucket-object-lock-enabled", "").lower() == "true"
    if not buckets.create(call.bucket, locks=locks):
        raise Refused(409, "BucketAlreadyOwnedByYou", "you own it already")
    return Reply(headers={"Location": f"/{call.bucket}"})


def _head_bucket(buckets: Buckets, call: Call, _: _Escape) -> Reply:
    buckets.of(call.bucket)
    return Reply()


def _put(buckets: Buckets, call: Call, _: _Escape) -> Reply:
    bucket = buckets.of(call.bucket)
    if len(call.key.encode()) > MAX_KEY_BYTES:
        raise Refused(400, "KeyTooLongError", "the key is too long")
    if "legal-hold" in call.query or "retention" in call.query:
        return _put_lock(bucket, call)
    _check_put(bucket, call, buckets.traits.conditions_ignored)
    if buckets.traits.writes_s and call.headers.keys() & {"if-match", "if-none-match"}:
        # As a store does whose look and whose write are not one step.
        buckets.lock.release()
        time.sleep(buckets.traits.writes_s)
        buckets.lock.acquire()
    made = bucket.put(call.key, call.body)
    made.metadata = {name: value for name, value in call.headers.items() if name.startswith(_METADATA)}
    versioned = {"x-amz-version-id": made.version_id} if bucket.versioning else {}
    return Reply(headers={"ETag": etag_of(call.body), **versioned})


def _check_put(bucket: Bucket, call: Call, ignored: frozenset[str]) -> None:
    """Raise Refused where a condition of a put does not hold (S3 User Guide, "Conditional requests")."""
    current = bucket.current(call.key)
    old = current.body if current else None
    if "create" not in ignored and call.headers.get("if-none-match") == "*" and old is not None:
        raise Refused(412, "PreconditionFailed", "the object is there")
    wanted = call.headers.get("if-match")
    if wanted is None or "replace" in ignored:
        return
    if old is None:
        raise Refused(404, "NoSuchKey", "there is no such object")
    if wanted.strip('"') != etag_of(old).strip('"'):
        raise Refused(412, "PreconditionFailed", "the object is another one")


def _put_lock(bucket: Bucket, call: Call) -> Reply:
    found = _found(bucket, call)
    if "legal-hold" in call.query:
        found.legal_hold = b"<Status>ON<" in call.body
    else:
        fields = {_name(part): part.text or "" for part in ElementTree.fromstring(call.body)}
        found.mode = fields["Mode"]
        found.retain_until = datetime.fromisoformat(fields["RetainUntilDate"])
    return Reply()


def _found(bucket: Bucket, call: Call) -> Version:
    wanted = call.query.get("versionId")
    found = bucket.version(call.key, wanted) if wanted else bucket.current(call.key)
    if found is None:
        raise Refused(404, "NoSuchVersion" if wanted else "NoSuchKey", "there is no such object")
    return found


def _get(buckets: Buckets, call: Call, _: _Escape) -> Reply:
    bucket = buckets.of(call.bucket)
    found = _found(bucket, call)
    headers = {"x-amz-version-id": found.version_id} if bucket.versioning else {}
    if found.body is None:
        by_version = "versionId" in call.query
        reply = error_reply(405, "MethodNotAllowed", "a marker") if by_version else None
        reply = reply or error_reply(404, "NoSuchKey", "there is no such object")
        return Reply(reply.status, reply.body, {**headers, "x-amz-delete-marker": "true"})
    unless = call.headers.get("if-none-match", "")
    if unless and unless.strip('"') in ("*", etag_of(found.body).strip('"')):
        return Reply(304, headers={"ETag": etag_of(found.body), **headers})
    if found.retain_until is not None:
        headers["x-amz-object-lock-mode"] = found.mode
        headers["x-amz-object-lock-retain-until-date"] = found.retain_until.isoformat()
    if found.legal_hold:
        headers["x-amz-object-lock-legal-hold"] = "ON"
    return Reply(
        body=found.body,
        headers={
            "ETag": etag_of(found.body),
            "Last-Modified": formatdate(found.written_at, usegmt=True),
            "Content-Type": "binary/octet-stream",
            **found.metadata,
            **headers,
        },
    )


def _get_bucket(buckets: Buckets, call: Call, escaped: _Escape) -> Reply:
    bucket = buckets.of(call.bucket)
    if "versioning" in call.query:
        status = f"<Status>{bucket.versioning}</Status>" if bucket.versioning else ""
        return _xml(f"<VersioningConfiguration>{status}</VersioningConfiguration>")
    if "object-lock" in call.query:
        if not bucket.locks:
            raise Refused(404, "ObjectLockConfigurationNotFoundError", "no object lock here")
        lock = "<ObjectLockEnabled>Enabled</ObjectLockEnabled>"
        return _xml(f"<ObjectLockConfiguration>{lock}</ObjectLockConfiguration>")
    if "versions" in call.query:
        return _xml(list_versions(bucket, call.query, buckets.traits, escaped))
    return _xml(list_objects(bucket, call.query, buckets.traits, escaped))


def _list_buckets(buckets: Buckets) -> Reply:
    parts = "".join(f"<Bucket><Name>{name}</Name></Bucket>" for name in buckets.names())
    return _xml(f"<ListAllMyBucketsResult><Buckets>{parts}</Buckets></ListAllMyBucketsResult>")


_Action = Callable[[Buckets, Call, _Escape], Reply]
_ON_OBJECTS: dict[str, _Action] = {"PUT": _put, "GET": _get, "HEAD": _get, "DELETE": _delete}
_ON_BUCKETS: dict[str, _Action] = {
    "PUT": _create_bucket,
    "HEAD": _head_bucket,
    "GET": _get_bucket,
    "POST": _delete_objects,
}


def _bypasses(call: Call) -> bool:
    return call.headers.get("x-amz-bypass-governance-retention") == "true"


def _xml(body: str) -> Reply:
    return Reply(body=(_XML + body).encode())


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
