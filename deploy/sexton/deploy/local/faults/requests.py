"""What an S3 request is about, and documents of a store's kind."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote
from xml.etree import ElementTree

__all__ = ["EMPTY_RESULT", "OPERATIONS", "S3Request", "describe", "to_bytes", "without"]

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
EMPTY_RESULT = f'<DeleteResult xmlns="{_NAMESPACE}"/>'.encode()
ElementTree.register_namespace("", _NAMESPACE)

# By method, what the path is about, and what the query or a header names: the first that fits counts.
OPERATIONS = {
    "POST bucket delete": "DeleteObjects", "GET bucket list-type": "ListObjectsV2",
    "GET bucket versions": "ListObjectVersions", "GET bucket uploads": "ListMultipartUploads",
    "GET bucket versioning": "GetBucketVersioning", "PUT bucket versioning": "PutBucketVersioning",
    "GET bucket object-lock": "GetObjectLockConfiguration", "GET object retention": "GetObjectRetention",
    "GET object legal-hold": "GetObjectLegalHold", "GET object tagging": "GetObjectTagging",
    "PUT object tagging": "PutObjectTagging", "DELETE object tagging": "DeleteObjectTagging",
    "PUT object uploadId": "UploadPart", "POST object uploadId": "CompleteMultipartUpload",
    "DELETE object uploadId": "AbortMultipartUpload", "GET object uploadId": "ListParts",
    "POST object uploads": "CreateMultipartUpload", "PUT object x-amz-copy-source": "CopyObject",
    "GET object": "GetObject", "PUT object": "PutObject", "HEAD object": "HeadObject",
    "DELETE object": "DeleteObject", "GET bucket location": "GetBucketLocation", "GET bucket": "ListObjects",
    "PUT bucket": "CreateBucket", "HEAD bucket": "HeadBucket", "DELETE bucket": "DeleteBucket",
    "GET": "ListBuckets",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class S3Request:
    """A request; `keys` are those of a DeleteObjects in their order, or the one of a single call."""

    operation: str
    bucket: str
    keys: list[str]
    versions: list[str | None]


def describe(method: str, target: str, headers: Iterable[str], body: bytes) -> S3Request:
    """Return what a request is about; raises ParseError for a batch whose keys cannot be known."""
    path, _, query = target.partition("?")
    bucket, key = (unquote(part, errors="backslashreplace") for part in path[1:].partition("/")[::2])
    asked = dict(parse_qsl(query, keep_blank_values=True))
    brought = {*asked, *(name.lower() for name in headers)}
    brought |= {method, "object" if key else "bucket" if bucket else ""}
    operation = next((name for at, name in OPERATIONS.items() if brought.issuperset(at.split())), "Other")
    named = [(key, asked.get("versionId"))] if key else []
    if operation == "DeleteObjects":
        entries = ElementTree.fromstring(body).findall("{*}Object")
        named = [(entry.findtext("{*}Key", ""), entry.findtext("{*}VersionId")) for entry in entries]
    return S3Request(operation, bucket, [key for key, _ in named], [version for _, version in named])


def without(body: bytes, withheld: Collection[int]) -> bytes:
    """Return a DeleteObjects body without these entries; the others keep their conditions."""
    root = ElementTree.fromstring(body)
    entries = root.findall("{*}Object")
    for index in withheld:
        root.remove(entries[index])
    return to_bytes(root)


def to_bytes(root: ElementTree.Element) -> bytes:
    """Return a document as it is sent."""
    # A parser makes LF of a bare CR, which would be another key: deleted, or taken for deleted.
    return bytes(ElementTree.tostring(root, "utf-8")).replace(b"\r", b"&#13;")
