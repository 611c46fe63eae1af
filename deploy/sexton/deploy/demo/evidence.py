"""What the demo leaves behind, gathered from the real parts once the story is over."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sexton.consumers import topics
from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.errors import UndecodableRecord
from sexton.schemas.settings import Settings
from sexton.storage import ObjectStore

__all__ = ["Evidence", "gather"]

_Event = TypeVar("_Event", bound=events.Event)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the checks look at.

    `written` are the keys of all objects that were ever put, `left` those in the bucket now. `indexes` maps
    each tenant to the keys that the index of its newest generation names. `granted` are all (tenant,
    generation) pairs that the issuer answered to a caller, in order.
    """

    written: frozenset[str]
    left: frozenset[str]
    indexes: Mapping[str, frozenset[str]]
    intents: Sequence[events.DeletionIntent]
    outcomes: Sequence[events.Outcome]
    dead_letters: Sequence[events.DeadLetter]
    deferred: Sequence[events.DeferredIntent]
    granted: Sequence[tuple[str, int]]


def gather(
    settings: Settings,
    store: ObjectStore,
    bucket: str,
    *,
    written: frozenset[str],
    index_keys: Mapping[str, str],
    granted: Sequence[tuple[str, int]],
) -> Evidence:
    """Read bucket and topics; an index that is missing counts as naming nothing but itself."""
    left = frozenset(store.list_keys(bucket, ""))
    indexes = {}
    for tenant, key in index_keys.items():
        named = json.loads(store.get(bucket, key))["layers"] if key in left else []
        indexes[tenant] = frozenset([key, *named])
    return Evidence(
        written=written,
        left=left,
        indexes=indexes,
        intents=_read(settings, records.INTENTS, events.DeletionIntent),
        outcomes=_read(settings, records.OUTCOMES, events.Outcome),
        dead_letters=_read(settings, records.DEAD_LETTERS, events.DeadLetter),
        deferred=_read(settings, records.DEFERRED, events.DeferredIntent),
        granted=tuple(granted),
    )


def _read(settings: Settings, topic: str, kind: type[_Event]) -> list[_Event]:
    codec, found = Codec(), []
    for raw in topics.read(settings, topic):
        try:
            found.append(codec.decode(raw.value, kind))
        except UndecodableRecord:
            # The garbage that the story itself has planted; its dead letter is what is checked.
            if topic != records.INTENTS:
                raise
    return found
