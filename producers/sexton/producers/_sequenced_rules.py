"""What a writer of sequenced metadata may conclude from what it has read. Pure.

Everything rests on one order: the boundary is durable before a file at or below it is deleted. So above the
boundary whatever was ever written is still there, and what is not there was never written; at or below it a
file that is absent may never have been there, or may have been collected.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from sexton.producers._errors import BoundaryLowered, BoundaryUnreadable, BoundaryVanished
from sexton.producers._sequenced_store import NoObject, StoredObject
from sexton.schemas.errors import InvalidFormat, StoreUnavailable
from sexton.schemas.sequenced import parse_boundary

__all__ = ["Boundary", "Whose", "observed", "whose"]


class Whose(enum.Enum):
    """Whom the file of an id is of, as it was read back."""

    OWN = "own"
    ANOTHERS = "another's"
    NOBODY_KNOWS = "nobody knows"
    ABSENT = "absent"


def whose(found: StoredObject | NoObject, nonce: str | None, body: bytes) -> Whose:
    """Return whom a file is of, compared with what was sent; `found.nonce` may be None, as `nonce` may.

    Equal bytes prove nothing: two writers that build on the same file can write the same. Different ones
    prove that it is another's. A file without a nonce is one of a writer that has none, or of a store that
    does not keep them.
    """
    if not isinstance(found, StoredObject):
        return Whose.ABSENT
    if nonce is not None and found.nonce is not None:
        return Whose.OWN if found.nonce == nonce else Whose.ANOTHERS
    return Whose.NOBODY_KNOWS if found.body == body else Whose.ANOTHERS


@dataclass(frozen=True, slots=True)
class Boundary:
    """The boundary as a writer has last seen it: ids up to and including `id` are dead."""

    id: int = 0
    etag: str | None = None
    is_seen: bool = False

    def is_dead(self, id: int) -> bool:
        """Return whether the file of an id is dead: it may be deleted, and what lands there is not read."""
        return id <= self.id


def observed(known: Boundary, key: str, answer: StoredObject | NoObject) -> Boundary:
    """Return the boundary after an answer to a read that was conditional on `known.etag`.

    Raises BoundaryVanished, BoundaryLowered, BoundaryUnreadable, after which nothing may be written;
    StoreUnavailable for an answer to another question.
    """
    if answer is NoObject.ABSENT:
        if known.is_seen:
            raise BoundaryVanished(f"the boundary {key} was {known.id}, and is gone")
        return known  # absent is 0, as long as it was never there
    if answer is NoObject.UNCHANGED and known.etag is not None:
        return known
    if not isinstance(answer, StoredObject):
        message = f"no body came for {key}, which was asked for without a condition"
        raise StoreUnavailable(message, hint="call again")
    try:
        id = parse_boundary(answer.body)
    except InvalidFormat as error:
        raise BoundaryUnreadable(f"{key}: {error}") from error
    if id < known.id:
        raise BoundaryLowered(f"the boundary {key} was {known.id}, and is {id}")
    return Boundary(id, answer.etag or None, is_seen=True)
