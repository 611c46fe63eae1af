"""What the recording S3 server keeps: buckets, objects and their versions, as the S3 API documents."""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.support.s3_signature import Refused

__all__ = ["Bucket", "Buckets", "Deleted", "Traits", "Version", "etag_of"]

MAX_KEY_BYTES = 1024
_numbers = itertools.count(1)


@dataclass
class Traits:
    """Where a server departs from the S3 API, for tests of what finds it out.

    `fold` is applied to each key of a delete; `conditions_ignored` and `versions_ignored` name ways
    (`batch`, `single`; conditions also `create` and `replace`, those of a put); a conditional put writes for
    so long (`writes_s`) after its condition was looked at, while others look. With `markers_unsaid` no reply
    to a batch tells of a marker. `failing` is the error code that the delete of a key is answered with.
    `listed_as` says how its listings spell keys: `encoded` without saying so, `raw` whatever was asked,
    `bare` where a plus sign stays one though the reply says that all is encoded.
    `clock_s` is for how many seconds its clock is ahead.
    """

    fold: Callable[[str], str] | None = None
    conditions_ignored: frozenset[str] = frozenset()
    versions_ignored: frozenset[str] = frozenset()
    writes_s: float = 0.0
    markers_unsaid: bool = False
    wants_md5: bool = False
    lists_reversed: bool = False
    keys_per_batch: int = 1000
    failing: Mapping[str, str] = field(default_factory=dict)
    listed_as: str = ""
    clock_s: float = 0.0


@dataclass(slots=True)
class Version:
    """A version of an object, or a delete marker (`body` None); when it was written, locks, metadata."""

    version_id: str
    body: bytes | None
    retain_until: datetime | None = None
    mode: str = ""
    legal_hold: bool = False
    written_at: float = field(default_factory=time.time)
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_marker(self) -> bool:
        """True for a delete marker."""
        return self.body is None

    def is_locked(self, *, bypass: bool) -> bool:
        """Return whether it may not be erased now."""
        if self.legal_hold:
            return True
        if self.retain_until is None or self.retain_until <= datetime.now(UTC):
            return False
        return not (bypass and self.mode == "GOVERNANCE")


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a delete did: erased a version (a marker?), or made a marker."""

    version_id: str | None = None
    was_marker: bool = False
    new_marker: str | None = None


@dataclass
class Bucket:
    """Versions by key, the newest last."""

    versioning: str = ""
    locks: bool = False
    versions: dict[str, list[Version]] = field(default_factory=dict)

    def current(self, key: str) -> Version | None:
        """Return the newest version of a key, which may be a marker."""
        found = self.versions.get(key)
        return found[-1] if found else None

    def version(self, key: str, version_id: str) -> Version | None:
        """Return one version."""
        return next((v for v in self.versions.get(key, ()) if v.version_id == version_id), None)

    def objects(self) -> Iterator[tuple[str, bytes]]:
        """Yield what a reader sees."""
        for key, versions in self.versions.items():
            body = versions[-1].body
            if body is not None:
                yield key, body

    def put(self, key: str, body: bytes) -> Version:
        """Write an object."""
        return self._add(key, body)

    def delete(self, key: str, version_id: str | None, *, bypass: bool = False) -> Deleted:
        """Delete an object, or erase one version."""
        if version_id is None:
            if self.versioning:
                return Deleted(new_marker=self._add(key, None).version_id)
            version_id = "null"
            if self.version(key, version_id) is None:
                return Deleted()
            self._erase(key, version_id, bypass=bypass)
            return Deleted()
        found = self.version(key, version_id)
        if found is None:
            return Deleted(version_id)
        self._erase(key, version_id, bypass=bypass)
        return Deleted(version_id, found.is_marker)

    def _add(self, key: str, body: bytes | None) -> Version:
        version_id = f"v{next(_numbers):08d}" if self.versioning == "Enabled" else "null"
        if version_id == "null":
            self._drop(key, "null")
        made = Version(version_id, body)
        self.versions.setdefault(key, []).append(made)
        return made

    def _erase(self, key: str, version_id: str, *, bypass: bool) -> None:
        found = self.version(key, version_id)
        if found is not None and found.is_locked(bypass=bypass):
            raise Refused(403, "AccessDenied", "Access Denied because object protected by object lock.")
        self._drop(key, version_id)

    def _drop(self, key: str, version_id: str) -> None:
        left = [v for v in self.versions.get(key, ()) if v.version_id != version_id]
        if left:
            self.versions[key] = left
        else:
            self.versions.pop(key, None)


@dataclass
class Buckets:
    """Buckets by name; every call is atomic under `lock`."""

    traits: Traits = field(default_factory=Traits)
    lock: threading.RLock = field(default_factory=threading.RLock)
    _buckets: dict[str, Bucket] = field(default_factory=dict)

    def create(self, bucket: str, *, versioning: str = "", locks: bool = False) -> bool:
        """Create a bucket; False when it was there. `versioning` is `Enabled`, `Suspended` or empty."""
        with self.lock:
            is_new = bucket not in self._buckets
            self._buckets.setdefault(bucket, Bucket("Enabled" if locks else versioning, locks))
            return is_new

    def fill(self, bucket: str, objects: Mapping[str, bytes], *, age_s: float = 0.0) -> None:
        """Put many objects, as if so many seconds ago."""
        with self.lock:
            for key, body in objects.items():
                self._buckets[bucket].put(key, body).written_at -= age_s

    def contents(self, bucket: str) -> dict[str, bytes]:
        """Return a copy of the objects by key, as a reader sees them."""
        with self.lock:
            return dict(self._buckets[bucket].objects())

    def names(self) -> list[str]:
        """Return the names of the buckets."""
        with self.lock:
            return sorted(self._buckets)

    def of(self, bucket: str) -> Bucket:
        """Return a bucket; to be used under `lock`."""
        if bucket not in self._buckets:
            raise Refused(404, "NoSuchBucket", "the specified bucket does not exist")
        return self._buckets[bucket]


def etag_of(body: bytes) -> str:
    """Return the ETag of an object."""
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
