"""The backlog of the benchmarks: many tenants, some superseded half-way, and the exact set of keys due."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx
from benchmarks.harness import BUCKET, say
from confluent_kafka import Producer

from sexton.issuer.client import IssuerClient
from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.generations import suffix
from sexton.schemas.settings import Settings

__all__ = ["KEYS_PER_INTENT", "Backlog", "Piece", "attach_all", "intent", "key_batch", "write"]

KEYS_PER_INTENT = 100
KEY_BYTES = 84
_SUPERSEDED_OF_100 = 15


@dataclass(frozen=True, slots=True)
class Piece:
    """One intent to be: `due` says whether its keys have to be deleted."""

    number: int
    tenant: int
    generation: int
    due: bool


@dataclass(slots=True)
class Backlog:
    """Intents of 100 keys, mixed over tenants, in two halves.

    Between the halves 15 % of the tenants get a new owner. What their old owner wrote before that is due;
    in the second half about every other one of their intents still comes from the old owner, and is stale.
    Of all subjects (tenant, generation) 13 % are superseded; about 3.75 % of the keys are stale.
    """

    keys: int
    tenants: int = 500
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    generations: dict[int, list[int]] = field(default_factory=dict)

    @property
    def intents(self) -> int:
        """How many intents there are."""
        return self.keys // KEYS_PER_INTENT

    @property
    def due_keys(self) -> int:
        """How many keys have to be deleted."""
        return sum(piece.due for piece in self._pieces(0, self.intents)) * KEYS_PER_INTENT

    @property
    def superseded(self) -> range:
        """The tenants that get a new owner half-way."""
        return range(self.tenants * _SUPERSEDED_OF_100 // 100)

    def produce(self, settings: Settings) -> None:
        """Attach the tenants and write every intent, acknowledged by Kafka."""
        half = self.intents // 2
        with IssuerClient(settings.issuer_url) as issuer:
            self._attach(issuer, "node-a", range(self.tenants))
            write(settings, self._events(self._pieces(0, half)))
            self._attach(issuer, "node-b", self.superseded)
            write(settings, self._events(self._pieces(half, self.intents)))
        say(f"backlog: {self.intents:,} intents with {self.keys:,} keys of {KEY_BYTES} bytes")

    def due(self) -> Iterator[str]:
        """Yield every key that has to be deleted."""
        for piece in self._pieces(0, self.intents):
            if piece.due:
                yield from self._keys(piece)

    def due_by_intent(self) -> dict[str, bool]:
        """Return the id of every intent, with whether its keys have to be deleted."""
        return {self._id(piece): piece.due for piece in self._pieces(0, self.intents)}

    def _attach(self, issuer: IssuerClient, node: str, tenants: range) -> None:
        for tenant in tenants:
            generation = issuer.attach(node, self._name(tenant)).generation
            self.generations.setdefault(tenant, []).append(generation)

    def _pieces(self, start: int, end: int) -> Iterator[Piece]:
        half = self.intents // 2
        for number in range(start, end):
            # Fibonacci hashing: as mixed as real traffic, and the same for who asks again.
            draw, tenant = divmod(number * 0x9E3779B97F4A7C15 % 2**64 >> 32, self.tenants)
            moved = number >= half and tenant in self.superseded
            stale = moved and draw % 2 == 0
            yield Piece(number, tenant, self.generations[tenant][moved and not stale], not stale)

    def _name(self, tenant: int) -> str:
        return f"{self.run_id}-{tenant:04d}"

    def _keys(self, piece: Piece) -> list[str]:
        return key_batch(self._name(piece.tenant), piece.number * KEYS_PER_INTENT, piece.generation)

    def _events(self, pieces: Iterator[Piece]) -> Iterator[events.DeletionIntent]:
        for piece in pieces:
            name = self._name(piece.tenant)
            yield intent(self._id(piece), name, piece.generation, self._keys(piece))

    def _id(self, piece: Piece) -> str:
        return f"{self.run_id}-{piece.number:08x}"


def intent(intent_id: str, tenant: str, generation: int, keys: list[str]) -> events.DeletionIntent:
    """Return an intent guarded by a generation."""
    guards = (events.GenerationGuard(tenant, generation),)
    action = events.DeleteObjects(BUCKET, (keys,))
    return events.DeletionIntent(intent_id, tenant, datetime.now(UTC), "bench", guards, action)


def write(settings: Settings, intents: Iterable[events.DeletionIntent]) -> None:
    """Write intents as the SDK does; return when Kafka has acknowledged all, else raise RuntimeError."""
    codec, topic = Codec(), settings.topic(records.INTENTS)
    properties = {
        "enable.idempotence": True,
        "partitioner": "murmur2",
        "linger.ms": 20,
        "batch.size": 900_000,
    }
    producer = Producer(settings.kafka(**{**properties, "compression.type": "lz4"}))
    for each in intents:
        value = codec.encode(each)
        while True:
            try:
                producer.produce(topic, value, records.key(each), headers=[*records.headers(each)])
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if left := producer.flush(120):
        raise RuntimeError(f"intents not delivered: {left}")


def attach_all(settings: Settings, tenants: list[str]) -> None:
    """Attach tenants, 10,000 in a call: all get generation 1."""
    with httpx.Client(base_url=settings.issuer_url, timeout=60, trust_env=False) as client:
        for start in range(0, len(tenants), 10_000):
            body = {"node": "node-a", "tenants": tenants[start : start + 10_000]}
            client.post("/v1/attach", json=body).raise_for_status()


def key_batch(tenant: str, first: int, generation: int, count: int = KEYS_PER_INTENT) -> list[str]:
    """Return layer keys of a tenant, 84 bytes each for a name of 21: the published engine's form."""
    base = f"tenants/{tenant}/timelines/7e2a0c419b/layer-"
    end = suffix(generation)
    return [f"{base}{number:018x}{end}" for number in itertools.islice(itertools.count(first), count)]
