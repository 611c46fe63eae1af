"""Dead letters at Kafka: reading them, finding what proves and what replays them, writing replays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from sexton.consumers.dead_letters import Letter, Place, open_letter
from sexton.consumers.replays import Evidence, Step
from sexton.consumers.topics import Raw, read, read_if_there
from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.errors import InvalidSettings, KafkaUnavailable, SextonError, UndecodableRecord
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.registry import open_codec
from sexton.schemas.settings import Settings

__all__ = ["REPLAY", "NotReplayed", "gather", "read_letters", "write"]

REPLAY = "replay"  # the reason of a deferred copy that was written here
_MESSAGE_BYTES = 2 * 1024 * 1024  # what the deferred topic takes
_LEVEL = 0  # the shortest wait
_Encoded = tuple[str, int | None, bytes | None, bytes, list[tuple[str, "str | bytes | None"]]]
_Delivered = Callable[[KafkaError | None, Message], None]
_SLICE_S = 0.2  # longest single wait inside the C library, so that Ctrl-C is heard


class NotReplayed(SextonError):
    """Kafka has refused a replay for what it is."""


def read_letters(settings: Settings, timeout: float) -> Iterator[Letter]:
    """Yield every dead letter; what stands in the topic and is none is left out (`sexton tail` shows it).

    Raises KafkaUnavailable, TopicMissing, and EnvironmentFault when a schema registry is needed and away.
    """
    codec, deferred = open_codec(settings), settings.topic(records.DEFERRED)
    for record in read(settings, records.DEAD_LETTERS, timeout=timeout):
        try:
            event = codec.decode(record.value, events.DeadLetter)
        except UndecodableRecord:
            continue
        yield open_letter(codec, Place(record.partition, record.offset), event, deferred)


def gather(settings: Settings, letters: Sequence[Letter], timeout: float) -> Evidence:
    """Read `intents` and `deferred` to their ends and return what they say about these letters.

    Raises KafkaUnavailable, TopicMissing for the intents topic, EnvironmentFault.
    """
    cluster = Cluster(settings)
    ids = {
        name: cluster.topic_id(name)
        for name in (settings.topic(records.INTENTS), settings.topic(records.DEFERRED))
    }
    search = _Search.of(open_codec(settings), letters, ids, ids[settings.topic(records.INTENTS)])
    for record in read(settings, records.INTENTS, timeout=timeout):
        search.intent(record)
    for record in read_if_there(settings, records.DEFERRED, timeout):
        search.deferred(record)
    replays = {place: tuple(dict.fromkeys(found)) for place, found in search.replays.items()}
    return Evidence(frozenset(search.standing), replays)


@dataclass(slots=True)
class _Search:
    """Letters by what may name them, and what was found so far."""

    codec: Codec
    by_place: dict[tuple[str, int, int], list[Letter]] = field(default_factory=dict)
    by_first: dict[events.Position, list[Letter]] = field(default_factory=dict)
    by_source: dict[events.ReplayOf, list[Letter]] = field(default_factory=dict)
    standing: set[Place] = field(default_factory=set)
    replays: dict[Place, list[str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, codec: Codec, letters: Sequence[Letter], ids: dict[str, str | None], intents_id: str | None
    ) -> _Search:
        """Return a search; a position in a topic of another id than the present one proves nothing."""
        search = cls(codec)
        for letter in letters:
            search.by_source.setdefault(letter.source, []).append(letter)
            if letter.first is None or letter.first.topic_id != intents_id:
                continue
            search.by_first.setdefault(letter.first, []).append(letter)
            at = letter.event.position
            if ids.get(letter.event.topic) == at.topic_id:
                place = (letter.event.topic, at.partition, at.offset)
                search.by_place.setdefault(place, []).append(letter)
        return search

    def intent(self, record: Raw) -> None:
        """Take in a record of the intents topic."""
        self._proves(record)
        # The header spares decoding; who writes without headers is decoded.
        if record.header("replay-of") is None and record.header("sexton-type") is not None:
            return
        try:
            intent = self.codec.decode(record.value, events.DeletionIntent)
        except UndecodableRecord:
            return  # no link can be read in it; a dead letter will say so
        self._linked(intent)

    def deferred(self, record: Raw) -> None:
        """Take in a record of the deferred topic, which is accepted: only Sexton writes it."""
        self._proves(record)
        try:
            waiting = self.codec.decode(record.value, events.DeferredIntent)
        except UndecodableRecord:
            return
        same = [each for each in self.by_first.get(waiting.first, ()) if each.value == waiting.raw_value]
        self.standing.update(letter.place for letter in same)
        if waiting.reason != REPLAY:
            return
        try:
            intent = self.codec.decode(waiting.raw_value, events.DeletionIntent)
        except UndecodableRecord:
            intent = None
        if intent is not None and intent.replay_of is not None:
            self._linked(intent)
            return
        for letter in same:
            # A raw copy holds no link. One that was written before the letter is what the letter is about.
            if record.timestamp is not None and record.timestamp >= letter.event.dead_at:
                copy = f"{record.topic} {record.partition}/{record.offset}"
                self.replays.setdefault(letter.place, []).append(copy)

    def _proves(self, record: Raw) -> None:
        for letter in self.by_place.get((record.topic, record.partition, record.offset), ()):
            if record.value is not None and record.value == letter.event.raw_value:
                self.standing.add(letter.place)

    def _linked(self, intent: events.DeletionIntent) -> None:
        if intent.replay_of is not None:
            for letter in self.by_source.get(intent.replay_of, ()):
                self.replays.setdefault(letter.place, []).append(intent.intent_id)


def write(settings: Settings, steps: Sequence[Step], timeout: float) -> list[str]:
    """Write the steps' replays, all acknowledged; returns where each stands, as `topic partition/offset`.

    Everything is encoded before anything is sent. Raises KafkaUnavailable when some may not be there after
    `timeout` seconds (replaying again is harmless), NotReplayed when Kafka refuses one, InvalidSettings.
    """
    codec = open_codec(settings)
    encoded = [_encode(codec, settings, step) for step in steps]
    landed: dict[int, str] = {}
    refused: list[KafkaError] = []
    producer, deadline = _producer(settings, timeout), time.monotonic() + timeout + 1.0
    for number, record in enumerate(encoded):

        def delivered(error: KafkaError | None, message: Message, number: int = number) -> None:
            if error is None:
                landed[number] = f"{message.topic()} {message.partition()}/{message.offset()}"
            else:
                refused.append(error)

        try:
            _produce(producer, record, delivered, deadline)
        except KafkaException as error:
            place = steps[number].letter.place
            raise NotReplayed(f"kafka refuses the replay of dead letter {place}: {error}") from error
    try:
        while len(producer) and time.monotonic() < deadline:
            producer.flush(_SLICE_S)
    except KafkaException as error:  # a fatal one: the client sends nothing more
        refused.append(error.args[0])
    if len(landed) < len(steps):
        why = f": {refused[0].str()}" if refused else ""
        raise KafkaUnavailable(
            f"replays acknowledged: {len(landed)} of {len(steps)}{why}", hint="replaying again is harmless"
        )
    return [landed[number] for number in range(len(steps))]


def _produce(producer: Producer, record: _Encoded, delivered: _Delivered, deadline: float) -> None:
    topic, partition, key, value, headers = record
    extra: dict[str, Any] = {} if partition is None else {"partition": partition}
    while True:
        try:
            producer.produce(topic, value, key, headers=headers, on_delivery=delivered, **extra)
            return
        except BufferError as error:
            if time.monotonic() > deadline:
                raise KafkaUnavailable("no room in the send queue", hint="is Kafka slow or away?") from error
            producer.poll(_SLICE_S)


def _encode(codec: Codec, settings: Settings, step: Step) -> _Encoded:
    intents = settings.topic(records.INTENTS)
    delivered: list[tuple[str, str | bytes | None]] = []
    if step.first is None:
        assert step.intent is not None
        delivered += records.headers(step.intent)
        return intents, None, records.key(step.intent), codec.encode(step.intent, intents), delivered
    deferred, topic = _copy(codec, intents, step), settings.topic(records.DEFERRED)
    delivered += records.headers(deferred)
    if step.intent is not None:
        delivered += [each for each in records.headers(step.intent) if each[0] != "sexton-type"]
    return topic, _LEVEL, records.key(deferred), codec.encode(deferred, topic), delivered


def _copy(codec: Codec, intents: str, step: Step) -> events.DeferredIntent:
    letter, first = step.letter, step.first
    assert first is not None
    assert letter.value is not None
    waited, source = letter.waited, letter.event.position
    return events.DeferredIntent(
        first=first,
        first_written_at=waited.first_written_at if waited else letter.event.written_at,
        reason=REPLAY,
        detail=f"of {letter.event.topic} {source.partition}/{source.offset}, dead letter {letter.place}",
        attempt=1,
        retry_at=None,
        raw_key=waited.raw_key if waited else letter.event.raw_key,
        raw_value=letter.value if step.intent is None else codec.encode(step.intent, intents),
        # Keys may have been sent before: the reaper looks before it puts a second marker on a key.
        effect_unknown=True,
        gone=waited.gone if waited else 0,
        passed_as_of=letter.event.passed_as_of,
    )


def _producer(settings: Settings, timeout: float) -> Producer:
    required = {"acks": "all", "enable.idempotence": True, "partitioner": "murmur2"}
    limits = {"message.max.bytes": _MESSAGE_BYTES, "message.timeout.ms": int(timeout * 1000), "log_level": 0}
    try:
        return Producer(settings.kafka(**limits, error_cb=lambda error: None) | required)
    except KafkaException as error:
        raise InvalidSettings(f"SEXTON_KAFKA_EXTRA: the kafka client refuses it: {error}") from error
