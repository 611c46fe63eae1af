"""Asking the brokers while it changes who leads.

The client asks the leader, the controller or the coordinator that it knows, dead for long or not, until a
request for metadata makes it look who is the one now. So whoever asks has to make it look, and ask again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from confluent_kafka import KafkaException

from sexton.schemas.errors import KafkaUnavailable, NoSuchTopic
from sexton.schemas.kafka import refusals

__all__ = ["LEAST_S", "ask_who_leads", "countdown"]

_T = TypeVar("_T")
LEAST_S = 0.01
"""The client counts in milliseconds, takes less for none, and with none left may destroy the process's
memory.
"""
_FIRST_S = 1.0
_LOOK_S = 1.0
_PAUSE_S = 0.05


def ask_who_leads(
    ask: Callable[[float], _T], look: Callable[[float], object], left: Callable[[], float]
) -> _T:
    """Return the answer to a question that only the one who leads can answer.

    `ask` and `look`, the request for metadata, are given the seconds that they may take, and raise
    KafkaUnavailable; `left` says how many the caller still has. A first try is short, as the one that is
    asked may be gone, each further one is longer, as it may be slow only; none takes more than a half of what
    is left, so that there is time for another one. Raises what the last one has raised: NoSuchTopic and what
    the brokers refuse at once.
    """
    try_s = _FIRST_S
    while True:
        try:
            return ask(_share(try_s, left()))
        except NoSuchTopic:
            raise
        except KafkaUnavailable as error:
            if _is_refusal(error) or left() <= _PAUSE_S:
                raise
        time.sleep(_PAUSE_S)
        with suppress(KafkaUnavailable):  # the next try finds the same trouble, and tells it
            look(_share(_LOOK_S, left()))
        try_s *= 2


def countdown(timeout_s: float) -> Callable[[], float]:
    """Return what says how many of these seconds, which begin now, are left; negative once they are over."""
    until = time.monotonic() + timeout_s
    return lambda: until - time.monotonic()


def _share(wanted_s: float, left_s: float) -> float:
    return max(min(wanted_s, left_s / 2), LEAST_S)


def _is_refusal(error: KafkaUnavailable) -> bool:
    cause = error.__cause__
    return isinstance(cause, KafkaException) and refusals.final(cause.args[0])
