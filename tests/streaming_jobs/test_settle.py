"""What a dead letter says of the keys that failed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sexton.schemas import events
from sexton.schemas.checks import MAX_INTENT_BYTES
from sexton.schemas.codec import Codec
from sexton.schemas.events import OutcomeWord
from sexton.streaming_jobs.reaper.decode import Decoded, Record, Rejected
from sexton.streaming_jobs.reaper.fates import Fate
from sexton.streaming_jobs.reaper.results import Result
from sexton.streaming_jobs.reaper.settle import Settler

DENIED = ("a", Fate(OutcomeWord.DEAD_LETTERED, "AccessDenied", "no right"))
UNSENT = [(key, Fate(OutcomeWord.DEAD_LETTERED, "earlier-phase", "a is not gone")) for key in ("x", "y", "z")]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("unsent", [0, 1, 3])
def test_a_dead_letter_tells_the_cause_however_many_keys_were_never_sent(unsent: int) -> None:
    """Keys of later phases are named, under the reason of the key that stood in their way."""
    action = events.DeleteObjects("bucket", [["a"], ["x", "y", "z"]])
    intent = events.DeletionIntent("i", "t", NOW, "e", (events.PromiseGuard("op"),), action)
    codec = Codec()
    settler = Settler(codec, "sexton.", "id", "", (5.0,), NOW)

    row = settler.dead_letter(
        Decoded(Record(0, 0, 0, b"t", codec.encode(intent)), intent),
        Result(named=[*UNSENT[:unsent], DENIED]),
    )

    assert row is not None
    letter = codec.decode(row.value, events.DeadLetter)
    assert (letter.reason, letter.detail) == ("AccessDenied", "no right")
    assert set(letter.keys) == {"a", *(key for key, _ in UNSENT[:unsent])}


@pytest.mark.parametrize("size", [100, 2 * MAX_INTENT_BYTES + 1])
def test_f_2_a_dead_letter_of_what_is_far_too_large_can_be_written(size: int) -> None:
    """F-2: the raw bytes are kept whole as long as they fit into the topic, else their beginning."""
    codec = Codec()
    settler = Settler(codec, "sexton.", "id", "", (5.0,), NOW)
    row = settler.rejected(Rejected(Record(0, 7, 0, b"", bytes(size)), "too-large", "told"))
    letter = codec.decode(row.value, events.DeadLetter)

    assert letter.raw_value is not None
    assert len(row.value) < 4 * 1024 * 1024
    assert len(letter.raw_value) == min(size, 256 * 1024)
    assert (letter.position.offset, letter.detail) == (7, "told")
