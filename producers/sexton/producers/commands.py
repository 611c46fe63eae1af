"""`sexton intents emit`: intents from a file of JSON lines to Kafka."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import socket
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from sexton.producers._emitter import Emitter, Prepared
from sexton.producers._errors import DeliveryFailed
from sexton.producers._kafka_transport import no_such_topic, where_it_may_be
from sexton.producers._limits import Deadline, Limits
from sexton.producers._receipt import Receipt
from sexton.schemas import records
from sexton.schemas.errors import InvalidEvent, NoSuchTopic, UsageError
from sexton.schemas.events import DeletionIntent
from sexton.schemas.forms import from_json, names_once
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.settings import Settings, load
from sexton.schemas.text import counted, printable

__all__ = ["EXAMPLES", "emit", "read_intents"]

EXAMPLES = """\b
Example of a line (intent_id, emitted_at and emitter may be left out):
  {"tenant": "t1",
   "guards": [{"GenerationGuard": {"tenant": "t1", "generation": 8}}],
   "action": {"DeleteObjects": {"bucket": "b", "phases": [["k1-00000008"]]}}}

\b
Examples:
  sexton intents emit --file intents.jsonl
  generate | sexton intents emit --file -
"""

_REACH_S = 10.0  # for brokers to answer at all


class Format(StrEnum):
    """How the ids are printed."""

    TEXT = "text"
    JSON = "json"


def emit(
    file: Annotated[
        Path, typer.Option(help="JSON lines in the schema's field names; - reads stdin", show_default=False)
    ],
    format: Annotated[Format, typer.Option(help="ids, or one JSON object with the position")] = Format.TEXT,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="seconds until all must be acknowledged by Kafka")
    ] = 60.0,
    any_key: Annotated[
        bool, typer.Option("--any-key", help="also keys that are URIs or begin with a slash")
    ] = False,
) -> None:
    """Emit intents and print the id of each that Kafka has acknowledged, one a line, in the file's order.

    Every line is checked before anything is sent: if one is wrong, nothing is emitted and the line is named.
    The caller vouches for the guards, as the SDK does for a service: emit only what no index names any more.
    """
    settings, results = load(), _Results(format)
    emitter = Emitter.open(settings, Limits(delivery_timeout=timeout), any_key=any_key)
    deadline = Deadline(timeout)
    try:
        prepared = _read(file, emitter)
        _find_topic(settings, min(timeout, _REACH_S))
        deadline = Deadline(timeout)  # whoever writes the file may take longer than Kafka
        # A receipt for each line: two lines may hold the same intent id.
        receipts = [emitter.send([one], deadline.left()) for one in prepared]
        known = itertools.takewhile(lambda receipt: results.take(receipt, deadline.left()), receipts)
        left = receipts[sum(1 for _ in known) :]
    finally:
        emitter.close(max(1.0, deadline.left()))
    for receipt in left:
        results.take(receipt, 0.0)  # closing has settled them all
    results.end(len(prepared))


def read_intents(lines: Iterator[bytes] | BinaryIO, emitter: str) -> Iterator[tuple[int, DeletionIntent]]:
    """Yield each line's number and intent; empty lines are skipped.

    Raises InvalidEvent that names the line: not UTF-8, not JSON, a name twice, an unknown or missing field, a
    value of another type, an id that another line has given to another intent. Values are not checked here.
    """
    lines_of: dict[str, tuple[int, bytes]] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            defaults = {
                "intent_id": str(uuid.uuid4()),
                "emitted_at": datetime.now(UTC),
                "emitter": emitter,
            }
            with _named(number):
                plain = _parse(line)
                intent = from_json(DeletionIntent, plain, defaults=defaults)
                _check_id(plain, number, lines_of)
            yield number, intent


def _check_id(plain: Any, number: int, lines_of: dict[str, tuple[int, bytes]]) -> None:
    """Raise InvalidEvent if another line has the id with other content: readers would fold both into one."""
    intent_id = plain.get("intent_id")
    if isinstance(intent_id, str):
        content = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).digest()
        first, same = lines_of.setdefault(intent_id, (number, content))
        if same != content:
            raise InvalidEvent(
                f"line {first} has another intent under this id: {intent_id}",
                hint="an id names one intent; without one, each line gets its own",
            )


@contextmanager
def _named(number: int) -> Iterator[None]:
    """Put the line's number before whatever is wrong with it."""
    try:
        yield
    except InvalidEvent as error:
        raise InvalidEvent(f"line {number}: {error}", hint=error.hint) from error


def _read(file: Path, emitter: Emitter) -> list[Prepared]:
    name = f"{os.environ.get('USER', 'console')}@{socket.gethostname()}"
    prepared: list[Prepared] = []
    try:
        with sys.stdin.buffer if str(file) == "-" else file.open("rb") as lines:
            for number, intent in read_intents(lines, name):
                with _named(number):
                    prepared += emitter.prepare([intent])
    except OSError as error:
        raise UsageError(f"the file cannot be read: {error}") from error
    return prepared


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"), object_pairs_hook=names_once, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InvalidEvent(f"not JSON in UTF-8: {error}") from error


def _refuse(constant: str) -> None:
    raise InvalidEvent(f"not a number of JSON: {constant}")


def _find_topic(settings: Settings, timeout: float) -> None:
    """Raise NoSuchTopic, or KafkaUnavailable, before anything is sent that would only wait for it."""
    topic = settings.topic(records.INTENTS)
    if topic not in Cluster(settings).refresh(timeout).topics:
        raise NoSuchTopic(no_such_topic(topic), hint=where_it_may_be(topic))


class _Results:
    """Prints ids that are acknowledged, in the order of the calls, and keeps the failures for the end."""

    def __init__(self, format: Format) -> None:
        self._format = format
        self._failed: dict[str, DeliveryFailed] = {}
        self._acknowledged = 0

    def take(self, receipt: Receipt, timeout: float) -> bool:
        """Wait for the intent of a receipt; False if nothing is known of it in time."""
        ((intent_id, future),) = receipt.futures.items()
        try:
            where = future.result(timeout)
        except DeliveryFailed as error:
            self._failed.setdefault(intent_id, error)
        except FutureTimeout:
            return False
        else:
            self._acknowledged += 1
            position = {"intent_id": intent_id, "partition": where.partition, "offset": where.offset}
            print(json.dumps(position) if self._format is Format.JSON else printable(intent_id))
        return True

    def end(self, asked: int) -> None:
        """Tell how many are acknowledged; raises DeliveryFailed, with the first failure, if some are not."""
        if not self._failed:
            print(f"{self._acknowledged} of {counted(asked, 'intent')} acknowledged", file=sys.stderr)
            return
        first = next(iter(self._failed.values()))
        missing = f"{asked - self._acknowledged} of {asked}"
        message = f"intents not acknowledged: {missing}: {first}"
        raise DeliveryFailed(message, tuple(self._failed), hint=first.hint)
