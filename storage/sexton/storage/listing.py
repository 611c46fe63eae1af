"""Listings for whoever decides by what they do not name: page by page, and each one checked.

A reply that leaves anything open is a fault, never a shorter listing: what a store does not list looks just
like what is not there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from sexton.schemas.errors import SextonError
from sexton.storage.calls import Calls, Listed, Slice
from sexton.storage.errors import NoReply, StoreRefused

__all__ = ["CheckedPage", "ListingFault", "checked", "folders_of", "pages_of"]

_TRIES = 4
_FIRST_WAIT_S = 0.25


class ListingFault(SextonError):
    """The store lists in a way by which nothing may be decided."""

    usual_hint = "nothing was decided; `sexton doctor --bucket BUCKET` says how the store lists"


@dataclass(frozen=True, slots=True)
class CheckedPage:
    """A page that can be relied on; `after` is the key to continue after, None at the end."""

    objects: tuple[Listed, ...]
    after: str | None
    date: datetime


def pages_of(
    calls: Calls,
    bucket: str,
    prefix: str,
    after: str | None = None,
    until: str | None = None,
    pause: Callable[[float], object] = time.sleep,
) -> Iterator[CheckedPage]:
    """Yield the pages of a prefix after a key, up to the key `until` and with it.

    A request that may succeed later is repeated some times, with a `pause`. Raises ListingFault, else what
    the calls raise.
    """
    while True:
        page = _asked(lambda at=after: calls.list_slice(bucket, prefix, at), pause)  # type: ignore[misc]
        found = checked(page, prefix, after)
        if until is not None and found.objects and found.objects[-1].key.encode() >= until.encode():
            kept = tuple(each for each in found.objects if each.key.encode() <= until.encode())
            yield CheckedPage(kept, None, found.date)
            return
        yield found
        after = found.after
        if after is None:
            return


def folders_of(
    calls: Calls, bucket: str, prefix: str, pause: Callable[[float], object] = time.sleep
) -> list[str]:
    """Return the folders right under a prefix, in order; raises what `pages_of` raises."""
    folders: list[str] = []
    token = ""
    while True:
        page = _asked(
            lambda at=token: calls.list_slice(bucket, prefix, delimiter="/", token=at),  # type: ignore[misc]
            pause,
        )
        if page.truncated is None or (page.truncated and not page.token):
            raise ListingFault("the store does not say whether a page of folders is the last")
        for folder in page.folders:
            if not folder.startswith(prefix) or (folders and folder.encode() <= folders[-1].encode()):
                raise ListingFault(f"folders are not listed in their order: {folder[:80]!r}")
            folders.append(folder)
        if not page.truncated:
            return folders
        token = page.token


def checked(page: Slice, prefix: str, after: str | None) -> CheckedPage:
    """Return the page that was asked for after a key; raises ListingFault unless it can be relied on."""
    if page.date is None:
        raise ListingFault("the store gives no Date with a listing")
    if page.truncated is None:
        raise ListingFault("the store does not say whether a page is the last")
    if page.truncated and not page.objects:
        raise ListingFault("a page is empty, and the store says that more follows")
    if page.truncated and not page.token:
        raise ListingFault("a page is not the last, and the store gives no token to continue")
    if page.count not in (-1, len(page.objects)):
        raise ListingFault(f"a page says that it has {page.count} keys, and has {len(page.objects)}")
    last = b"" if after is None else after.encode()
    for entry in page.objects:
        _check_entry(entry, page, prefix)
        key = entry.key.encode()
        if key <= last:
            raise ListingFault(f"keys are not listed in their order, or twice: {entry.key[:80]!r}")
        last = key
    return CheckedPage(page.objects, page.after, page.date)


def _check_entry(entry: Listed, page: Slice, prefix: str) -> None:
    if not entry.exact or (not page.encoded and "%" in entry.key):
        # Encoding was asked for: what is not said to be encoded and looks so may be either.
        raise ListingFault(f"a key is not spelled byte for byte: {entry.key[:80]!r}")
    if not entry.key.startswith(prefix):
        raise ListingFault(f"a key does not begin with the prefix {prefix!r}: {entry.key[:80]!r}")


def _asked(ask: Callable[[], Slice], pause: Callable[[float], object]) -> Slice:
    for attempt in range(1, _TRIES):
        try:
            return ask()
        except NoReply:
            pause(_FIRST_WAIT_S * 2**attempt)
        except StoreRefused as refused:
            if refused.status < 500 and refused.status != 429:
                raise
            pause(_FIRST_WAIT_S * 2**attempt)
    return ask()
