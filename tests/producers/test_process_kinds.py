"""P-2: the ways in which services make processes: multiprocessing, pre-forking queues, daemons, uvloop."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.services import Arrived, keys, service
from tests.support.waits import until

from sexton.producers import UsageError
from sexton.producers.testing import FakeAsyncSexton, FakeSexton

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver"])
def test_p_2_processes_of_multiprocessing_have_connections_of_their_own(
    way: str, kafka: str, arrived: Arrived, tmp_path: Path
) -> None:
    """P-2: also while the parent has one that has emitted; a forked child may use that one, too."""
    body = """
    import multiprocessing

    def work(n, inherited):
        if inherited is not None:
            inherited.promise_delete("bucket", [f"inherited-{n}"], operation="o").wait(10)
        with connect() as own:
            own.attach(f"t{n}").delete("bucket", [f"own-{n}"]).wait(10)

    if __name__ == "__main__":
        sexton = connect()
        sexton.attach("t").delete("bucket", ["parent"]).wait(10)
        context = multiprocessing.get_context("WAY")
        arguments = [(n, sexton if "WAY" == "fork" else None) for n in range(3)]
        children = [context.Process(target=work, args=each) for each in arguments]
        for child in children: child.start()
        for child in children:
            child.join(30)
            assert child.exitcode == 0, child.exitcode
        sexton.attach("t").delete("bucket", ["after"]).wait(10)
        closes(sexton)
    """
    service(kafka, body.replace("WAY", way), file=tmp_path / "program.py")
    inherited = [f"inherited-{n}" for n in range(3)] if way == "fork" else []
    assert keys(arrived) == sorted(["parent", "after", *inherited, *(f"own-{n}" for n in range(3))])


@pytest.mark.parametrize("send", [pickle.dumps, copy.deepcopy])
@pytest.mark.parametrize("what", ["connection", "handle", "receipt", "asyncio"])
def test_p_2_a_connection_is_not_sent_to_another_process(send: Callable[[Any], Any], what: str) -> None:
    """P-2: as an argument of a spawned process, or in a task's message: a typed error says what to do."""
    sexton = FakeSexton("n")
    tenant = sexton.attach("t")
    sent = {
        "connection": sexton,
        "handle": tenant,
        "receipt": tenant.delete("bucket", ["a"]),
        "asyncio": FakeAsyncSexton("n"),
    }[what]
    with pytest.raises(UsageError, match="belongs to one process") as told:
        send(sent)
    assert "connect in each process" in (told.value.hint or "")


@pytest.mark.parametrize("fork", ["os.fork", "fork"])
@pytest.mark.parametrize("ends", ["os._exit(0)", "sys.exit(0)", "os.kill(os.getpid(), 9)"])
def test_p_2_a_pool_that_forks_after_import_and_connects_in_its_children(
    fork: str, ends: str, kafka: str, arrived: Arrived
) -> None:
    """P-2: as Celery's pool does: children are replaced after some tasks, however they end."""
    body = """
    sexton = connect()  # at import, in the master
    def child(n):
        def run():
            own = connect()  # once a worker's process is there
            handle = own.attach(f"t{n}")
            for task in range(3):
                handle.delete("bucket", [f"{n}-{task}"]).wait(10)
                sexton.promise_delete("bucket", [f"{n}-{task}-promise"], operation="o").wait(10)
            ENDS
        return run
    for n in range(4):
        child_id = in_child(child(n), FORK)
        os.waitpid(child_id, 0)
    closes(sexton)
    """
    said = service(kafka, body.replace("FORK", fork).replace("ENDS", ends))
    expected = sorted(f"{n}-{task}{what}" for n in range(4) for task in range(3) for what in ("", "-promise"))
    until(lambda: keys(arrived) == expected, 20, told=lambda: f"{keys(arrived)} arrived; {said}")


def test_p_2_forks_in_the_middle_of_other_threads_calls(kafka: str, arrived: Arrived) -> None:
    """P-2: whatever these have locked at that moment, each child emits, and the parent loses nothing."""
    body = """
    sexton = connect(queue_messages=50)
    stop, emitted = threading.Event(), []
    def emit(n):
        handle = sexton.attach(f"t{n}")
        for i in range(400):
            if stop.is_set(): break
            emitted.append(handle.delete("bucket", [f"parent-{n}-{i}"]))
            time.sleep(0.001)
    threads = [threading.Thread(target=emit, args=(n,)) for n in range(3)]
    for thread in threads: thread.start()
    def child(n):
        def run():
            sexton.promise_delete("bucket", [f"child-{n}"], operation="o").wait(15)
            closes(sexton)
        return run
    time.sleep(0.05)
    children = []
    for n in range(8):
        children.append(in_child(child(n), os.fork))
        time.sleep(0.01)
    for each in children: ended_well(each)
    stop.set()
    for thread in threads: thread.join(20)
    for receipt in emitted: receipt.wait(15)
    print(len(emitted))
    closes(sexton)
    """
    emitted = int(service(kafka, body))
    found = keys(arrived)
    assert [key for key in found if key.startswith("child")] == [f"child-{n}" for n in range(8)]
    assert len(found) == len(set(found)) == emitted + 8


@pytest.mark.parametrize("emits", [False, True], ids=["connected", "emitted"])
def test_p_2_a_daemon_that_forks_twice_and_closes_all_files(
    emits: bool, kafka: str, arrived: Arrived, tmp_path: Path
) -> None:
    """P-2: the connection of the program that was started is good in the daemon, without its sockets."""
    body = """
    sexton = connect()
    if EMITS:
        sexton.attach("t").delete("bucket", ["before"]).wait(10)
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        with os.fdopen(reading) as said:
            assert said.read() == "well", "the daemon has failed"
        closes(sexton)
        sys.exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    for each in map(int, os.listdir("/proc/self/fd")):
        if each > 2 and each != writing:
            try: os.close(each)
            except OSError: pass
    receipt = sexton.attach("d").delete("bucket", ["daemon"])
    receipt.wait(10)
    closes(sexton)
    os.write(writing, b"well")
    os._exit(0)
    """
    service(kafka, body.replace("EMITS", str(emits)))
    assert keys(arrived) == sorted(["daemon", *(["before"] if emits else [])])


def test_p_2_asyncio_under_uvloop(kafka: str, arrived: Arrived) -> None:
    """P-2: another loop than asyncio's own, with many handles at once."""
    body = """
    import asyncio, uvloop
    async def put():
        await asyncio.sleep(0.01)
    async def main():
        sexton = AsyncSexton.connect("n", issuer=FakeIssuer(), kafka_bootstrap_servers=BROKER)
        async with sexton:
            async def one(n):
                tenant = await sexton.attach(f"t{n}")
                await (await tenant.replace_index(put, [f"k{n}"], bucket="bucket"))
                await (await tenant.delete("bucket", [f"l{n}"])).wait(10)
            await asyncio.gather(*(one(n) for n in range(20)))
    uvloop.run(main())
    """
    service(kafka, body)
    assert keys(arrived) == sorted([f"k{n}" for n in range(20)] + [f"l{n}" for n in range(20)])
