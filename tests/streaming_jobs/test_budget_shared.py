"""The budgets in a real server: the script is the pure rule, processes share, the server goes and comes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.backoff import NoBackoff
from redis.retry import Retry

from sexton.deploy.local import ports, valkey
from sexton.streaming_jobs.budget import aimd
from sexton.streaming_jobs.budget.aimd import Lease, State, Throttle, Wait
from sexton.streaming_jobs.budget.board import BoardUnavailable
from sexton.streaming_jobs.budget.pacing import SharedBudget
from sexton.streaming_jobs.budget.shared import RedisBoard, key_of

pytestmark = pytest.mark.real
FIELDS = ("low", "peak", "since", "holds_from", "free_at", "not_before")
INSTANTS = ("since", "holds_from", "free_at", "not_before")
SENDER = """
import json, sys, time
from sexton.schemas.settings import load
from sexton.streaming_jobs.budget import open_budget
budget = open_budget(load({"SEXTON_REDIS_URL": sys.argv[1]}), tasks=2)
until, keys = time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < until:
    wait = budget.take("two", 100)
    if wait:
        time.sleep(min(wait, 0.05))
    else:
        keys += 100
print(json.dumps(keys))
"""


class Server:
    """A Valkey of these tests' own, which may be killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = ports.choose(1)[0]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.client: Any = redis.Redis(port=self.port, socket_timeout=10)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [*valkey.command(self._folder, self.port), "--appendonly", "no"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 10
        while valkey.answers(self.port) is not None:
            assert time.monotonic() < until
            time.sleep(0.01)

    def kill(self) -> None:
        """End it with SIGKILL; what it held is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for this module."""
    started = Server(tmp_path_factory.mktemp("budget"))
    yield started
    started.kill()
    started.client.close()


@pytest.fixture
def board(server: Server) -> Iterator[RedisBoard]:
    """A board on it, emptied."""
    server.client.flushall()
    made = RedisBoard(server.url)
    yield made
    made.close()


def test_the_script_says_what_it_takes_and_returns() -> None:
    """The script starts with a comment that tells its keys, arguments and answer."""
    folder = resources.files("sexton.streaming_jobs.budget") / "lua"
    assert [file.name for file in folder.iterdir()] == ["budget_v1.lua"]

    text = (folder / "budget_v1.lua").read_text("utf-8")

    header = [line for line in text.splitlines() if line.startswith("--")]
    assert all(any(kind in line for line in header) for kind in ("KEYS", "ARGV", "returns"))


DAMAGE = ("", "x", "nan", "7", "inf")
NUMBERS = st.sampled_from((0.0, 0.05, 1.0, 99.0, 3_500.0, 123_456.789, 1e9, 1e12))
STEPS = st.one_of(
    st.tuples(st.just("peek"), st.just(())),
    st.tuples(st.just("lease"), st.tuples(st.integers(1, 5_000), NUMBERS)),
    st.tuples(st.just("throttled"), st.tuples(st.floats(0, 10), NUMBERS, st.floats(-1, 400), NUMBERS)),
    st.tuples(st.just("age"), st.floats(-100.0, 500.0)),
    st.tuples(st.just("plant"), st.tuples(st.sampled_from(FIELDS), st.sampled_from(DAMAGE))),
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=25))
def test_the_script_is_the_pure_rule(board: RedisBoard, server: Server, steps: list[tuple[str, Any]]) -> None:
    """Any calls, passing time and planted damage give the same answers and the same state."""
    key = key_of("b")
    server.client.delete(key)
    for what, given_numbers in steps:
        before = held(server, key)
        if what == "age":
            if before is not None:
                moved = {name: repr(getattr(before, name) - given_numbers) for name in INSTANTS}
                server.client.hset(key, mapping=moved)
        elif what == "plant":
            if before is not None:
                server.client.hset(key, *given_numbers)
        else:
            now, *found = board.run("b", what, *given_numbers)
            state, expected = pure(before, float(now), what, given_numbers)
            assert [found[0], *map(float, found[1:])] == expected
            assert state is None or held(server, key) == state


def raw(server: Server, key: str) -> dict[str, str]:
    """The hash as texts."""
    return {name.decode(): value.decode() for name, value in server.client.hgetall(key).items()}


def held(server: Server, key: str) -> State | None:
    """The state in the server, None when there is none that can be read."""
    texts = raw(server, key)
    try:
        numbers = {name: float(texts[name]) for name in FIELDS}
    except (KeyError, ValueError):
        return None
    return None if any(value != value for value in numbers.values()) else State(**numbers)


def pure(
    state: State | None, now: float, what: str, numbers: tuple[float, ...]
) -> tuple[State | None, list[str | float]]:
    """What the rule makes of one call: the state that is written, None for none, and the answer."""
    if what == "peek":
        return None, ["none"] if state is None else ["rate", aimd.rate(aimd.sane(state, now), now)]
    if what == "throttled":
        after = aimd.throttled(state, now, Throttle(*numbers))
        return after, ["rate", aimd.rate(after, now)]
    keys, known = numbers
    if state is None:
        if known <= 0:
            return None, ["none"]
        state = aimd.seeded(known, now)
    after, answer = aimd.lease(state, now, int(keys))
    if isinstance(answer, Lease):
        return after, ["lease", answer.starts_in, answer.keys, answer.rate]
    return after, ["wait", answer.seconds, answer.spread, answer.rate]


