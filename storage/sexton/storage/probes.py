"""Finding out what the store of a bucket can do, by trying it on objects of our own.

Everything lies under `.sexton-probe/<random>/`, and all that was made is removed again, versions and markers
too. What could not be tried is unknown, with the reason; a store that cannot be asked now (throttled, away)
raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from sexton.storage.abilities import ALIASINGS, Abilities, Ability, Versioning
from sexton.storage.batches import Batches
from sexton.storage.calls import Calls
from sexton.storage.errors import NoReply
from sexton.storage.probing import Probe, clean_up, object_lock_of, open_probe, versioning_of
from sexton.storage.states import Delete
from sexton.storage.xml_body import DeleteBody, build_items

__all__ = ["NO_ETAG", "look_up", "probe_store"]

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


def probe_store(calls: Calls, batches: Batches, bucket: str, under: str = "") -> Abilities:
    """Try what the bucket's store can do; some 200 small requests, on keys that all begin with `under`.

    Raises StoreRefused when the bucket is missing or throttled, StoreUnavailable when nobody answers.
    """
    probe = open_probe(calls, batches, bucket, under)
    calls.check_bucket(bucket)
    lock = object_lock_of(probe)
    versioning, _ = versioning_of(probe)
    found: dict[str, object] = {"object_lock": lock[0], "versioning": versioning}
    if lock[1]:
        # What is put here is kept by the bucket itself: a probe could not clean up.
        probe.why.append("put: the bucket has a default retention")
    else:
        try:
            found |= _trials(probe, versioning)
        finally:
            clean_up(probe, versioning, by_listing=found.get("lists_exactly") is Ability.YES)
    return Abilities(bucket, **found, why_unknown=tuple(probe.why))  # type: ignore[arg-type]


def look_up(calls: Calls, batches: Batches, known: Abilities) -> Abilities:
    """Return what is known with the bucket's versioning and object lock, which it says itself: two requests.

    Raises what `probe_store` raises.
    """
    probe = Probe(calls, batches, known, "")
    found: dict[str, object] = {}
    for name, ask in (
        ("object_lock", lambda: {"object_lock": object_lock_of(probe)[0]}),
        ("versioning", lambda: dict(zip(("versioning", "keeps_folders"), versioning_of(probe), strict=True))),
    ):
        try:
            found |= ask()
        except NoReply as error:
            if error.code != "NotADeleteResult":
                raise
            probe.why.append(f"{name}: an answer that is none")
    return replace(known, **found, why_unknown=tuple(probe.why), strict=True)  # type: ignore[arg-type]


def _trials(probe: Probe, versioning: Versioning) -> Mapping[str, object]:
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


def _checksums(probe: Probe) -> Iterator[tuple[str, Ability]]:
    for name, headers in (("crc32", None), ("md5", "md5")):
        body = build_items([Delete(f"{probe.prefix}{name}")])
        status, code = probe.batches.try_checksum(probe.bucket, body, md5=headers is not None)
        if status not in (200, 400):
            probe.why.append(f"DeleteObjects with {name}: {code or status}")
        yield name, Ability.of({200: True, 400: False}.get(status))


def _limit(probe: Probe, versioning: Versioning) -> Ability:
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


def _md5_only(probe: Probe) -> bool:
    return probe.known.crc32 is Ability.NO and probe.known.md5 is Ability.YES


def _condition(probe: Probe, way: str, delete: Callable[[Delete], bool]) -> Ability:
    """Return whether a delete with a wrong ETag leaves the object, and one with the right ETag takes it."""
    key = f"{probe.prefix}condition-{way}"
    etag = probe.put(key)
    if not etag:
        return Ability.UNKNOWN
    refused = not delete(Delete(key, NO_ETAG)) and probe.is_there(key)
    return Ability.of(refused and delete(Delete(key, etag)) and not probe.is_there(key))


def _erases(probe: Probe, versioning: Versioning, way: str, delete: Callable[[Delete], bool]) -> Ability:
    """Return whether naming an older version erases it, and leaves the newest one to be seen."""
    key = f"{probe.prefix}version-{way}"
    versions = [probe.put_version(key) for _ in range(2)] if versioning is Versioning.ON else []
    if not all(versions) or len(set(versions)) < 2:
        return Ability.UNKNOWN
    gone = delete(Delete(key, version_id=versions[0]))
    left = [probe.calls.head(probe.bucket, key, version) is not None for version in versions]
    return Ability.of(gone and left == [False, True] and probe.is_there(key))


def _folders(probe: Probe, aliases: frozenset[str]) -> Ability:
    """Return whether the object `k/` stays when `k` is deleted, which is not there."""
    if "trailing slash" in aliases:
        return Ability.UNKNOWN  # it could not be removed again
    folder = f"{probe.prefix}folder/"
    if probe.ask("put folder", lambda: probe.calls.put(probe.bucket, folder, b"")) is None:
        return Ability.UNKNOWN
    probe.delete(Delete(folder.rstrip("/")))
    return Ability.of(probe.is_there(folder))


def _aliasings(probe: Probe) -> Mapping[str, frozenset[str]]:
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


def _survives(probe: Probe, odd: str, sibling: str, delete: Callable[[Delete], bool]) -> bool | None:
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


def _listing(probe: Probe) -> Mapping[str, Ability]:
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
