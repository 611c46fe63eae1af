"""What an S3 request is about, read from its raw target and body; nothing in either is changed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote_to_bytes

__all__ = ["OPERATIONS", "WRITES", "Entry", "S3Request", "describe", "key_of", "unescaped"]

_AUTHORITY = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/?]*")
_OBJECT = re.compile(rb"<(?:[\w.-]+:)?Object(?:\s[^>]*)?>(.*?)</(?:[\w.-]+:)?Object\s*>", re.DOTALL)
_KEY = re.compile(rb"<(?:[\w.-]+:)?Key(?:\s[^>]*)?>(.*?)</(?:[\w.-]+:)?Key\s*>", re.DOTALL)
_VERSION = re.compile(rb"<(?:[\w.-]+:)?VersionId(?:\s[^>]*)?>(.*?)</(?:[\w.-]+:)?VersionId\s*>", re.DOTALL)
_REFERENCE = re.compile(r"&(?:#x([0-9A-Fa-f]+)|#(\d+)|(\w+));")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}

_OF_BUCKET = {
    "acl": "BucketAcl",
    "cors": "BucketCors",
    "encryption": "BucketEncryption",
    "lifecycle": "BucketLifecycleConfiguration",
    "location": "BucketLocation",
    "object-lock": "ObjectLockConfiguration",
    "policy": "BucketPolicy",
    "tagging": "BucketTagging",
    "versioning": "BucketVersioning",
}
_OF_OBJECT = {
    "acl": "ObjectAcl",
    "attributes": "ObjectAttributes",
    "legal-hold": "ObjectLegalHold",
    "retention": "ObjectRetention",
    "tagging": "ObjectTagging",
}
_VERBS = {"GET": "Get", "PUT": "Put", "DELETE": "Delete"}
_LISTS = {"versions": "ListObjectVersions", "uploads": "ListMultipartUploads", "list-type": "ListObjectsV2"}
_PLAIN_BUCKET = {"GET": "ListObjects", "PUT": "CreateBucket", "DELETE": "DeleteBucket", "HEAD": "HeadBucket"}
_PLAIN_OBJECT = {"GET": "GetObject", "PUT": "PutObject", "DELETE": "DeleteObject", "HEAD": "HeadObject"}
_UPLOAD = {"PUT": "UploadPart", "POST": "CompleteMultipartUpload", "DELETE": "AbortMultipartUpload"}
_OTHER = "Other"

WRITES = frozenset(
    {
        "DeleteObjects",
        "DeleteObject",
        "PutObject",
        "CopyObject",
        "CreateMultipartUpload",
        "UploadPart",
        "CompleteMultipartUpload",
    }
)
"""Operations that a store counts as writes."""

OPERATIONS = frozenset(
    {
        *WRITES,
        *_LISTS.values(),
        *_PLAIN_BUCKET.values(),
        *_PLAIN_OBJECT.values(),
        *_UPLOAD.values(),
        *(verb + what for verb in _VERBS.values() for what in (*_OF_BUCKET.values(), *_OF_OBJECT.values())),
        "ListBuckets",
        "ListParts",
        _OTHER,
    }
)
"""Every name that an operation can get here; those of the S3 API, and `Other`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of a DeleteObjects body: where it stands there, its key and version.

    `raw_key` is the key as it was written, with its XML escapes.
    """

    start: int
    end: int
    key: str
    raw_key: bytes
    version: str | None


@dataclass(frozen=True, slots=True)
class S3Request:
    """A request; `key` is None where it is about a bucket, `entries` are those of a DeleteObjects body.

    Keys are text; bytes that are no UTF-8 are kept as surrogates. `version` is that of a single call.
    """

    method: str
    target: str
    operation: str
    bucket: str
    key: str | None = None
    version: str | None = None
    entries: Sequence[Entry] = ()

    @property
    def keys(self) -> list[str]:
        """The keys that it names, in order."""
        return [entry.key for entry in self.entries] if self.key is None else [self.key]


def describe(method: str, target: str, headers: Mapping[str, str], body: bytes) -> S3Request:
    """Return what a request is about; bucket and key are taken from the path (path-style addresses).

    `headers` has lowercase names.
    """
    path, _, query = _AUTHORITY.sub("", target).partition("?")
    bucket, _, raw_key = path.removeprefix("/").partition("/")
    key = _text(unquote_to_bytes(raw_key)) or None
    asked = dict(parse_qsl(query, keep_blank_values=True))
    name = _operation(method, bucket, key, asked, headers)
    entries = tuple(_entries(body)) if name == "DeleteObjects" else ()
    return S3Request(
        method, target, name, _text(unquote_to_bytes(bucket)), key, asked.get("versionId"), entries
    )


def key_of(element: bytes) -> tuple[str, bytes]:
    """Return the key in an element of a body or reply, and how it is written there; empty without one."""
    found = _KEY.search(element)
    return (unescaped(found[1]), found[1]) if found else ("", b"")


def unescaped(raw: bytes) -> str:
    """Return XML text with its references resolved, and nothing else changed: CR stays CR."""
    text = _text(raw)
    return _REFERENCE.sub(_resolved, text) if "&" in text else text


def _resolved(match: re.Match[str]) -> str:
    hexadecimal, decimal, name = match.groups()
    if name:
        return _ENTITIES.get(name, match[0])
    number = int(hexadecimal, 16) if hexadecimal else int(decimal)
    return chr(number) if number < 0x110000 else match[0]


def _entries(body: bytes) -> list[Entry]:
    found = []
    for match in _OBJECT.finditer(body):
        key, raw = key_of(match[1])
        version = _VERSION.search(match[1]) if b"VersionId" in match[1] else None
        found.append(Entry(*match.span(), key, raw, unescaped(version[1]) if version else None))
    return found


def _operation(
    method: str, bucket: str, key: str | None, query: Mapping[str, str], headers: Mapping[str, str]
) -> str:
    if not bucket:
        return "ListBuckets" if method == "GET" else _OTHER
    if key is None:
        return _of_bucket(method, query)
    if "uploadId" in query:
        return "ListParts" if method == "GET" else _UPLOAD.get(method, _OTHER)
    if method == "POST":
        return "CreateMultipartUpload" if "uploads" in query else _OTHER
    if method == "PUT" and "x-amz-copy-source" in headers:
        return "CopyObject"
    return _part(_OF_OBJECT, method, query) or _PLAIN_OBJECT.get(method, _OTHER)


def _of_bucket(method: str, query: Mapping[str, str]) -> str:
    if method == "POST":
        return "DeleteObjects" if "delete" in query else _OTHER
    if method == "GET":
        for name, operation in _LISTS.items():
            if name in query:
                return operation
    return _part(_OF_BUCKET, method, query) or _PLAIN_BUCKET.get(method, _OTHER)


def _part(parts: Mapping[str, str], method: str, query: Mapping[str, str]) -> str | None:
    if method in _VERBS:
        for name, what in parts.items():
            if name in query:
                return _VERBS[method] + what
    return None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
