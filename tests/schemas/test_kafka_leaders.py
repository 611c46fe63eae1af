"""Who leads may have died: what only a leader, a controller or a coordinator can answer is asked again."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sexton.schemas.errors import KafkaUnavailable, NoSuchTopic
from sexton.schemas.kafka import admin
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.kafka.leaders import ask_who_leads, countdown
from sexton.schemas.settings import load

MEMBER = SimpleNamespace(member_id="m", client_id="c", host="h", assignment=None)
QUESTIONS: dict[str, tuple[Any, Callable[[Cluster], object]]] = {
    "describe_consumer_groups": (SimpleNamespace(members=[MEMBER]), lambda it: it.group_members("x")),
    "describe_topics": (SimpleNamespace(topic_id="i", partitions=[]), lambda it: it.topic_id("x")),
}


def failure(code: int, kind: type[KafkaUnavailable] = KafkaUnavailable) -> KafkaUnavailable:
    """Return what is raised for an error of the client's."""
    error = kind("told")
    error.__cause__ = KafkaException(KafkaError(code))
    return error


@pytest.mark.parametrize("question", QUESTIONS)
def test_d_3_one_that_has_died_is_not_asked_for_ever(question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-3: the client asks the coordinator or controller that it knows until it is made to look."""
    looked: list[float] = []
    answer, ask = QUESTIONS[question]

    def described(*_: Any, request_timeout: float) -> dict[str, Future[Any]]:
        future: Future[Any] = Future()
        if looked:
            future.set_result(answer)
        else:
            future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return {"x": future}

    def list_topics(timeout: float) -> None:
        looked.append(timeout)

    asked = {question: described, "list_topics": list_topics}
    monkeypatch.setattr(admin, "AdminClient", lambda _: SimpleNamespace(**asked))
    monkeypatch.setattr(admin, "_FAILOVER_S", 10.0)

    assert ask(Cluster(load({})))
    assert len(looked) == 1


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError.OFFSET_NOT_AVAILABLE])
def test_d_3_there_is_time_for_another_try(code: int) -> None:
    """D-3: one that hangs takes no more than a half of what is left, and the first time not long; a leader
    that has just become one does not know yet where its partition ends.
    """
    tries: list[float] = []

    def ask(left_s: float) -> str:
        tries.append(left_s)
        if len(tries) < 3:
            raise failure(code)
        return "answer"

    assert ask_who_leads(ask, lambda _: None, lambda: 3.0) == "answer"
    assert tries == [1.0, 1.5, 1.5]


def test_d_3_that_nobody_knows_who_leads_is_no_end() -> None:
    """D-3: while one after the other has died it is looked again, until the time is over."""
    looked: list[float] = []

    def ask(_: float) -> None:
        raise failure(KafkaError._TIMED_OUT)

    def look(left_s: float) -> None:
        looked.append(left_s)
        raise KafkaUnavailable("nobody")

    began = time.monotonic()
    with pytest.raises(KafkaUnavailable, match="told"):
        ask_who_leads(ask, look, countdown(0.3))
    assert time.monotonic() - began >= 0.2
    assert looked


@pytest.mark.parametrize(
    "error",
    [failure(KafkaError.UNKNOWN_TOPIC_OR_PART, NoSuchTopic), failure(KafkaError.GROUP_AUTHORIZATION_FAILED)],
    ids=["absent", "refused"],
)
def test_p_13_an_answer_is_not_asked_for_again(error: KafkaUnavailable) -> None:
    """P-13: what the brokers refuse, or do not have, stays so: it is raised at once."""
    tries: list[float] = []

    def ask(left_s: float) -> None:
        tries.append(left_s)
        raise error

    with pytest.raises(type(error), match="told"):
        ask_who_leads(ask, lambda _: None, countdown(30))
    assert len(tries) == 1
