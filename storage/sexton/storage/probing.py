"""A probe under way: objects of its own under `.sexton-probe/<random>/`, which it removes again.

What could not be tried is noted with the reason; a store that cannot be asked now (throttled, away) raises.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from xml.etree import ElementTree

from sexton.storage.abilities import Abilities, Ability, Versioning
from sexton.storage.batches import Batches
from sexton.storage.calls import Calls, ObjectInfo
from sexton.storage.errors import StoreRefused
from sexton.storage.reply import child_text, local_name
from sexton.storage.states import BatchResult, Delete, Kind
from sexton.storage.xml_body import DeleteBody, build_items, xml_unsafe

__all__ = [
    "PREFIX",
    "Probe",
    "clean_up",
    "is_about_more",
    "object_lock_of",
    "open_probe",
    "versioning_of",
]

PREFIX = ".sexton-probe/"
"""Where probes make their objects; nothing else may lie there."""

_RAISED = (Kind.TRANSIENT, Kind.UNKNOWN, Kind.ENVIRONMENT, Kind.UNUSABLE)

T = TypeVar("T")


@dataclass(slots=True)
class Probe:
    """One probe under way; `known` is what later steps go by."""

    calls: Calls
    batches: Batches
    known: Abilities
    prefix: str
    under: str = ""
    why: list[str] = field(default_factory=list)
    made: list[Delete] = field(default_factory=list)

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return self.known.bucket

    def ask(self, what: str, call: Callable[[], T]) -> T | None:
        """Return what the call does; None, with the reason noted, when the store says no to it."""
        try:
            return call()
        except StoreRefused as refused:
            if is_about_more(refused):
                raise
            self.why.append(f"{what}: {refused.code}")
            return None

    def put(self, key: str) -> str | None:
        """Write a small object and return its ETag, None when the store does not take such a key."""
        made = self._put(key)
        return None if made is None else made.etag

    def put_version(self, key: str) -> str | None:
        """Write a small object and return its version id, None or nothing where there is none."""
        made = self._put(key)
        return None if made is None else made.version_id

    def _put(self, key: str) -> ObjectInfo | None:
        try:
            put = self.calls.put(self.bucket, key, key.encode())
        except StoreRefused:
            return None
        self.made.append(Delete(key, version_id=put.version_id or None))
        return put

    def is_there(self, key: str) -> bool:
        """Return whether the object is there."""
        return self.calls.exists(self.bucket, key)

    def delete(self, *items: Delete, known: Abilities | None = None) -> bool:
        """Delete by one batch; True when every item is reported gone."""
        return self._batch(build_items(items), items, known or self.known)

    def delete_one(self, item: Delete) -> bool:
        """Delete by a single call; True when it is reported gone."""
        return self._noted([item], self.batches.delete_one(self.bucket, item, self.known))

    def _batch(self, body: DeleteBody, items: Sequence[Delete], known: Abilities) -> bool:
        return self._noted(items, self.batches.delete(self.bucket, items, body, known))

    def _noted(self, items: Sequence[Delete], result: BatchResult) -> bool:
        """Note the delete markers that were made; return whether every item is reported gone."""
        self.made += [Delete(items[n].key, version_id=made) for n, made in result.markers.items() if made]
        return result.clean


def open_probe(calls: Calls, batches: Batches, bucket: str, under: str) -> Probe:
    """Return a probe whose keys all begin with `under`, in a folder that no other probe has."""
    return Probe(calls, batches, Abilities(bucket), f"{under}{PREFIX}{uuid.uuid4().hex}/", under)


def object_lock_of(probe: Probe) -> tuple[Ability, bool]:
    """Return whether the bucket locks objects, and whether it does so by default."""
    try:
        root = probe.calls.subresource(probe.bucket, "object-lock").root
    except StoreRefused as refused:
        if refused.status == 404:
            return Ability.NO, False
        if is_about_more(refused):
            raise
        probe.why.append(f"object-lock: {refused.code}")
        return Ability.UNKNOWN, False
    if not _tells(probe, "object-lock", root, "ObjectLock"):
        return Ability.UNKNOWN, False
    is_on = child_text(root, "ObjectLockEnabled") == "Enabled"
    return Ability.of(is_on), any(
        local_name(part) in ("Days", "Years") and (part.text or "0") != "0" for part in root.iter()
    )


def versioning_of(probe: Probe) -> tuple[Versioning, Ability]:
    """Return the bucket's versioning, and whether its server is known to take folder objects away.

    Every plain key could do that, and plain keys are sent without a probe: so its name has to tell.
    """
    answer = probe.ask("versioning", lambda: probe.calls.subresource(probe.bucket, "versioning"))
    if answer is None:
        return Versioning.UNKNOWN, Ability.UNKNOWN
    keeps = Ability.NO if answer.server.startswith("SeaweedFS") else Ability.UNKNOWN
    if not _tells(probe, "versioning", answer.root, "Versioning"):
        return Versioning.UNKNOWN, keeps
    states = {"Enabled": Versioning.ON, "Suspended": Versioning.SUSPENDED}
    return states.get(child_text(answer.root, "Status"), Versioning.OFF), keeps


def clean_up(probe: Probe, versioning: Versioning, *, by_listing: bool) -> None:
    """Remove what the probe has made; what cannot be removed is reported.

    By name first, unless the listing was seen to be exact: another shows other names than those that were
    put.
    """
    for item in () if by_listing else tuple(probe.made):
        probe.ask("clean up", lambda: probe.delete_one(item))  # noqa: B023
    for prefix in (probe.prefix,) if probe.under else (probe.prefix, "/" + probe.prefix):
        left = probe.ask("clean up", lambda: _remove(probe, prefix, versioning))  # noqa: B023
        if left:
            probe.why.append(f"clean up: left under {prefix}")


def is_about_more(refused: StoreRefused) -> bool:
    """Return whether a refusal is no answer to what was asked: the store is busy, or there is no bucket."""
    return refused.kind in _RAISED or refused.code == "NoSuchBucket" or refused.status in (429, 503)


def _tells(probe: Probe, what: str, root: ElementTree.Element, word: str) -> bool:
    """Return whether it is the answer that was asked for: a page without a status is not versioning off."""
    # Stores name it in their own ways: VersioningConfiguration, GetBucketVersioningResponse.
    if word in local_name(root):
        return True
    probe.why.append(f"{what}: an answer that is none: {local_name(root)[:40]}")
    return False


def _remove(probe: Probe, prefix: str, versioning: Versioning) -> bool:
    """Remove everything under a prefix; True when something is left after three rounds."""
    for _ in range(3):
        items = _present(probe, prefix, versioning)
        if not items:
            return False
        for item in items:
            # One by one and through the path: a key of any kind goes that way, unless a proxy spoils it.
            if not probe.delete_one(item) and not xml_unsafe(item.key):
                probe.delete(item)
    return bool(_present(probe, prefix, versioning))


def _present(probe: Probe, prefix: str, versioning: Versioning) -> list[Delete]:
    try:
        if versioning is not Versioning.OFF:
            page = probe.calls.version_slice(probe.bucket, prefix)
            return [Delete(version.key, version_id=version.version_id) for version in page.versions]
    except StoreRefused as refused:
        if refused.status not in (405, 501):  # without such a listing it keeps no versions, or tells none
            raise
    return [Delete(entry.key) for entry in probe.calls.list_slice(probe.bucket, prefix).objects]
