"""Single calls about one key or one page, byte for byte: looking, versions, locks, listings.

Each is one request that is sent once. Errors are typed: StoreRefused for what the store names, NoReply when
it does not answer, CredentialsUnavailable without credentials.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import unquote_plus
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from sexton.storage.errors import HINTS, NoReply, StoreRefused
from sexton.storage.exchange import Exchange
from sexton.storage.reply import child_text, code_of, local_name, parsed
from sexton.storage.wire import RawReply, date_in, retry_after
from sexton.storage.xml_body import xml_unsafe

__all__ = [
    "Calls",
    "Listed",
    "ListedVersion",
    "ObjectInfo",
    "Slice",
    "VersionMark",
    "VersionSlice",
    "check_reply",
]

_PAGE = 1000
_MANGLED = re.compile("[\n\ufffd]")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What the store says about an object that is there; `version_id` is empty on unversioned buckets."""

    etag: str
    size: int
    version_id: str


@dataclass(frozen=True, slots=True)
class Listed:
    """One object of a listing; `exact` says whether its key stands there byte for byte.

    `written_at` is its LastModified, None where that cannot be read.
    """

    key: str
    etag: str
    size: int
    exact: bool = True
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a listing; `after` is the key to continue after, None at the end.

    What follows is as the store said it, for whoever decides by what is *not* listed: `truncated` None where
    it does not say, `count` -1 likewise; `date` is when it was made by the store's clock (the reply's Date,
    in whole seconds), None without one.
    """

    objects: tuple[Listed, ...]
    after: str | None
    truncated: bool | None = None
    token: str = ""
    count: int = -1
    encoded: bool = True
    folders: tuple[str, ...] = ()
    date: datetime | None = None


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """One version, or delete marker, of a listing: newest first for each key; the rest as for `Listed`."""

    key: str
    version_id: str
    is_latest: bool
    is_marker: bool
    etag: str = ""
    size: int = 0
    exact: bool = True
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class VersionMark:
    """Where to continue in a listing of versions."""

    key: str
    version_id: str


@dataclass(frozen=True, slots=True)
class VersionSlice:
    """A part of a listing of versions; `after` is None at the end.

    `encoded`: keys stand there byte for byte. Of the versions of one key it is also true where that key is
    one which cannot be mangled.
    """

    versions: tuple[ListedVersion, ...]
    after: VersionMark | None
    encoded: bool = True
    date: datetime | None = None


@dataclass(frozen=True, slots=True)
class Subresource:
    """The XML of a subresource of a bucket, and what calls itself its server."""

    root: ElementTree.Element
    server: str


class Calls:
    """Single calls to a store."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange.send
        """One request, and its reply, whatever it says."""

    def head(self, bucket: str, key: str, version_id: str | None = None) -> ObjectInfo | None:
        """Return what is there under a key (or of one version), None when nothing is or a marker hides it."""
        query = {} if version_id is None else {"versionId": version_id}
        reply = self.exchange("HEAD", bucket, key, query)
        if reply.status == 404 or (reply.status == 405 and "x-amz-delete-marker" in reply.headers):
            # A missing bucket answers a HEAD as a missing key does, without a body.
            if "x-amz-delete-marker" not in reply.headers:
                self.check_bucket(bucket)
            return None
        check_reply(reply, f"look for {bucket}/{key!r}")
        size = reply.headers.get("content-length", "0")
        version = reply.headers.get("x-amz-version-id", "")
        return ObjectInfo(
            reply.headers.get("etag", ""), int(size), "" if version == "null" and not version_id else version
        )

    def exists(self, bucket: str, key: str) -> bool:
        """Return whether an object is there under a key, and no marker hides it."""
        return self.head(bucket, key) is not None

    def check_bucket(self, bucket: str) -> None:
        """Return when the bucket is there; StoreRefused when it is not, or not ours."""
        reply = self.exchange("HEAD", bucket)
        if reply.status == 404:
            raise StoreRefused(f"no such bucket: {bucket}", code="NoSuchBucket", status=404)
        if reply.status in (301, 400):
            # The answer to a HEAD has no words: a listing, for which the same right is needed, has.
            reply = self.exchange("GET", bucket, "", {"list-type": "2", "max-keys": "1"})
        check_reply(reply, f"look for bucket {bucket}")

    def current_version(self, bucket: str, key: str) -> ListedVersion | None:
        """Return the newest version of a key, which may be a delete marker; None when it has none.

        On a bucket that was never versioned, the object under the version id `null`.
        """
        found = self.versions_of(bucket, key, limit=1).versions
        return found[0] if found else None

    def versions_of(
        self, bucket: str, key: str, after: VersionMark | None = None, limit: int = _PAGE
    ) -> VersionSlice:
        """Return versions and markers of exactly one key, newest first, at most `limit` (1 to 1000)."""
        page = self.version_slice(bucket, key, after, limit)
        own = tuple(version for version in page.versions if version.key == key)
        # A key stands before all others that begin with it: the first unexpected key is the end.
        more = page.after if len(own) == len(page.versions) else None
        return VersionSlice(own, more, page.encoded or not _is_mangled(key), page.date)

    def version_slice(
        self, bucket: str, prefix: str, after: VersionMark | None = None, limit: int = _PAGE
    ) -> VersionSlice:
        """Return up to `limit` (1 to 1000) versions and markers of keys that start with `prefix`."""
        query = {"versions": "", "prefix": prefix, "max-keys": str(limit), "encoding-type": "url"}
        if after is not None:
            query["key-marker"] = after.key
            if after.version_id:
                query["version-id-marker"] = after.version_id
        what = f"list versions of {bucket}/{prefix!r}"
        root, reply = self._answered(bucket, query, "ListVersionsResult", what)
        decoded, date = _Decoder(root, what), date_in(reply.headers)
        versions = tuple(
            _version(entry, decoded) for entry in root if local_name(entry) in ("Version", "DeleteMarker")
        )
        if child_text(root, "IsTruncated") != "true":
            return VersionSlice(versions, None, decoded.encoded, date)
        mark = VersionMark(
            decoded(child_text(root, "NextKeyMarker")), child_text(root, "NextVersionIdMarker")
        )
        if not mark.key and versions:
            mark = VersionMark(versions[-1].key, versions[-1].version_id)
        return VersionSlice(versions, mark, decoded.encoded, date)

    def list_slice(
        self,
        bucket: str,
        prefix: str,
        after: str | None = None,
        limit: int = _PAGE,
        *,
        delimiter: str = "",
        token: str = "",
    ) -> Slice:
        """Return up to `limit` (1 to 1000) objects that start with `prefix` and stand after `after`.

        With a `delimiter` those beyond the next one are summed up as `folders`; such a listing continues by
        its `token`, as its last key may be one of a folder.
        """
        query = {"list-type": "2", "prefix": prefix, "max-keys": str(limit), "encoding-type": "url"}
        given = {"start-after": after, "delimiter": delimiter, "continuation-token": token}
        query.update({name: value for name, value in given.items() if value})
        what = f"list {bucket}/{prefix!r}"
        root, reply = self._answered(bucket, query, "ListBucketResult", what)
        return _slice(root, reply, what)

    def put(self, bucket: str, key: str, body: bytes, headers: Mapping[str, str] | None = None) -> ObjectInfo:
        """Write an object under exactly this key."""
        reply = self.exchange("PUT", bucket, key, None, headers, body)
        check_reply(reply, f"put {bucket}/{key!r}")
        version = reply.headers.get("x-amz-version-id", "")
        return ObjectInfo(reply.headers.get("etag", ""), len(body), version)

    def get(self, bucket: str, key: str) -> bytes:
        """Return the bytes of the object under exactly this key, 32 MiB at most."""
        reply = self.exchange("GET", bucket, key)
        check_reply(reply, f"get {bucket}/{key!r}")
        return reply.body

    def create_bucket(self, bucket: str, region: str) -> None:
        """Create a bucket; outside of us-east-1, S3 wants its region named."""
        place = (
            f"<CreateBucketConfiguration><LocationConstraint>{escape(region)}</LocationConstraint>"
            "</CreateBucketConfiguration>"
        )
        body = b"" if region == "us-east-1" else place.encode()
        check_reply(self.exchange("PUT", bucket, body=body), f"create bucket {bucket}")

    def subresource(self, bucket: str, name: str) -> Subresource:
        """Return a subresource of the bucket, such as `versioning`."""
        root, reply = self._answered(bucket, {name: ""}, None, f"read {name} of bucket {bucket}")
        return Subresource(root, reply.headers.get("server", ""))

    def _answered(
        self, bucket: str, query: Mapping[str, str], expected: str | None, what: str
    ) -> tuple[ElementTree.Element, RawReply]:
        reply = self.exchange("GET", bucket, "", query)
        check_reply(reply, what)
        root = parsed(reply.body)
        if root is not None and (local_name(root), expected) == ("ListBucketResult", "ListVersionsResult"):
            # A store that does not know the question takes it for the one without `versions`.
            raise StoreRefused(f"the store has no such listing: {what}", code="NotImplemented", status=501)
        if root is None or (expected is not None and local_name(root) != expected):
            raise NoReply(
                f"no {expected or 'XML'} in the reply: {what}: {reply.body[:80]!r}",
                effect_unknown=False,
                code="NotADeleteResult",
            )
        return root, reply


