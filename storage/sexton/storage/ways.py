"""By which way a bucket's store takes deletes, as its answers have shown: pure rules, and what was learnt."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from enum import StrEnum

from sexton.storage.abilities import Abilities, Ability
from sexton.storage.errors_table import Scope, classify
from sexton.storage.signing import checksum_headers, md5_headers
from sexton.storage.states import BatchResult, KeyState, Kind

__all__ = ["NOT_TAKEN", "Way", "Ways", "is_taken", "is_unsure", "may_be_of_form"]

NOT_TAKEN = (400, 405, 501)
"""Statuses by which stores refuse a call that they do not have, or a header of it."""

_ASK_AGAIN_S = 60.0  # a store that took no way at all is asked again after so long
_OF_FORM = (
    "InvalidArgument",
    "InvalidDigest",
    "InvalidRequest",
    "MalformedPOSTRequest",
    "MethodNotAllowed",
    "MissingContentMD5",
    "NotImplemented",
)


class Way(StrEnum):
    """How keys are deleted: by the thousand with one of two checksums, or each by a call of its own."""

    CRC32 = "DeleteObjects with CRC32"
    MD5 = "DeleteObjects with Content-MD5"
    SINGLE = "DeleteObject"

    def headers(self, body: bytes) -> Mapping[str, str]:
        """Return the integrity headers of a batch."""
        return md5_headers(body) if self is Way.MD5 else checksum_headers(body)


class Ways:
    """What the stores of buckets were seen to take; `clock` counts seconds. Safe for several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shown: dict[str, Way] = {}
        self._asked: dict[str, float] = {}

    def of(self, bucket: str, abilities: Abilities | None = None) -> Way:
        """Return the way for a bucket: as its store has shown, else as a probe found, else the usual one."""
        shown = self._shown.get(bucket)
        if shown is not None:
            return shown
        wants_md5 = abilities is not None and abilities.crc32 is Ability.NO and abilities.md5 is Ability.YES
        return Way.MD5 if wants_md5 else Way.CRC32

    def may_ask(self, bucket: str) -> bool:
        """Return whether to ask which way the store takes: unless it has shown one, or took none just now."""
        asked = self._asked.get(bucket, -math.inf)
        return bucket not in self._shown and self._clock() - asked >= _ASK_AGAIN_S

    def asked_in_vain(self, bucket: str) -> None:
        """Remember that the store took no way at all: for a minute nobody asks again, batch by batch."""
        self._asked[bucket] = self._clock()

    def learn(self, bucket: str, way: Way) -> None:
        """Remember that the bucket's store took deletes in this way."""
        self._shown[bucket] = way


def may_be_of_form(fault: KeyState) -> bool:
    """Return whether a refusal may be about DeleteObjects itself, or about a header of it."""
    if fault.status in (405, 501):
        return True
    known = classify(Scope.REQUEST, fault.code, 0).code == fault.code
    return fault.status == 400 and (fault.code in _OF_FORM or not known)


def is_taken(way: Way, result: BatchResult) -> bool:
    """Return whether a store understood what was sent: it spoke of the keys, and not of the call."""
    if result.fault is not None or way is not Way.SINGLE:
        return result.fault is None
    state = result.state(0)
    if state.kind is Kind.FINAL:
        return not state.code.isdigit() and state.status not in NOT_TAKEN
    return state.kind in (Kind.GONE, Kind.ABSENT, Kind.CHANGED)


def is_unsure(result: BatchResult) -> bool:
    """Return whether something may have been deleted without a word about it."""
    return any(state.effect_unknown for state in result.states.values())
