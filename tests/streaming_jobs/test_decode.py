"""Decoding single records: an intent, a dead letter or a counted skip."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import pytest

from sexton.schemas import events
from sexton.schemas.codec import Codec
from sexton.schemas.intents import MAX_INTENT_BYTES
from sexton.streaming_jobs.reaper.decode import Decoded, Record, Rejected, Skipped, decode

NOW = datetime(2026, 1, 2, tzinfo=UTC)
CODEC = Codec()


def encoded(*keys: str) -> bytes:
    """Encode an intent for these keys."""
    return CODEC.encode(
        events.DeletionIntent(
            "id", "t", NOW, "n", (events.PromiseGuard("p"),), events.DeleteObjects("bucket", (keys,))
        )
    )


def record(value: bytes | None) -> Record:
    """Put a value at some position."""
    return Record(0, 1, 0, b"t", value)


def test_f_2_null_is_skipped_and_counted() -> None:
    """F-2: a null value asks for nothing."""
    assert isinstance(decode(CODEC, record(None)), Skipped)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "empty"),
        (b"\0", "unframed"),
        (b"garbage", "unframed"),
        (encoded("a") + b"x", "trailing-bytes"),
        (encoded("a") + encoded("b"), "trailing-bytes"),
        (encoded("a")[:-1], "malformed"),
        (b"\0\0\0\0\x07" + encoded("a")[10:], "no-registry"),
        (b"\xc3\x01" + b"\xff" * 8, "unknown-schema"),
    ],
)
def test_f_4_what_is_not_exactly_one_record_is_rejected(value: bytes, reason: str) -> None:
    """F-2, F-4: empty, truncated, glued and foreign bytes are dead letters with a stable reason."""
    rejected = decode(CODEC, record(value))

    assert isinstance(rejected, Rejected)
    assert (rejected.reason, rejected.record.value) == (reason, value)


@pytest.mark.parametrize("key", ["", "k" * 1025])
def test_key_that_may_not_be_carried_is_rejected_with_its_intent(key: str) -> None:
    """A key that no object can have makes a dead letter that still names the intent."""
    rejected = decode(CODEC, record(encoded(key)))

    assert isinstance(rejected, Rejected)
    assert rejected.reason == "invalid-intent"
    assert rejected.intent is not None
    assert rejected.intent.intent_id == "id"


def test_odd_but_legal_keys_are_decoded_byte_exact() -> None:
    """Nothing normalises, joins, unquotes or trims a key."""
    keys = (
        "a/../b",
        "./b",
        "..",
        "/x",
        "x//y",
        "a%2Fb",
        "t#1",
        "a+b",
        "<&>\"'",
        " a ",
        "\u00e9",
        "e\u0301",
        "\r",
        "a\n",
        "b\x01c",
        "\0",
        "x\uffff",
    )
    decoded = decode(CODEC, record(encoded(*keys)))

    assert isinstance(decoded, Decoded)
    assert isinstance(decoded.intent.action, events.DeleteObjects)
    assert tuple(decoded.intent.action.phases[0]) == keys


@pytest.mark.parametrize(("key", "value"), [(b"t", MAX_INTENT_BYTES), (b"t" * MAX_INTENT_BYTES, 1)])
def test_f_2_what_is_too_large_is_rejected_unread(key: bytes, value: int) -> None:
    """F-2: a few kilobytes on the wire may be megabytes: told with size and checksum, whatever it says."""
    found = decode(CODEC, Record(0, 1, 0, key, bytes(value)))

    assert isinstance(found, Rejected)
    assert found.reason == "too-large"
    assert str(len(key) + value) in found.detail
    assert hashlib.sha256(bytes(value)).hexdigest() in found.detail


def test_the_largest_intent_is_read() -> None:
    """What is just small enough is decoded."""
    names = [f"k{n:07d}" for n in range((MAX_INTENT_BYTES - 200) // 9)]
    value = encoded(*names)

    assert MAX_INTENT_BYTES - 1000 < len(value) < MAX_INTENT_BYTES
    assert isinstance(decode(CODEC, record(value)), Decoded)
