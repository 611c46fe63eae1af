"""Finding out what the store of a bucket can do, by trying it on objects of our own.

Everything lies under `.sexton-probe/<random>/`, and all that was made is removed again, versions and markers
too. What could not be tried is unknown, with the reason; a store that cannot be asked now (throttled, away)
raises.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar
from xml.etree import ElementTree

from sexton.storage.abilities import ALIASINGS, Abilities, Ability, Versioning
from sexton.storage.batches import Batches
from sexton.storage.calls import Calls, ObjectInfo
from sexton.storage.errors import NoReply, StoreRefused
from sexton.storage.reply import child_text, local_name
from sexton.storage.states import BatchResult, Delete, Kind
from sexton.storage.xml_body import DeleteBody, build_items, xml_unsafe

__all__ = ["NO_ETAG", "PREFIX", "look_up", "probe_store"]

PREFIX = ".sexton-probe/"
"""Where probes make their objects; nothing else may lie there."""

NO_ETAG = f'"{"0" * 32}"'
"""An ETag that no object has."""

# So that the parts of an aliasing exist where a file system resolves them one by one.
_COMPANIONS = ("{p}dots/a/x", "{p}twice/x", "{p}back/x", "{p}percent/x")
_LISTED = (
    "a",
    "A",
    "a!",
    "a-b",
    "a+b",
    "a b",
    "a%2Fb",
    "<&>",
    "z",
    "a%20b",
    "a=b&c",
    "a~b*c'd",
    'q"q',
    "a:b;c,d@e",
    "\u00e9",
    "e\u0301",
    "\uffee",
    "\U0001f5dd",
    "0/1",
)
_RAISED = (Kind.TRANSIENT, Kind.UNKNOWN, Kind.ENVIRONMENT, Kind.UNUSABLE)

T = TypeVar("T")


@dataclass(slots=True)
class _Probe:
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
        return self.known.bucket

    def ask(self, what: str, call: Callable[[], T]) -> T | None:
        """Return what the call does; None, with the reason noted, when the store says no to it."""
        try:
            return call()
        except StoreRefused as refused:
            if _is_about_more(refused):
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


def probe_store(calls: Calls, batches: Batches, bucket: str, under: str = "") -> Abilities:
    """Try what the bucket's store can do; some 200 small requests, on keys that all begin with `under`.

    Raises StoreRefused when the bucket is missing or throttled, StoreUnavailable when nobody answers.
    """
    probe = _Probe(calls, batches, Abilities(bucket), f"{under}{PREFIX}{uuid.uuid4().hex}/", under)
    calls.check_bucket(bucket)
    lock = _object_lock(probe)
    versioning, _ = _versioning(probe)
    found: dict[str, object] = {"object_lock": lock[0], "versioning": versioning}
    if lock[1]:
        # What is put here is kept by the bucket itself: a probe could not clean up.
        probe.why.append("put: the bucket has a default retention")
    else:
        try:
            found |= _trials(probe, versioning)
        finally:
            _clean_up(probe, versioning, by_listing=found.get("lists_exactly") is Ability.YES)
    return Abilities(bucket, **found, why_unknown=tuple(probe.why))  # type: ignore[arg-type]


def look_up(calls: Calls, batches: Batches, known: Abilities) -> Abilities:
    """Return what is known with the bucket's versioning and object lock, which it says itself: two requests.

    Raises what `probe_store` raises.
    """
    probe = _Probe(calls, batches, known, "")
    found: dict[str, object] = {}
    for name, ask in (
        ("object_lock", lambda: {"object_lock": _object_lock(probe)[0]}),
        ("versioning", lambda: dict(zip(("versioning", "keeps_folders"), _versioning(probe), strict=True))),
    ):
        try:
            found |= ask()
        except NoReply as error:
            if error.code != "NotADeleteResult":
                raise
            probe.why.append(f"{name}: an answer that is none")
    return replace(known, **found, why_unknown=tuple(probe.why), strict=True)  # type: ignore[arg-type]


def _trials(probe: _Probe, versioning: Versioning) -> Mapping[str, object]:
    found: dict[str, object] = dict(_checksums(probe))
    probe.known = Abilities(probe.bucket, crc32=found["crc32"], md5=found["md5"])  # type: ignore[arg-type]
    first = probe.prefix + "first"
    if probe.ask("put", lambda: probe.calls.put(probe.bucket, first, b"x")) is None:
        return found
    aliasings = _aliasings(probe)
    return found | {
        "keeps_folders": _folders(probe, aliasings["single_aliases"]),
        "refuses_1001": _limit(probe, versioning),
        "batch_condition": _condition(probe, "batch", probe.delete),
        "single_condition": _condition(probe, "single", probe.delete_one),
        "batch_erases": _erases(probe, versioning, "batch", probe.delete),
        "single_erases": _erases(probe, versioning, "single", probe.delete_one),
        **aliasings,
        **_listing(probe),
    }


def _object_lock(probe: _Probe) -> tuple[Ability, bool]:
    """Return whether the bucket locks objects, and whether it does so by default."""
    try:
        root = probe.calls.subresource(probe.bucket, "object-lock").root
    except StoreRefused as refused:
        if refused.status == 404:
            return Ability.NO, False
        if _is_about_more(refused):
            raise
        probe.why.append(f"object-lock: {refused.code}")
        return Ability.UNKNOWN, False
    if not _tells(probe, "object-lock", root, "ObjectLock"):
        return Ability.UNKNOWN, False
    is_on = child_text(root, "ObjectLockEnabled") == "Enabled"
    return Ability.of(is_on), any(
        local_name(part) in ("Days", "Years") and (part.text or "0") != "0" for part in root.iter()
    )


def _versioning(probe: _Probe) -> tuple[Versioning, Ability]:
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


def _is_about_more(refused: StoreRefused) -> bool:
    """Return whether a refusal is no answer to what was asked: the store is busy, or there is no bucket."""
    return refused.kind in _RAISED or refused.code == "NoSuchBucket" or refused.status in (429, 503)


def _tells(probe: _Probe, what: str, root: ElementTree.Element, word: str) -> bool:
    """Return whether it is the answer that was asked for: a page without a status is not versioning off."""
    # Stores name it in their own ways: VersioningConfiguration, GetBucketVersioningResponse.
    if word in local_name(root):
        return True
    probe.why.append(f"{what}: an answer that is none: {local_name(root)[:40]}")
    return False


def _checksums(probe: _Probe) -> Iterator[tuple[str, Ability]]:
    for name, headers in (("crc32", None), ("md5", "md5")):
        body = build_items([Delete(f"{probe.prefix}{name}")])
        status, code = probe.batches.try_checksum(probe.bucket, body, md5=headers is not None)
        if status not in (200, 400):
            probe.why.append(f"DeleteObjects with {name}: {code or status}")
        yield name, Ability.of({200: True, 400: False}.get(status))


def _limit(probe: _Probe, versioning: Versioning) -> Ability:
    if versioning is not Versioning.OFF:
        # Where 1,001 deletes of nothing leave 1,001 markers it is not worth knowing.
        probe.why.append("1,001 keys: not tried on a versioned bucket")
        return Ability.UNKNOWN
    entry = f"<Object><Key>{probe.prefix}none-%d</Key></Object>"
    data = "".join(["<Delete>", *(entry % i for i in range(1001)), "</Delete>"]).encode()
    status, code = probe.batches.try_checksum(probe.bucket, DeleteBody(data, b"", 1001), md5=_md5_only(probe))
    if status not in (200, 400):
        probe.why.append(f"1,001 keys: {code or status}")
    return Ability.of({200: False, 400: True}.get(status))


def _md5_only(probe: _Probe) -> bool:
    return probe.known.crc32 is Ability.NO and probe.known.md5 is Ability.YES


def _condition(probe: _Probe, way: str, delete: Callable[[Delete], bool]) -> Ability:
    """Return whether a delete with a wrong ETag leaves the object, and one with the right ETag takes it."""
    key = f"{probe.prefix}condition-{way}"
    etag = probe.put(key)
    if not etag:
        return Ability.UNKNOWN
    refused = not delete(Delete(key, NO_ETAG)) and probe.is_there(key)
    return Ability.of(refused and delete(Delete(key, etag)) and not probe.is_there(key))


def _erases(probe: _Probe, versioning: Versioning, way: str, delete: Callable[[Delete], bool]) -> Ability:
    """Return whether naming an older version erases it, and leaves the newest one to be seen."""
    key = f"{probe.prefix}version-{way}"
    versions = [probe.put_version(key) for _ in range(2)] if versioning is Versioning.ON else []
    if not all(versions) or len(set(versions)) < 2:
        return Ability.UNKNOWN
    gone = delete(Delete(key, version_id=versions[0]))
    left = [probe.calls.head(probe.bucket, key, version) is not None for version in versions]
    return Ability.of(gone and left == [False, True] and probe.is_there(key))


def _folders(probe: _Probe, aliases: frozenset[str]) -> Ability:
    """Return whether the object `k/` stays when `k` is deleted, which is not there."""
    if "trailing slash" in aliases:
        return Ability.UNKNOWN  # it could not be removed again
    folder = f"{probe.prefix}folder/"
    if probe.ask("put folder", lambda: probe.calls.put(probe.bucket, folder, b"")) is None:
        return Ability.UNKNOWN
    probe.delete(Delete(folder.rstrip("/")))
    return Ability.of(probe.is_there(folder))


def _aliasings(probe: _Probe) -> Mapping[str, frozenset[str]]:
    for companion in _COMPANIONS:
        probe.put(companion.format(p=probe.prefix))
    batch = {s.name: [_survives(probe, *pair, probe.delete) for pair in s.pairs] for s in ALIASINGS if s.xml}
    single = {s.name: [_survives(probe, *pair, probe.delete_one) for pair in s.pairs] for s in ALIASINGS}
    return {
        "batch_keeps": _named(batch, all),
        "batch_aliases": _named(batch, lambda answers: False in answers),
        "single_keeps": _named(single, all),
        "single_aliases": _named(single, lambda answers: False in answers),
    }


def _survives(probe: _Probe, odd: str, sibling: str, delete: Callable[[Delete], bool]) -> bool | None:
    """Return whether an object is still there after its odd sibling was deleted; None if it cannot be put."""
    odd, sibling = odd.format(p=probe.prefix), sibling.format(p=probe.prefix)
    if not (odd.startswith(probe.under) and sibling.startswith(probe.under)):
        return None  # outside of where we may make objects
    if probe.put(sibling) is None:
        probe.why.append(f"put {sibling.removeprefix(probe.prefix)!r}: refused")
        return None
    delete(Delete(odd))
    return probe.is_there(sibling)


def _named(
    answers: Mapping[str, list[bool | None]], test: Callable[[list[bool | None]], bool]
) -> frozenset[str]:
    return frozenset(name for name, given in answers.items() if test(given))


def _listing(probe: _Probe) -> Mapping[str, Ability]:
    """Return whether a page names every key as it is, and whether pages come in order and leave none out."""
    prefix = probe.prefix + "list/"
    made = {prefix + name for name in _LISTED if probe.put(prefix + name) is not None}
    whole = probe.ask("list", lambda: probe.calls.list_slice(probe.bucket, prefix))
    if whole is None or not made:
        return {}
    listed: list[str] = []
    after: str | None = None
    while True:
        start = after
        page = probe.ask("list", lambda: probe.calls.list_slice(probe.bucket, prefix, start, 4))  # noqa: B023
        if page is None:
            return {}
        listed += [entry.key for entry in page.objects]
        after = page.after
        if after is None or len(listed) > 2 * len(_LISTED):
            break
    return {
        "lists_in_order": Ability.of(listed == sorted(listed, key=str.encode)),
        "lists_exactly": Ability.of(sorted(entry.key for entry in whole.objects) == sorted(made)),
    }


def _clean_up(probe: _Probe, versioning: Versioning, *, by_listing: bool) -> None:
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


def _remove(probe: _Probe, prefix: str, versioning: Versioning) -> bool:
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


def _present(probe: _Probe, prefix: str, versioning: Versioning) -> list[Delete]:
    try:
        if versioning is not Versioning.OFF:
            page = probe.calls.version_slice(probe.bucket, prefix)
            return [Delete(version.key, version_id=version.version_id) for version in page.versions]
    except StoreRefused as refused:
        if refused.status not in (405, 501):  # without such a listing it keeps no versions, or tells none
            raise
    return [Delete(entry.key) for entry in probe.calls.list_slice(probe.bucket, prefix).objects]