@pytest.mark.parametrize("bucket", ["plain-bucket.1", "", "a{b}c", "}{", "é\n", "x" * 5_000, "\ud800", "a b"])
def test_every_bucket_has_a_key_of_its_own_with_one_hash_tag(board: RedisBoard, bucket: str) -> None:
    """Whatever a bucket is called, its key is short, plain and has one tag; its budget is its own."""
    key = key_of(bucket)
    assert key.isascii()
    assert len(key) < 100
    assert key.count("{") == key.count("}") == 1

    board.throttled(bucket, Throttle(0.05, 5_000.0))

    assert board.peek(bucket) is not None
    assert board.peek(bucket + "x") is None


def test_a_budget_is_forgotten_after_ten_minutes_without_use(board: RedisBoard, server: Server) -> None:
    """Each use sets the time to live; a pause that the store asked for comes on top."""
    board.throttled("b", Throttle(0.05, 5_000.0, retry_after=200.0))
    assert 790_000 < server.client.pttl(key_of("b")) <= 800_000

    board.throttled("c", Throttle(0.05, 5_000.0))
    board.lease("c", 1_000, 0.0)
    assert 590_000 < server.client.pttl(key_of("c")) <= 600_000


@pytest.mark.slow
def test_two_processes_share_one_budget(board: RedisBoard, server: Server) -> None:
    """Two processes that send whatever they may get one rate between them, both their part of it."""
    server.client.hset(key_of("two"), mapping=dict.fromkeys(FIELDS, "0"))
    now = float(board.run("two", "peek")[0]) + 3.0  # both have started by then
    state = {"low": 5_000, "peak": 5_000, "since": now, "holds_from": now, "free_at": now, "not_before": now}
    server.client.hset(key_of("two"), mapping={name: repr(float(v)) for name, v in state.items()})

    command = [sys.executable, "-c", SENDER, server.url, "7"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    counts = [json.loads(process.communicate(timeout=150)[0]) for process in processes]

    assert sum(counts) <= 5_000 * 8
    assert min(counts) >= 0.2 * sum(counts)
    assert sum(counts) >= 5_000 * 2


def sent(budget: SharedBudget, seconds: float) -> int:
    """How many keys one task sends in this time."""
    keys, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        wait = budget.take("b", 500)
        keys += 0 if wait else 500
        time.sleep(min(wait, 0.02))
    return keys


def test_a_server_that_dies_makes_each_task_stricter_and_is_used_again(server: Server) -> None:
    """Killed, it leaves each task to its share; started again, empty, it gets the known rate back."""
    server.client.flushall()
    board = RedisBoard(server.url)
    board.throttled("b", Throttle(0.05, 0.0, known=20_000.0))
    budget = SharedBudget(board, 4, 8)
    assert sent(budget, 1.0) >= 8_000

    server.kill()
    try:
        sent(budget, 0.3)  # what was leased before
        alone = sent(budget, 1.5) / 1.5
        assert 500 <= alone <= 20_000 / 4 * 1.2
    finally:
        server.start()
    assert board.peek("b") is None
    until = time.monotonic() + 15
    while board.peek("b") is None:
        sent(budget, 0.2)
        assert time.monotonic() < until

    assert sent(budget, 1.0) > 1.5 * alone
    assert board.peek("b") == pytest.approx(14_000.0, rel=0.2)
    board.close()


def test_a_server_that_cannot_serve_is_a_server_that_is_away(board: RedisBoard, server: Server) -> None:
    """Out of memory, a planted key of another type, busy with a script: always the one typed error."""
    server.client.set(key_of("planted"), "x")
    with pytest.raises(BoardUnavailable, match="WRONGTYPE"):
        board.peek("planted")

    server.client.config_set("maxmemory", "1")
    try:
        with pytest.raises(BoardUnavailable, match="memory"):
            board.throttled("b", Throttle(0.05, 5_000.0))
    finally:
        server.client.config_set("maxmemory", "0")

    server.client.config_set("busy-reply-threshold", "50")
    endless = redis.Redis(port=server.port, socket_timeout=0.2, retry=Retry(NoBackoff(), 0))
    with pytest.raises(redis.exceptions.RedisError):
        endless.eval("while true do end", 0)
    try:
        with pytest.raises(BoardUnavailable):
            board.peek("b")
        with pytest.raises(BoardUnavailable, match=r"BUSY|[Tt]imeout"):
            board.peek("b")
    finally:
        server.client.script_kill()
        endless.close()
        until = time.monotonic() + 5  # the script notices from time to time
        while valkey.answers(server.port) is not None:
            assert time.monotonic() < until
            time.sleep(0.01)

    begun = time.monotonic()
    with pytest.raises(BoardUnavailable):
        RedisBoard(f"redis://127.0.0.1:{ports.choose(1)[0]}/0").peek("b")
    assert time.monotonic() - begun < 10
    assert board.peek("b") is None
    assert isinstance(board.lease("b", 1_000, 5_000.0), Lease | Wait)
