"""What the recording S3 server can do: buckets, objects and calls on them, as the S3 API documents."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.support.s3_signature import Refused

__all__ = ["Buckets", "Call", "Reply", "answer", "error_reply", "keys_of"]

_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_MAX_KEYS = 1000
_MAX_KEY_BYTES = 1024


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


@dataclass
class Buckets:
    """Objects by bucket and key; every call is atomic."""

    _objects: dict[str, dict[str, bytes]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def create(self, bucket: str) -> bool:
        """Create a bucket; False when it was there."""
        with self.lock:
            is_new = bucket not in self._objects
            self._objects.setdefault(bucket, {})
            return is_new

    def fill(self, bucket: str, objects: Mapping[str, bytes]) -> None:
        """Put many objects."""
        with self.lock:
            self._objects[bucket].update(objects)

    def contents(self, bucket: str) -> dict[str, bytes]:
        """Return a copy of the objects by key."""
        with self.lock:
            return dict(self._objects[bucket])

    def names(self) -> list[str]:
        """Return the names of the buckets."""
        with self.lock:
            return sorted(self._objects)

    def of(self, bucket: str) -> dict[str, bytes]:
        """Return the live objects of a bucket; to be used under `lock`."""
        if bucket not in self._objects:
            raise Refused(404, "NoSuchBucket", "the specified bucket does not exist")
        return self._objects[bucket]


def answer(buckets: Buckets, call: Call, escaped: Callable[[str], str] = escape) -> Reply:
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
        return [key for key, _ in _entries(body)]
    except Refused:
        return []


def _entries(body: bytes) -> list[tuple[str, str | None]]:
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
            entries.append((fields["Key"], fields.get("ETag")))
    return entries


def _delete_objects(buckets: Buckets, call: Call, escaped: Callable[[str], str]) -> Reply:
    if "delete" not in call.query:
        raise Refused(405, "MethodNotAllowed", "POST to a bucket is DeleteObjects only")
    entries = _entries(call.body)
    if not 1 <= len(entries) <= _MAX_KEYS:
        raise Refused(400, "MalformedXML", f"a batch holds 1 to {_MAX_KEYS} keys")
    objects = buckets.of(call.bucket)
    quiet = b"<Quiet>true</Quiet>" in call.body
    parts = []
    for key, etag in entries:
        code = _refusal(objects, key, etag)
        if code is None:
            objects.pop(key, None)
            if not quiet:
                parts.append(f"<Deleted><Key>{escaped(key)}</Key></Deleted>")
        else:
            parts.append(
                f"<Error><Key>{escaped(key)}</Key><Code>{code}</Code><Message>refused</Message></Error>"
            )
    return _xml(f'<DeleteResult xmlns="{_NAMESPACE}">{"".join(parts)}</DeleteResult>')


def _refusal(objects: Mapping[str, bytes], key: str, etag: str | None) -> str | None:
    if len(key.encode()) > _MAX_KEY_BYTES:
        return "KeyTooLongError"
    if etag is None or (
        key in objects and etag in ("*", _etag(objects[key]), _etag(objects[key]).strip('"'))
    ):
        return None
    return "PreconditionFailed" if key in objects else "NoSuchKey"


def _create_bucket(buckets: Buckets, call: Call, _: Callable[[str], str]) -> Reply:
    if not buckets.create(call.bucket):
        raise Refused(409, "BucketAlreadyOwnedByYou", "you own it already")
    return Reply(headers={"Location": f"/{call.bucket}"})


def _head_bucket(buckets: Buckets, call: Call, _: Callable[[str], str]) -> Reply:
    buckets.of(call.bucket)
    return Reply()


def _put(buckets: Buckets, call: Call, _: Callable[[str], str]) -> Reply:
    objects = buckets.of(call.bucket)
    if len(call.key.encode()) > _MAX_KEY_BYTES:
        raise Refused(400, "KeyTooLongError", "the key is too long")
    old = objects.get(call.key)
    if call.headers.get("if-none-match") == "*" and old is not None:
        raise Refused(412, "PreconditionFailed", "the object is there")
    wanted = call.headers.get("if-match")
    if wanted is not None and old is None:
        raise Refused(404, "NoSuchKey", "there is no such object")
    if wanted is not None and old is not None and wanted.strip('"') != _etag(old).strip('"'):
        raise Refused(412, "PreconditionFailed", "the object is another one")
    objects[call.key] = call.body
    return Reply(headers={"ETag": _etag(call.body)})


def _get(buckets: Buckets, call: Call, _: Callable[[str], str]) -> Reply:
    body = buckets.of(call.bucket).get(call.key)
    if body is None:
        raise Refused(404, "NoSuchKey", "there is no such object")
    return Reply(body=body, headers={"ETag": _etag(body), "Content-Type": "binary/octet-stream"})


def _delete(buckets: Buckets, call: Call, _: Callable[[str], str]) -> Reply:
    objects = buckets.of(call.bucket)
    wanted = call.headers.get("if-match")
    if call.key in objects and wanted not in (None, "*", _etag(objects[call.key])):
        raise Refused(412, "PreconditionFailed", "the object is another one")
    objects.pop(call.key, None)
    return Reply(204)


def _list_objects(buckets: Buckets, call: Call, escaped: Callable[[str], str]) -> Reply:
    objects = buckets.of(call.bucket)
    query = call.query
    if query.get("list-type") != "2" or "delimiter" in query:
        raise Refused(501, "NotImplemented", "only ListObjectsV2 without a delimiter")
    shown = (lambda key: quote(key, safe="/")) if query.get("encoding-type") == "url" else escaped
    prefix, limit = query.get("prefix", ""), min(int(query.get("max-keys", _MAX_KEYS)), _MAX_KEYS)
    after = (query.get("continuation-token") or query.get("start-after", "")).encode()
    found = sorted(key.encode() for key in objects if key.startswith(prefix) and key.encode() > after)
    page = [key.decode() for key in found[:limit]]
    more = len(found) > len(page)
    parts = [
        f"<Contents><Key>{shown(key)}</Key><ETag>{escape(_etag(objects[key]))}</ETag>"
        f"<Size>{len(objects[key])}</Size></Contents>"
        for key in page
    ]
    token = f"<NextContinuationToken>{escaped(page[-1])}</NextContinuationToken>" if more and page else ""
    encoding = "<EncodingType>url</EncodingType>" if query.get("encoding-type") == "url" else ""
    return _xml(
        f'<ListBucketResult xmlns="{_NAMESPACE}"><IsTruncated>{str(more).lower()}</IsTruncated>'
        f"<KeyCount>{len(page)}</KeyCount>{encoding}{token}{''.join(parts)}</ListBucketResult>"
    )


def _list_buckets(buckets: Buckets) -> Reply:
    parts = "".join(f"<Bucket><Name>{name}</Name></Bucket>" for name in buckets.names())
    return _xml(f"<ListAllMyBucketsResult><Buckets>{parts}</Buckets></ListAllMyBucketsResult>")


_Action = Callable[[Buckets, Call, Callable[[str], str]], Reply]
_ON_OBJECTS: dict[str, _Action] = {"PUT": _put, "GET": _get, "HEAD": _get, "DELETE": _delete}
_ON_BUCKETS: dict[str, _Action] = {
    "PUT": _create_bucket,
    "HEAD": _head_bucket,
    "GET": _list_objects,
    "POST": _delete_objects,
}


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


def _xml(body: str) -> Reply:
    return Reply(body=(_XML + body).encode())


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
