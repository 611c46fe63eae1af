"""Redis servers killed, damaged, set back, split in two or unable to serve: they cause waits only."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from tests.support.issuing import Serve, attach, newest
from tests.support.servers import Server

from sexton.deploy.local import Installation
from sexton.issuer.deadline import Deadline
from sexton.issuer.http.problems import problem_of
from sexton.issuer.log.positions import Positions
from sexton.issuer.operations.fence_tenant import FenceTenant
from sexton.issuer.operations.import_ import Import, ImportedTenant
from sexton.issuer.redis.connection import RedisUnavailable
from sexton.issuer.service import Service

pytestmark = pytest.mark.real
BUSY = "local n = 0; while n < tonumber(ARGV[1]) do n = n + 1 end"


Start = Callable[..., Server]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Start]:
    """Start servers of the test's own."""
    started: list[Server] = []

    def start(*options: str) -> Server:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Server(folder, *options))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.client.close()


def again(service: Service, tenant: str) -> int:
    """Attach as soon as Redis lets it."""
    until = time.monotonic() + 15
    while True:
        try:
            return attach(service, "n", tenant)
        except RedisUnavailable:
            assert time.monotonic() < until
            time.sleep(0.05)


def unavailable(*errors: BaseException | None) -> None:
    """Each is what a client sees as 503 with the stable type."""
    for error in errors:
        assert isinstance(error, RedisUnavailable)
        problem = problem_of(error)
        assert (problem.status, problem.type) == (503, "redis-unavailable")


def log_end(service: Service) -> int:
    """The end of the log as Kafka has it now."""
    return Positions(service.settings).read(Deadline.after(20)).log_end


def increment(server: Server) -> Path:
    """The file that the server appends to."""
    return max((server.folder / "appendonlydir").glob("*.incr.aof"))


def cut(server: Server) -> None:
    """The file ends in the middle of a command."""
    file = increment(server)
    file.write_bytes(file.read_bytes()[:-7])


def padded(server: Server) -> None:
    """The file ends in zeros, as a file system may leave it after a power cut."""
    file = increment(server)
    file.write_bytes(file.read_bytes() + bytes(4096))


def wiped(server: Server) -> None:
    """Everything is gone."""
    shutil.rmtree(server.folder / "appendonlydir")


def restored(server: Server) -> None:
    """The files are those of an earlier time."""
    wiped(server)
    shutil.copytree(server.folder / "copy", server.folder / "appendonlydir")


def nothing(_: Server) -> None:
    """The file is as the kill left it."""


@pytest.mark.parametrize("damage", [nothing, cut, padded, wiped, restored])
def test_i_5_killed_and_damaged(
    fresh: Installation, serve: Serve, server: Start, damage: Callable[[Server], None]
) -> None:
    """I-5: whatever a killed Redis comes back with, the next number is above the highest ever issued."""
    own = server("--auto-aof-rewrite-percentage", "0")
    service = serve(own.settings(fresh))
    for number in range(100):
        attach(service, "n", "t")
        if number == 30 and damage is restored:
            shutil.copytree(own.folder / "appendonlydir", own.folder / "copy")
    own.kill()
    damage(own)
    if not own.start():  # refuses its own file: until somebody acts nothing is answered
        with pytest.raises(RedisUnavailable):
            attach(service, "n", "t")
        wiped(own)
        assert own.start()

    assert again(service, "t") == 101
    assert [newest(service, "t", g) for g in (31, 99, 100, 101)] == [False, False, False, True]


@pytest.mark.parametrize("snapshot", [False, True])
def test_i_5_without_an_append_only_file(
    fresh: Installation, serve: Serve, server: Start, snapshot: bool
) -> None:
    """I-5: a Redis without AOF comes back empty, or with an old snapshot, and nothing is issued twice."""
    own = server("--appendonly", "no")
    service = serve(own.settings(fresh))
    for number in range(40):
        attach(service, "n", "t")
        if number == 20 and snapshot:
            own.client.save()
    own.kill()
    assert own.start()

    assert again(service, "t") == 41
    assert not newest(service, "t", 40)