def check_reply(reply: RawReply, what: str) -> None:
    """Return where a reply is no error; raises StoreRefused, by the error that its body names."""
    if reply.status < 300:
        return
    root = parsed(reply.body)
    code = code_of(root) if root is not None else ""
    message = child_text(root, "Message") if root is not None else ""
    raise StoreRefused(
        f"the store refused to {what}: {code or f'HTTP {reply.status}'} {message}".strip(),
        code=code or str(reply.status),
        status=reply.status,
        hint=HINTS.get(code),
        retry_after_s=retry_after(reply.headers),
    )


class _Decoder:
    """Decodes keys of a listing: percent-encoded with `+` for a space, where the store says that it is so."""

    def __init__(self, root: ElementTree.Element, what: str) -> None:
        self.encoded = child_text(root, "EncodingType") == "url"
        self._what = what

    def __call__(self, text: str) -> str:
        try:
            return unquote_plus(text, errors="strict") if self.encoded else text
        except UnicodeDecodeError as error:
            raise _unreadable(f"a key that is not UTF-8: {text[:80]!r}", self._what) from error

    def is_exact(self, key: str) -> bool:
        """Return whether a key is spelled byte for byte: XML as it stands mangles some characters."""
        return self.encoded or not _is_mangled(key)

    def size(self, entry: ElementTree.Element) -> int:
        """Return the size of an entry in bytes."""
        text = child_text(entry, "Size")
        if text and not (text.isascii() and text.isdigit()):
            raise _unreadable(f"a size that is none: {text[:80]!r}", self._what)
        return int(text or 0)


