"""The listings of the recording S3 server: objects and versions, in UTF-8 byte order, page by page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from urllib.parse import quote
from xml.sax.saxutils import escape

from tests.support.s3_signature import Refused
from tests.support.s3_state import Bucket, Traits, Version, etag_of

__all__ = ["list_objects", "list_versions"]

_MAX_KEYS = 1000


def list_objects(
    bucket: Bucket, query: Mapping[str, str], traits: Traits, escaped: Callable[[str], str]
) -> str:
    """Return the XML of ListObjectsV2."""
    if query.get("list-type") != "2" or "delimiter" in query:
        raise Refused(501, "NotImplemented", "only ListObjectsV2 without a delimiter")
    shown = _shown(query, traits, escaped)
    objects = dict(bucket.objects())
    after = (query.get("continuation-token") or query.get("start-after", "")).encode()
    prefix, limit = query.get("prefix", ""), _limit(query)
    found = sorted(key.encode() for key in objects if key.startswith(prefix) and key.encode() > after)
    page = [key.decode() for key in found[:limit]]
    more = len(found) > len(page)
    parts = [
        f"<Contents><Key>{shown(key)}</Key><ETag>{escape(etag_of(objects[key]))}</ETag>"
        f"<Size>{len(objects[key])}</Size>{_written(bucket.versions[key][-1], traits)}</Contents>"
        for key in (reversed(page) if traits.lists_reversed else page)
    ]
    token = f"<NextContinuationToken>{escaped(page[-1])}</NextContinuationToken>" if more and page else ""
    return (
        f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>"
        f"<KeyCount>{len(page)}</KeyCount>{_encoding(query, traits)}{token}"
        f"{''.join(parts)}</ListBucketResult>"
    )


def list_versions(
    bucket: Bucket, query: Mapping[str, str], traits: Traits, escaped: Callable[[str], str]
) -> str:
    """Return the XML of ListObjectVersions: keys in byte order, the newest version of each first."""
    shown = _shown(query, traits, escaped)
    prefix, limit = query.get("prefix", ""), _limit(query)
    rows = [
        (key, version, version is versions[-1])
        for key, versions in sorted(bucket.versions.items(), key=lambda item: item[0].encode())
        if key.startswith(prefix)
        for version in reversed(versions)
    ]
    rows = _after(rows, query.get("key-marker"), query.get("version-id-marker"))
    page = rows[:limit]
    mark = ""
    if len(rows) > len(page) and page:
        key, version, _ = page[-1]
        mark = (
            f"<NextKeyMarker>{shown(key)}</NextKeyMarker>"
            f"<NextVersionIdMarker>{version.version_id}</NextVersionIdMarker>"
        )
    parts = "".join(_version(shown(key), version, is_latest, traits) for key, version, is_latest in page)
    return (
        f"<ListVersionsResult><IsTruncated>{'true' if mark else 'false'}</IsTruncated>"
        f"{_encoding(query, traits)}{mark}{parts}</ListVersionsResult>"
    )


def _after(
    rows: list[tuple[str, Version, bool]], key: str | None, version_id: str | None
) -> list[tuple[str, Version, bool]]:
    if key is None:
        return rows
    if not version_id:
        return [row for row in rows if row[0].encode() > key.encode()]
    at = [i for i, row in enumerate(rows) if row[0] == key and row[1].version_id == version_id]
    if at:
        return rows[at[0] + 1 :]
    # The marked version is gone: a real store goes by its age, which the ids of this one carry.
    return [
        row
        for row in rows
        if row[0].encode() > key.encode() or (row[0] == key and row[1].version_id < version_id)
    ]


def _written(version: Version, traits: Traits) -> str:
    """Return when a version was written, in whole seconds as S3 lists it."""
    at = datetime.fromtimestamp(int(version.written_at + traits.clock_s), UTC)
    return f"<LastModified>{at:%Y-%m-%dT%H:%M:%S}.000Z</LastModified>"


def _version(key: str, version: Version, is_latest: bool, traits: Traits) -> str:
    name = "DeleteMarker" if version.is_marker else "Version"
    body = version.body
    rest = f"<ETag>{escape(etag_of(body))}</ETag><Size>{len(body)}</Size>" if body is not None else ""
    return (
        f"<{name}><Key>{key}</Key><VersionId>{version.version_id}</VersionId>"
        f"<IsLatest>{str(is_latest).lower()}</IsLatest>{_written(version, traits)}{rest}</{name}>"
    )


def _shown(query: Mapping[str, str], traits: Traits, escaped: Callable[[str], str]) -> Callable[[str], str]:
    if query.get("encoding-type") != "url":
        return escaped
    if traits.listed_as == "raw":
        return escaped
    if traits.listed_as:
        return lambda key: quote(key, safe="/+" if traits.listed_as == "bare" else "/")
    # As S3 does it: a space is a plus sign, a plus sign is encoded.
    return lambda key: quote(key, safe="/ ").replace(" ", "+")


def _encoding(query: Mapping[str, str], traits: Traits) -> str:
    said = query.get("encoding-type") == "url" and traits.listed_as not in ("encoded", "raw")
    return "<EncodingType>url</EncodingType>" if said else ""


def _limit(query: Mapping[str, str]) -> int:
    return min(int(query.get("max-keys", _MAX_KEYS)), _MAX_KEYS)