def test_without_redis_no_number_is_used_up(fresh: Installation, serve: Serve, server: Start) -> None:
    """Whatever is asked again and again while Redis is away leaves nothing in the log."""
    own = server()
    service = serve(own.settings(fresh))
    attach(service, "n", "t")
    authority, end = service.authority(), log_end(service)
    own.kill()
    calls: list[Callable[[], object]] = [
        lambda: attach(service, "n", "t"),
        lambda: authority.answer(FenceTenant("t"), Deadline.after(5)),
        lambda: authority.answer(Import([ImportedTenant("i", 7)]), Deadline.after(5)),
    ]
    for call in calls * 2:
        with pytest.raises(RedisUnavailable):
            call()

    assert log_end(service) == end


def test_a_lagging_replica_is_promoted(fresh: Installation, serve: Serve, server: Start) -> None:
    """Issuers on a promoted replica that lags and on the deposed master give each number once."""
    master, replica = server(), server()
    replica.client.replicaof("127.0.0.1", str(master.port))
    first = serve(master.settings(fresh))
    for _ in range(5):
        attach(first, "n", "t")
    until = time.monotonic() + 10
    while replica.client.info("replication")["master_link_status"] != "up":
        assert time.monotonic() < until
        time.sleep(0.02)
    replica.client.replicaof("NO", "ONE")
    for _ in range(5):
        attach(first, "n", "t")
    second = serve(replica.settings(fresh))

    with ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(attach, (first, second)[i % 2], "n", "t") for i in range(60)]
        numbers = sorted(call.result() for call in calls)
    assert numbers == list(range(11, 71))
    assert [newest(s, "t", g) for s in (first, second) for g in (69, 70)] == [False, True] * 2


def test_i_7_scripts_flushed_during_calls(fresh: Installation, serve: Serve, server: Start) -> None:
    """I-7: while scripts are flushed all the time nothing is applied twice."""
    own = server()
    service = serve(own.settings(fresh))

    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(attach, service, "n", "t") for _ in range(60)]
        while not all(call.done() for call in calls):
            own.client.script_flush()
        assert sorted(call.result() for call in calls) == list(range(1, 61))


@pytest.mark.parametrize(
    ("name", "wrong", "right", "said"),
    [
        ("min-replicas-to-write", "3", "0", "NOREPLICAS|[Nn]ot enough"),
        ("maxmemory", "1", "0", "OOM|maxmemory"),
        ("replicaof", "127.0.0.1 1", "no one", "READONLY|read only|MASTERDOWN"),
    ],
)
def test_i_13_a_redis_that_refuses(
    fresh: Installation, serve: Serve, server: Start, name: str, wrong: str, right: str, said: str
) -> None:
    """I-13: NOREPLICAS, OOM and READONLY are environment faults (503), and pass."""
    own = server()
    service = serve(own.settings(fresh))
    attach(service, "n", "t")
    change = [name.upper()] if name == "replicaof" else ["CONFIG", "SET", name]
    own.client.execute_command(*change, *(wrong.split() if name == "replicaof" else [wrong]))

    with pytest.raises(RedisUnavailable, match=said) as refused:
        attach(service, "n", "t", request_id="r")
    end = log_end(service)
    own.client.execute_command(*change, *(right.split() if name == "replicaof" else [right]))

    unavailable(refused.value)
    assert end == 2  # Genesis and one number
    assert again(service, "t") == 2
    assert [newest(service, "t", g) for g in (1, 2)] == [False, True]


def test_i_6_a_redis_too_slow_for_its_clients(fresh: Installation, serve: Serve, server: Start) -> None:
    """I-6: scripts whose answers come after the time-out: one request id never gets two numbers."""
    own = server("--enable-debug-command", "local")
    services = [serve(own.settings(fresh)), serve(own.settings(fresh))]
    attach(services[0], "n", "t")
    other = redis.Redis(port=own.port, socket_timeout=None)
    with ThreadPoolExecutor(5) as pool:
        stuck = pool.submit(
            other.execute_command, "DEBUG", "SLEEP", "2.5"
        )  # nobody is reported BUSY: all wait
        time.sleep(0.1)
        calls = [pool.submit(attach, s, "n", "t", "r", "c") for s in services * 2]
        outcomes = [call.exception() for call in calls]
        stuck.result(30)
    other.close()
    unavailable(*outcomes)
    assert [log_end(s) for s in services] == [2, 2]  # Genesis and one number

    assert {attach(s, "n", "t", "r", "c") for s in services * 2} == {2}
    assert attach(services[1], "n", "t", "r2", "c") == 3