def _is_mangled(key: str) -> bool:
    """Return whether a listing without percent-encoding shows this key, or another one as this.

    XML reads CR as LF; what XML cannot carry stands there as U+FFFD, or not at all.
    """
    return bool(_MANGLED.search(key)) or xml_unsafe(key)


def _unreadable(found: str, what: str) -> NoReply:
    return NoReply(f"{found} in the reply: {what}", effect_unknown=False, code="UnreadableReply")


def _slice(root: ElementTree.Element, reply: RawReply, what: str) -> Slice:
    decoded = _Decoder(root, what)
    objects = tuple(_listed(entry, decoded) for entry in root if local_name(entry) == "Contents")
    folders = [child_text(entry, "Prefix") for entry in root if local_name(entry) == "CommonPrefixes"]
    truncated = {"true": True, "false": False}.get(child_text(root, "IsTruncated"))
    count = child_text(root, "KeyCount")
    return Slice(
        objects,
        objects[-1].key if truncated and objects else None,
        truncated,
        child_text(root, "NextContinuationToken"),
        int(count) if count.isascii() and count.isdigit() else -1,
        decoded.encoded,
        tuple(map(decoded, folders)),
        date_in(reply.headers),
    )


def _listed(entry: ElementTree.Element, decoded: _Decoder) -> Listed:
    key = decoded(child_text(entry, "Key"))
    return Listed(
        key, child_text(entry, "ETag"), decoded.size(entry), decoded.is_exact(key), _written_at(entry)
    )


def _version(entry: ElementTree.Element, decoded: _Decoder) -> ListedVersion:
    key = decoded(child_text(entry, "Key"))
    return ListedVersion(
        key,
        child_text(entry, "VersionId"),
        child_text(entry, "IsLatest") == "true",
        local_name(entry) == "DeleteMarker",
        child_text(entry, "ETag"),
        decoded.size(entry),
        decoded.is_exact(key),
        _written_at(entry),
    )


def _written_at(entry: ElementTree.Element) -> datetime | None:
    """Return an entry's LastModified: ISO 8601 with its zone (S3 API Reference, Object)."""
    try:
        found = datetime.fromisoformat(child_text(entry, "LastModified"))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
