"""Single calls about one key or one page, byte for byte: looking, versions, locks, listings.

Each is one request that is sent once. Errors are typed: StoreRefused for what the store names, NoReply when
it does not answer, CredentialsUnavailable without credentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote_plus
from xml.etree import ElementTree

from sexton.storage.errors import HINTS, NoReply, StoreRefused
from sexton.storage.reply import child_text, local_name, parsed
from sexton.storage.signing import CREDENTIAL_CODES, RequestSigner
from sexton.storage.wire import RawReply, Wire, retry_after

__all__ = ["Calls", "Listed", "ListedVersion", "ObjectInfo", "Slice", "VersionMark", "VersionSlice"]

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What the store tells about an object that is there; `version_id` is empty on unversioned buckets."""

    etag: str
    size: int
    version_id: str


@dataclass(frozen=True, slots=True)
class Listed:
    """One object of a listing."""

    key: str
    etag: str
    size: int


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a listing; `after` is the key to go on after, None at the end."""

    objects: tuple[Listed, ...]
    after: str | None


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """One version, or delete marker, of a listing: newest first for each key."""

    key: str
    version_id: str
    is_latest: bool
    is_marker: bool
    etag: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class VersionMark:
    """Where to go on in a listing of versions."""

    key: str
    version_id: str


@dataclass(frozen=True, slots=True)
class VersionSlice:
    """A part of a listing of versions; `after` is None at the end."""

    versions: tuple[ListedVersion, ...]
    after: VersionMark | None


class Calls:
    """Single calls over one signer and one wire."""

    def __init__(self, signer: RequestSigner, wire: Wire) -> None:
        self._signer = signer
        self._wire = wire

    def head(self, bucket: str, key: str, version_id: str | None = None) -> ObjectInfo | None:
        """Return what is there under a key (or of one version), None when nothing is or a marker hides it."""
        query = {} if version_id is None else {"versionId": version_id}
        reply = self.exchange("HEAD", bucket, key, query)
        if reply.status == 404 or (reply.status == 405 and "x-amz-delete-marker" in reply.headers):
            # A missing bucket answers a HEAD as a missing key does, without a word.
            if "x-amz-delete-marker" not in reply.headers:
                self.check_bucket(bucket)
            return None
        self._check(reply, f"look for {bucket}/{key!r}")
        size = reply.headers.get("content-length", "0")
        version = reply.headers.get("x-amz-version-id", "")
        return ObjectInfo(
            reply.headers.get("etag", ""), int(size), "" if version == "null" and not version_id else version
        )

    def exists(self, bucket: str, key: str) -> bool:
        """Tell whether an object is there under a key, and no marker hides it."""
        return self.head(bucket, key) is not None

    def check_bucket(self, bucket: str) -> None:
        """Return when the bucket is there; StoreRefused when it is not, or not ours."""
        reply = self.exchange("HEAD", bucket)
        if reply.status == 404:
            raise StoreRefused(f"no such bucket: {bucket}", code="NoSuchBucket", status=404)
        self._check(reply, f"look for bucket {bucket}")

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
        # A key stands before all others that begin with it: the first stranger is the end.
        more = page.after if len(own) == len(page.versions) else None
        return VersionSlice(own, more)

    def version_slice(
        self, bucket: str, prefix: str, after: VersionMark | None = None, limit: int = _PAGE
    ) -> VersionSlice:
        """Return up to `limit` (1 to 1000) versions and markers of keys that start with `prefix`."""
        query = {"versions": "", "prefix": prefix, "max-keys": str(limit), "encoding-type": "url"}
        if after is not None:
            query["key-marker"] = after.key
            if after.version_id:
                query["version-id-marker"] = after.version_id
        root = self._listing(bucket, query, "ListVersionsResult", f"list versions of {bucket}/{prefix!r}")
        decoded = _Decoder(root)
        versions = tuple(
            _version(entry, decoded) for entry in root if local_name(entry) in ("Version", "DeleteMarker")
        )
        if child_text(root, "IsTruncated") != "true":
            return VersionSlice(versions, None)
        mark = VersionMark(
            decoded(child_text(root, "NextKeyMarker")), child_text(root, "NextVersionIdMarker")
        )
        if not mark.key and versions:
            mark = VersionMark(versions[-1].key, versions[-1].version_id)
        return VersionSlice(versions, mark)

    def list_slice(self, bucket: str, prefix: str, after: str | None = None, limit: int = _PAGE) -> Slice:
        """Return up to `limit` (1 to 1000) objects that start with `prefix` and stand after `after`."""
        query = {"list-type": "2", "prefix": prefix, "max-keys": str(limit), "encoding-type": "url"}
        if after is not None:
            query["start-after"] = after
        root = self._listing(bucket, query, "ListBucketResult", f"list {bucket}/{prefix!r}")
        decoded = _Decoder(root)
        objects = tuple(
            Listed(
                decoded(child_text(entry, "Key")),
                child_text(entry, "ETag"),
                int(child_text(entry, "Size") or 0),
            )
            for entry in root
            if local_name(entry) == "Contents"
        )
        more = child_text(root, "IsTruncated") == "true" and objects
        return Slice(objects, objects[-1].key if more else None)

    def put(self, bucket: str, key: str, body: bytes, headers: Mapping[str, str] | None = None) -> ObjectInfo:
        """Write an object under exactly this key."""
        reply = self.exchange("PUT", bucket, key, None, headers, body)
        self._check(reply, f"put {bucket}/{key!r}")
        version = reply.headers.get("x-amz-version-id", "")
        return ObjectInfo(reply.headers.get("etag", ""), len(body), version)

    def subresource(self, bucket: str, name: str) -> ElementTree.Element:
        """Return the XML of a subresource of the bucket, such as `versioning`."""
        return self._listing(bucket, {name: ""}, None, f"read {name} of bucket {bucket}")

    def exchange(
        self,
        method: str,
        bucket: str,
        key: str = "",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> RawReply:
        """Send one request and return its reply, whatever it says."""
        return self._wire.exchange(bucket, self._signer.call(method, bucket, key, query, headers, body))

    def _listing(
        self, bucket: str, query: Mapping[str, str], expected: str | None, what: str
    ) -> ElementTree.Element:
        reply = self.exchange("GET", bucket, "", query)
        self._check(reply, what)
        root = parsed(reply.body)
        if root is None or (expected is not None and local_name(root) != expected):
            raise NoReply(
                f"no {expected or 'XML'} in the reply: {what}: {reply.body[:80]!r}",
                effect_unknown=False,
                code="NotADeleteResult",
            )
        return root

    def _check(self, reply: RawReply, what: str) -> None:
        if reply.status < 300:
            return
        root = parsed(reply.body)
        code = child_text(root, "Code") if root is not None else ""
        message = child_text(root, "Message") if root is not None else ""
        if code in CREDENTIAL_CODES:
            self._signer.forget_credentials()
        raise StoreRefused(
            f"the store refused to {what}: {code or f'HTTP {reply.status}'} {message}".strip(),
            code=code or str(reply.status),
            status=reply.status,
            hint=HINTS.get(code),
            retry_after_s=retry_after(reply.headers),
        )


class _Decoder:
    """Decodes keys of a listing: percent-encoded with `+` for a space, where the store says that it is so."""

    def __init__(self, root: ElementTree.Element) -> None:
        self._encoded = child_text(root, "EncodingType") == "url"

    def __call__(self, text: str) -> str:
        return unquote_plus(text, errors="strict") if self._encoded else text


def _version(entry: ElementTree.Element, decoded: _Decoder) -> ListedVersion:
    return ListedVersion(
        decoded(child_text(entry, "Key")),
        child_text(entry, "VersionId"),
        child_text(entry, "IsLatest") == "true",
        local_name(entry) == "DeleteMarker",
        child_text(entry, "ETag"),
        int(child_text(entry, "Size") or 0),
    )
