"""Folder objects, on stores that take `dir/` away with `dir`: verified first, and then left alone.

A store on a file system may keep the object `dir/` as the folder itself, and remove an empty folder when the
key `dir` is deleted, which no object has. Any plain key could be such a one, so each is verified; the store
lets no object and folder of one name be, so that a key whose own object is there is never held up.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace

from sexton.schemas.errors import StoreUnavailable
from sexton.storage.calls import Calls
from sexton.storage.errors import BucketUnusable
from sexton.storage.errors_table import classify_single
from sexton.storage.states import Delete, Effect, KeyState, Kind
from sexton.storage.states_of import key_state, unavailable

__all__ = ["beside_folders"]

_AGAIN = (Kind.TRANSIENT, Kind.UNKNOWN, Kind.UNACCOUNTED, Kind.BUCKET, Kind.ENVIRONMENT)


def beside_folders(
    calls: Calls, bucket: str, items: Sequence[str | Delete], pool: Executor
) -> dict[int, KeyState]:
    """Return the states, by index, of items that may not be sent now: a folder object would go with them.

    One HEAD for each key that does not end in `/`, some at a time in `pool`.
    """
    keys = [item if isinstance(item, str) else item.key for item in items]
    indexes = [index for index, key in enumerate(keys) if not key.endswith("/")]
    found = pool.map(lambda index: _look(calls, bucket, keys[index]), indexes)
    return {index: state for index, state in zip(indexes, found, strict=True) if state is not None}


def _look(calls: Calls, bucket: str, key: str) -> KeyState | None:
    try:
        reply = calls.exchange("HEAD", bucket, f"{key}/")
    except (StoreUnavailable, BucketUnusable) as error:
        return replace(unavailable(error), effect=Effect.NONE)  # nothing was sent but a look
    if reply.status == 404:
        return None
    row = classify_single("", reply.status)
    if reply.status != 200 and row.kind in _AGAIN:
        text = "whether a folder has the key's name could not be verified"
        return KeyState(row.kind, str(reply.status), text, reply.status)
    return key_state("FoldedKey", "folder object: the store would take it away with the key")
