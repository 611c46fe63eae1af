"""Which items go in one batch, which one by one, and which not at all: decided before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sexton.storage.abilities import Abilities, Ability
from sexton.storage.errors import InvalidBatch
from sexton.storage.states import Delete, KeyState
from sexton.storage.states_of import key_state
from sexton.storage.xml_body import (
    MAX_KEY_BYTES,
    MAX_KEYS,
    DeleteBody,
    build_body,
    build_items,
    key_problem,
    xml_unsafe,
)

__all__ = ["Plan", "make_plan", "plain_body"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The items, and by index: those of one batch (with its body), the single ones, the refused ones."""

    items: Sequence[str | Delete]
    batch: Sequence[int]
    body: DeleteBody | None
    singles: Sequence[int]
    refused: Mapping[int, KeyState]


def plain_body(items: Sequence[str | Delete], abilities: Abilities) -> DeleteBody | None:
    """Return the body of a batch in which no key needs a second look; None when one does.

    This is the common case, in a few passes over the memory of all keys.
    """
    try:
        body = build_body(_plain_keys(items))
    except (InvalidBatch, TypeError):
        # An item that is not a plain key, or a key of its own kind: the plan says what becomes of each.
        return None
    return None if abilities.may_fold(body.joined) else body


def _plain_keys(items: Sequence[str | Delete]) -> Sequence[str]:
    if items and isinstance(items[0], str):
        return items  # type: ignore[return-value]  # joining them says whether all are
    whole = [item for item in items if isinstance(item, Delete)]
    if len(whole) != len(items) or any(_is_bound(item) for item in whole):
        raise TypeError
    return [item.key for item in whole]


def _is_bound(item: Delete) -> bool:
    return item.etag is not None or item.version_id is not None


def make_plan(items: Sequence[str | Delete], abilities: Abilities) -> Plan:
    """Divide 1 to 1000 items; raises InvalidBatch for an empty, too long or repeating list."""
    if not 1 <= len(items) <= MAX_KEYS:
        raise InvalidBatch(f"a batch holds 1 to {MAX_KEYS} keys: {len(items)}")
    easy = [index for index, item in enumerate(items) if _is_easy(item)]
    keys = [items[index] for index in easy]
    body = plain_body(keys, abilities) if keys else None
    if body is None:
        easy, keys = [], []
    seen: set[tuple[str, str | None]] = {(key if isinstance(key, str) else key.key, None) for key in keys}
    batch, singles, refused = _divided(items, set(easy), seen, abilities)
    if batch:
        # Some that looked hard fit after all: the batch takes them too.
        easy += batch
        body = build_items([Delete.of(items[index]) for index in easy])
    return Plan(items, easy, body, singles, refused)


def _divided(
    items: Sequence[str | Delete],
    easy: set[int],
    seen: set[tuple[str, str | None]],
    abilities: Abilities,
) -> tuple[list[int], list[int], dict[int, KeyState]]:
    batch: list[int] = []
    singles: list[int] = []
    refused: dict[int, KeyState] = {}
    for index, given in enumerate(items):
        if index in easy:
            continue
        item = Delete.of(given)
        if (item.key, item.version_id) in seen:
            raise InvalidBatch(f"a batch names no key and version twice: {item.key!r}")
        seen.add((item.key, item.version_id))
        way = _way(item, abilities)
        if isinstance(way, KeyState):
            refused[index] = way
        else:
            (batch if way == "batch" else singles).append(index)
    return batch, singles, refused


def _is_easy(item: str | Delete) -> bool:
    # A printable text holds nothing that XML cannot carry, and so short a one is not too long in bytes.
    if isinstance(item, str):
        return item.isprintable() and 0 < len(item) <= MAX_KEY_BYTES // 4
    return not _is_bound(item) and item.key.isprintable() and 0 < len(item.key) <= MAX_KEY_BYTES // 4


def _way(item: Delete, abilities: Abilities) -> KeyState | str:
    problem = key_problem(item.key)
    if problem is not None:
        return key_state(problem)
    if item.etag == "" or item.version_id == "":
        # A store may take an empty condition for none.
        return key_state("ConditionNotChecked", "the condition is empty")
    refusals = []
    for way in ("batch", "single"):
        if way == "batch" and any(xml_unsafe(t) for t in (item.key, item.etag, item.version_id) if t):
            continue
        refusal = _refusal(item, abilities, way)
        if refusal is None:
            return way
        refusals.append(refusal)
    return refusals[-1]


def _refusal(item: Delete, abilities: Abilities, way: str) -> KeyState | None:
    batch = way == "batch"
    aliasing = abilities.aliasing_of(item.key, batch=batch)
    if aliasing is not None:
        return key_state("FoldedKey", f"{aliasing}: seen to be kept apart is only what a probe has tried")
    checked = abilities.batch_condition if batch else abilities.single_condition
    if item.version_id is not None and item.etag is not None:
        return key_state("ConditionNotChecked", "no probe has tried an ETag and a version id together")
    if item.version_id is not None and not abilities.erases(batch=batch):
        # A version that is named is its own condition, where the store goes by it: else the newest is hidden.
        return key_state("ConditionNotChecked", f"the store does not go by version ids in a {way} call")
    if item.etag is None:
        return None
    if checked is not Ability.YES:
        return key_state("ConditionNotChecked", f"the store checks an ETag in a {way} call: {checked}")
    return None
