"""A story on an installation that is there: it has to be fresh, and its reaper runs by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

from sexton.consumers import fold, topics
from sexton.deploy.output import say, told_when_slow
from sexton.schemas import events, records
from sexton.schemas.checks import check_bucket
from sexton.schemas.codec import Codec
from sexton.schemas.errors import EnvironmentFault, InvalidEvent, UndecodableRecord, UsageError
from sexton.schemas.settings import Settings
from sexton.storage import ObjectStore, StoreSettings

__all__ = ["await_reaper", "check_fresh", "pending"]

_PATIENCE_S = 600.0
_POLL_S = 0.5


def check_fresh(settings: Settings, bucket: str) -> None:
    """Raise UsageError unless topics and bucket are empty: the story is held to all that is in them.

    Raises it for what is no bucket's name, too, before anybody is asked.
    """
    try:
        check_bucket(bucket)
    except InvalidEvent as invalid:
        raise UsageError(str(invalid), hint=invalid.hint) from invalid
    if next(iter(topics.read(settings, records.INTENTS)), None) is not None:
        raise UsageError(
            f"there are intents already: {settings.topic(records.INTENTS)}",
            hint="the story needs an installation of its own: another SEXTON_TOPIC_PREFIX, a reaper on it",
        )
    if next(iter(ObjectStore(StoreSettings.of(settings)).list_keys(bucket, "")), None) is not None:
        raise UsageError(f"the bucket is not empty: {bucket}")


@contextmanager
def pending(settings: Settings) -> Iterator[Callable[[], int]]:
    """Give what counts the records of `intents` that have neither a final outcome nor a dead letter.

    Each time it reads on from where it was.
    """
    codec = Codec()
    intents: list[events.DeletionIntent] = []
    outcomes: list[events.Outcome] = []
    garbage: set[tuple[int, int]] = set()
    dead: set[tuple[int, int]] = set()
    names = (records.INTENTS, records.OUTCOMES, records.DEAD_LETTERS)
    with ExitStack() as stack:
        asked, said, died = (stack.enter_context(topics.opened(settings, name)) for name in names)

        def count() -> int:
            for raw in topics.read_on(asked):
                try:
                    intents.append(codec.decode(raw.value, events.DeletionIntent))
                except UndecodableRecord:
                    garbage.add((raw.partition, raw.offset))
            outcomes.extend(codec.decode(raw.value, events.Outcome) for raw in topics.read_on(said))
            for raw in topics.read_on(died):
                position = codec.decode(raw.value, events.DeadLetter).position
                dead.add((position.partition, position.offset))
            return fold.count(intents, outcomes).pending + len(garbage - dead)

        yield count


def await_reaper(
    settings: Settings,
    patience_s: float = _PATIENCE_S,
    counting: Callable[[Settings], AbstractContextManager[Callable[[], int]]] = pending,
) -> None:
    """Return once everything in `intents` is processed; raises EnvironmentFault when it is not in time."""
    deadline = time.monotonic() + patience_s
    told = partial(say, "waiting for the reaper that runs on these topics")
    with counting(settings) as count, told_when_slow(told):
        while (waiting := count()) > 0:
            if time.monotonic() > deadline:
                raise EnvironmentFault(
                    f"the reaper has not processed {waiting} of the intents after {patience_s:.0f} s",
                    hint="does it run on these topics? Its log says, and `sexton intents status`",
                )
            time.sleep(_POLL_S)
