"""All collectors, one line each."""

from __future__ import annotations

from collections.abc import Mapping

from sexton.streaming_jobs.collectors.leftovers.room import ROOM as LEFTOVERS
from sexton.streaming_jobs.collectors.room import Room
from sexton.streaming_jobs.collectors.sequenced.room import ROOM as SEQUENCED
from sexton.streaming_jobs.collectors.transactions.room import ROOM as TRANSACTIONS

__all__ = ["ROOMS"]

ROOMS: Mapping[str, Room] = {room.name: room for room in (LEFTOVERS, SEQUENCED, TRANSACTIONS)}
