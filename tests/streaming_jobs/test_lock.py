"""One reaper for each checkpoint: a second one is refused, and one that was paused asks before it
continues.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.chain import Chain
from tests.support.commands import Command
from tests.support.families import send_all
from tests.support.intents import GONE, PROMISE, folded
from tests.support.s3_recorder import Recorded, S3Recorder

from sexton.schemas import events
from sexton.schemas.errors import KafkaUnavailable
from sexton.schemas.kafka.admin import Member
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.reaper.recovery.checkpoint import local_identity
from sexton.streaming_jobs.reaper.recovery.lease import CONFIRMED_S, Clocks, Holder, Lease, LockLost
from sexton.streaming_jobs.reaper.recovery.lock import CheckpointLock, CheckpointLocked

real, spark_ = pytest.mark.real, pytest.mark.spark

NAMES = ["p1", "p2", "p3", "p4"]


class Gate:
    """A store that holds the answer to the first delete back until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, request: Recorded) -> None:
        if request.is_delete_objects and not self.reached.is_set():
            self.reached.set()
            self.opened.wait(600)


@pytest.fixture
def gate(s3: S3Recorder) -> Iterator[Gate]:
    """The recorder with four objects, and a gate before its first answer."""
    s3.create_bucket("bucket", dict.fromkeys(NAMES, b""))
    gate = Gate()
    s3.script(gate)
    yield gate
    gate.opened.set()


def one_by_one(chain: Chain) -> events.DeletionIntent:
    """An intent whose keys go in four requests, one after the other."""
    action = events.DeleteObjects("bucket", tuple((name,) for name in NAMES))
    return chain.intent("t", None, (), guards=PROMISE, action=action)


def sent(s3: S3Recorder) -> list[list[str]]:
    """The keys of each delete so far."""
    return [request.keys for request in s3.deletes()]


@real
@spark_
@pytest.mark.faults
def test_q_2_the_second_of_two_reapers_is_refused_and_the_first_one_stops_when_it_is_replaced(
    chain: Chain, s3: S3Recorder, gate: Gate, start: Callable[..., Command]
) -> None:
    """Q-2, X-20: the second exits with 1 and names the first; that one, its lock gone, sends nothing more."""
    intent = one_by_one(chain)
    chain.emit(intent)
    first = start(SEXTON_S3_ENDPOINT_URL=s3.url, SEXTON_S3_READ_TIMEOUT_S="600")
    first.until(gate.reached.is_set)

    named = f"another reaper runs on this checkpoint: process {socket.gethostname()}/{first.process.pid} "
    with pytest.raises(CheckpointLocked, match=named) as refused:
        chain.reap(s3_endpoint_url=s3.url)

    assert refused.value.exit_code == 1
    assert sent(s3) == []

    # Its driver alone is silent: the workers continue, and have to find it out for themselves.
    first.process.send_signal(signal.SIGSTOP)
    identity = (Path(str(chain.settings.checkpoint)) / "sexton-id").read_text()
    other = CheckpointLock(chain.settings, identity)
    other.acquire()
    try:
        gate.opened.set()
        time.sleep(2)  # it has time to send the rest
        first.process.send_signal(signal.SIGCONT)
        assert first.wait() == 75, first.printed
    finally:
        other.release()
    assert "the lock on the checkpoint is lost" in first.printed
    assert sent(s3) == [["p1"]]
    assert folded(chain, intent) == ["pending"]
    again = CheckpointLock(chain.settings, identity)
    again.acquire()  # released, it is free
    again.release()


@real
@spark_
@pytest.mark.faults
def test_x_20_a_reaper_that_was_paused_until_another_one_has_finished_sends_nothing_more(
    chain: Chain, s3: S3Recorder, gate: Gate, start: Callable[..., Command]
) -> None:
    """X-20: stopped with all its processes past the lock's session, it asks, and ends with 75."""
    intent = one_by_one(chain)
    chain.emit(intent)
    paused = start(SEXTON_S3_ENDPOINT_URL=s3.url, SEXTON_S3_READ_TIMEOUT_S="600")
    paused.until(gate.reached.is_set)
    send_all(paused, signal.SIGSTOP)
    gate.opened.set()

    chain.reap(s3_endpoint_url=s3.url)

    assert folded(chain, intent) == [GONE]
    requests = len(s3.requests)
    send_all(paused, signal.SIGCONT)
    assert paused.wait() == 75, paused.printed
    assert "the lock on the checkpoint is lost" in paused.printed
    assert len(s3.requests) == requests
    assert folded(chain, intent) == [GONE]
    assert chain.dead_letters() == []


@real
@spark_
@pytest.mark.parametrize("asked", [1, 2], ids=["before the barrier", "before the commit"])
@pytest.mark.slow
def test_x_20_a_lock_that_is_lost_ends_the_micro_batch(
    chain: Chain, s3: S3Recorder, monkeypatch: pytest.MonkeyPatch, asked: int
) -> None:
    """X-20: the driver asks before a micro-batch, and again before it commits one: 75, no offset advances."""
    s3.create_bucket("bucket", dict.fromkeys(NAMES, b""))
    chain.emit(one_by_one(chain))
    calls = 0

    def check(self: CheckpointLock) -> None:
        nonlocal calls
        calls += 1
        if calls == asked:
            raise LockLost

    monkeypatch.setattr(CheckpointLock, "check", check)
    with pytest.raises(LockLost) as caught:
        chain.reap(s3_endpoint_url=s3.url)

    assert caught.value.exit_code == 75
    assert len(s3.deletes()) == (0 if asked == 1 else 4)
    assert not list((Path(str(chain.settings.checkpoint)) / "commits").glob("[0-9]*"))


