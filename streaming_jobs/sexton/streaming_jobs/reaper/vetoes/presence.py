"""Whether an object stands under a key: by a HEAD, or by an exact listing where that cannot tell."""

from __future__ import annotations

from sexton.schemas.errors import EnvironmentFault
from sexton.storage import Ability, Deleter, StoreRefused
from sexton.streaming_jobs.reaper.execute.outcomes import Presence
from sexton.streaming_jobs.reaper.execute.verification import verify

__all__ = ["presence_of"]


def presence_of(deleter: Deleter, bucket: str, key: str) -> tuple[Presence, str]:
    """Return whether an object is there, and why nobody can tell; raises EnvironmentFault.

    A HEAD of an object under a customer's key is refused without that key (S3 User Guide, "Using server-side
    encryption with customer-provided keys"): a listing shows it all the same.
    """
    found = verify(deleter, bucket, [key])[key]
    if found.presence is Presence.UNKNOWN and found.state is not None and 400 <= found.state.status < 500:
        return _listed(deleter, bucket, key), str(found.state)
    return found.presence, str(found.state or "")


def _listed(deleter: Deleter, bucket: str, key: str) -> Presence:
    known = deleter.abilities(bucket)
    if not known.lists(key):
        return Presence.UNKNOWN
    try:
        page = deleter.calls.list_slice(bucket, key, limit=1)
    except (StoreRefused, EnvironmentFault):
        return Presence.UNKNOWN
    first = page.objects[0] if page.objects else None
    if first is not None and first.key == key:
        return Presence.PRESENT if first.exact else Presence.UNKNOWN
    # Of all keys that begin with it, the key itself stands first where listings are in order.
    sure = first is None or known.lists_in_order is Ability.YES
    return Presence.ABSENT if sure else Presence.UNKNOWN