@real
def test_x_20_another_checkpoint_is_another_lock(chain: Chain) -> None:
    """The lock belongs to the checkpoint, not to the topic."""
    first, second = CheckpointLock(chain.settings, "one"), CheckpointLock(chain.settings, "another")
    first.acquire()
    try:
        second.acquire()
        second.check()
        second.release()
        first.check()
    finally:
        first.release()


@real
@pytest.mark.slow
def test_q_2_a_second_reaper_is_refused_before_spark_starts(
    settings: Settings, start: Callable[..., Command]
) -> None:
    """Q-2: it says at once who holds the lock, waits as for a dead one, exits with 1; no JVM starts."""
    folder = Path(str(settings.checkpoint))
    folder.mkdir(parents=True)
    (folder / "sexton-id").write_text("0123456789abcdef" * 2)
    held = CheckpointLock(settings, "0123456789abcdef" * 2)
    held.acquire()
    try:
        second = start()
        assert second.wait() == 1, second.printed
        held.check()
    finally:
        held.release()

    named = f"process {socket.gethostname()}/{os.getpid()} on "
    assert [line["holder"].startswith(named) for line in second.events("locked")] == [True]
    assert f"error: another reaper runs on this checkpoint: {named}" in second.printed
    assert "incubator" not in second.printed  # the first thing that a JVM of Spark's prints


@real
def test_a_lock_that_becomes_free_is_waited_for(settings: Settings) -> None:
    """A holder that ends within the time is no reason to refuse; a stop ends the wait, too."""
    held, asking = CheckpointLock(settings, "one"), CheckpointLock(settings, "one")
    held.acquire()
    reported: list[str] = []
    asking.await_free(reported.append, lambda _: True)
    ending = threading.Timer(1, held.release)
    ending.start()

    asking.await_free(reported.append, threading.Event().wait)

    ending.join()
    assert len(reported) == 2
    asking.await_free(reported.append, lambda _: False, 0)
    assert len(reported) == 2


@pytest.mark.parametrize("form", ["{}", "{}/", "file:{}", "file://{}"])
def test_a_local_checkpoint_is_known_without_spark(tmp_path: Path, form: str) -> None:
    """Its id is read where Spark has written it; half an id, or none, is for Spark to judge."""
    path = form.format(tmp_path)
    assert local_identity(path) is None
    (tmp_path / "sexton-id").write_text("0123456789abcdef")
    assert local_identity(path) is None
    (tmp_path / "sexton-id").write_text("0123456789abcdef" * 2)
    assert local_identity(path) == "0123456789abcdef" * 2
    assert local_identity(f"s3a:/{tmp_path}") is None


class Group:
    """What Kafka says of a group, time that passes only when told, and how often it was asked."""

    def __init__(self) -> None:
        self.now: Clocks = (0.0, 1000.0)
        self.found = [Member("m1", "c", "h", True)]
        self.asked = 0
        self.paused_s = 0.0
        self.lease = Lease(Holder("g", "m1"), self.members, lambda: self.now, lambda s: self.wait(s, s))

    def wait(self, boot: float, wall: float) -> None:
        """Let time pass on both clocks."""
        self.now = (self.now[0] + boot, self.now[1] + wall)

    def members(self, group: str) -> list[Member]:
        """The members, after which the process may be paused once."""
        self.asked += 1
        found = self.found
        self.wait(self.paused_s, self.paused_s)
        self.paused_s = 0.0
        return found


@pytest.mark.parametrize(
    ("boot", "wall", "asked"),
    [
        (CONFIRMED_S - 0.1, CONFIRMED_S - 0.1, 1),
        (CONFIRMED_S + 0.1, CONFIRMED_S + 0.1, 2),
        (0.0, 3600.0, 2),  # the whole machine was stopped, and its clock set right
        (0.0, -3600.0, 2),
    ],
)
def test_the_lock_is_asked_about_after_a_pause_alone(boot: float, wall: float, asked: int) -> None:
    """A confirmation holds for half a session, on two clocks; nobody is asked within it."""
    group = Group()
    for _ in range(1000):
        group.lease.check()
    group.wait(boot, wall)
    group.lease.check()

    assert group.asked == asked


def test_a_lock_that_is_not_confirmed_is_not_held() -> None:
    """Replaced, come back under another id, unknown, or paused between question and answer: never a yes."""
    gone = Group()
    gone.found = [Member("m2", "c", "h", True)]
    with pytest.raises(LockLost):
        gone.lease.check()

    joining = Group()
    joining.found = [Member("m1", "c", "h", False)]
    with pytest.raises(KafkaUnavailable):
        joining.lease.check()
    assert joining.asked > 10

    paused = Group()
    paused.paused_s = CONFIRMED_S + 1
    paused.lease.check()
    assert paused.asked == 2


def test_a_lost_lock_says_why() -> None:
    """In the words that are given, or in its own, and always with where to read on."""
    told, usual = LockLost("the group is gone", hint="look"), LockLost()

    assert (str(told), told.hint) == ("the group is gone", "look")
    assert str(usual) == "the lock on the checkpoint is lost: another reaper may have taken it over"
    assert "The lock is lost" in str(usual.hint)
