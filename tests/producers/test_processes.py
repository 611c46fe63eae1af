"""P-2: the SDK where threads are greenlets, where a server forks in C, and at the end of a process.

Each service is a process of its own against a broker; it ends in time, or the test kills it and fails.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest

from sexton.schemas.events import DeletionIntent

Arrived = Callable[[], list[DeletionIntent]]
pytestmark = pytest.mark.faults

NOBODY = "127.0.0.1:1"
GREEN = {
    "gevent": "from gevent import monkey; monkey.patch_all()",
    "eventlet": (
        "import warnings; warnings.simplefilter('ignore'); import eventlet; eventlet.monkey_patch()"
    ),
}
SERVICE = """
import ctypes, os, sys, threading, time
from sexton.producers import *
from sexton.producers.testing import FakeIssuer
BROKER = sys.argv[1]
NOBODY = "127.0.0.1:1"

def connect(broker=BROKER, **limits):
    return Sexton.connect("n", issuer=FakeIssuer(), limits=Limits(**limits), kafka_bootstrap_servers=broker)

def fork():
    "Fork as a server in C does: Python's hooks do not run."
    return ctypes.PyDLL(None).fork()

def in_child(work, fork=fork):
    "Do work in a child that must end well in 20 s."
    child = fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child

def ended_well(child):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0, status
            return
        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")

def closes(sexton, undelivered=0):
    began = time.monotonic()
    left = sexton.close(3)
    assert time.monotonic() - began < 3.5, time.monotonic() - began
    assert len(left) == undelivered, left
"""


def service(broker: str, body: str, *, first: str = "", timeout: float = 60) -> str:
    """Run a service to its end and return what it has said; fails if it does not end well."""
    code = first + SERVICE + textwrap.dedent(body)
    run = [sys.executable, "-X", "faulthandler", "-c", code, broker]
    done = subprocess.run(run, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def keys(arrived: Arrived) -> list[str]:
    """Return the keys of all intents in the topic, sorted."""
    found = [phase for intent in arrived() for phase in intent.action.phases]  # type: ignore[union-attr]
    return sorted(key for phase in found for key in phase)


@pytest.mark.parametrize("kind", GREEN)
def test_p_2_greenlets_emit_and_hear_of_it(kind: str, kafka: str, arrived: Arrived) -> None:
    """P-2: attach, replace, delete, receipts, futures, flush, close; other greenlets run all the while."""
    body = """
    gap = [0.0]
    def tick():
        last = time.monotonic()
        while True:
            time.sleep(0.001)
            now = time.monotonic()
            gap[0], last = max(gap[0], now - last), now
    threading.Thread(target=tick, daemon=True).start()
    sexton = connect(queue_messages=20)
    tenant = sexton.attach("t")
    time.sleep(0.1)
    gap[0] = 0.0
    for i in range(3):
        tenant.replace_index(lambda: time.sleep(0.01), [f"a{i}"], bucket="bucket").wait(10)
    called = []
    receipt = tenant.delete("bucket", ["b"])
    (future,) = receipt.futures.values()
    future.add_done_callback(lambda it: (time.sleep(0.01), called.append(it.result())))
    assert future.result(10).offset >= 0
    def many(n):
        handle = sexton.attach(f"t{n}")
        for receipt in [handle.delete("bucket", [f"c{n}-{i}"]) for i in range(40)]:
            receipt.wait(10)
    workers = [threading.Thread(target=many, args=(n,)) for n in range(3)]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
    assert sexton.flush(3) == 0
    assert len(called) == 1
    assert sexton.statistics() == Statistics(124, 124, 0, 0)
    closes(sexton)
    assert gap[0] < 0.5, gap
    """
    service(kafka, body, first=GREEN[kind])
    assert len(keys(arrived)) == 124


@pytest.mark.parametrize("kind", GREEN)
def test_p_2_greenlets_close_in_time_without_a_broker(kind: str) -> None:
    """P-2: waits, a full queue and close end in time, and block no other greenlet."""
    body = """
    gap = [0.0]
    def tick():
        last = time.monotonic()
        while True:
            time.sleep(0.001)
            now = time.monotonic()
            gap[0], last = max(gap[0], now - last), now
    sexton = connect(NOBODY, queue_messages=2, call_timeout=0.3)
    tenant = sexton.attach("t")
    receipt = tenant.delete("bucket", ["a"])
    tenant.delete("bucket", ["b"])
    threading.Thread(target=tick, daemon=True).start()
    for call, error in ((lambda: receipt.wait(0.3), DeliveryPending),
                        (lambda: tenant.delete("bucket", ["c"]), QueueFull)):
        began = time.monotonic()
        try:
            call()
        except error:
            assert time.monotonic() - began < 2
        else:
            raise AssertionError(error)
    assert sexton.flush(0.3) == 2
    closes(sexton, 3)
    assert gap[0] < 0.3, gap
    """
    service(NOBODY, body.replace("closes(sexton, 3)", "closes(sexton, 2)"), first=GREEN[kind])


def test_p_2_a_greenlets_callback_may_switch_and_emit(kafka: str, arrived: Arrived) -> None:
    """P-2: what the client reports is told outside of it, so that a callback may do what it likes."""
    body = """
    sexton = connect(queue_messages=3)
    tenants = [sexton.attach(f"t{n}") for n in range(3)]
    left = []
    def again(n, i):
        def told(future):
            time.sleep(0.003)
            if i < 20:
                emit(n, i + 1)
            else:
                left.append(n)
        return told
    def emit(n, i):
        (future,) = tenants[n].delete("bucket", [f"{n}-{i}"]).futures.values()
        future.add_done_callback(again(n, i))
    for n in range(3):
        emit(n, 1)
    end = time.monotonic() + 20
    while len(left) < 3 and time.monotonic() < end:
        time.sleep(0.01)
        sexton.flush(0.001)
    closes(sexton)
    """
    service(kafka, body, first=GREEN["gevent"])
    assert len(keys(arrived)) == 60


@pytest.mark.parametrize("fork", ["fork", "os.fork"])
@pytest.mark.parametrize("kind", GREEN)
def test_p_2_a_worker_that_patches_after_the_fork(kind: str, fork: str, kafka: str, arrived: Arrived) -> None:
    """P-2: a server that loads the service, forks, and then makes threads greenlets, as gunicorn does."""
    body = """
    sexton = connect()
    tenant = sexton.attach("t")
    def work():
        PATCH
        def emit(n):
            tenant.replace_index(lambda: time.sleep(0.05), [f"k{n}"], bucket="bucket").wait(10)
        workers = [threading.Thread(target=emit, args=(n,)) for n in range(5)]
        for worker in workers: worker.start()
        for worker in workers: worker.join(20)
        assert sexton.statistics() == Statistics(5, 5, 0, 0)
        closers = [threading.Thread(target=sexton.close, args=(3,)) for _ in range(3)]
        for closer in closers: closer.start()
        for closer in closers: closer.join(5)
        closes(sexton)
    ended_well(in_child(work, FORK))
    tenant.delete("bucket", ["master"]).wait(10)
    closes(sexton)
    """
    service(kafka, body.replace("PATCH", GREEN[kind]).replace("FORK", fork))
    assert keys(arrived) == ["k0", "k1", "k2", "k3", "k4", "master"]


def test_p_2_threads_that_become_greenlets_after_connect_are_told(kafka: str) -> None:
    """P-2: a typed error at the next call, and close is in time."""
    body = """
    sexton = connect()
    tenant = sexton.attach("t")
    tenant.delete("bucket", ["a"]).wait(10)
    import warnings; warnings.simplefilter("ignore")
    from gevent import monkey; monkey.patch_all()
    try:
        tenant.delete("bucket", ["b"])
    except UsageError as error:
        assert "after connect" in str(error) and "first" in error.hint
    else:
        raise AssertionError("no error")
    closes(sexton)
    """
    service(kafka, body)


@pytest.mark.parametrize("kind", ["", *GREEN])
@pytest.mark.parametrize("hooks", [False, True])
def test_p_2_workers_emit_through_what_their_master_connected(
    kind: str, hooks: bool, kafka: str, arrived: Arrived
) -> None:
    """P-2: connect, attach and emit before the fork; each of three workers has a client of its own."""
    body = """
    sexton = connect(linger=0.3)
    tenant = sexton.attach("t")
    pending = tenant.delete("bucket", ["master"])  # still lingers at the fork
    def work(n):
        def run():
            assert sexton.statistics() == Statistics(0, 0, 0, 0)
            receipt = sexton.attach(f"t{n}").replace_index(lambda: None, [f"worker-{n}"], bucket="bucket")
            receipt.wait(10)
            assert not {*receipt.intent_ids} & {*pending.intent_ids}
            tenant.delete("bucket", [f"old-handle-{n}"])
            began = time.monotonic()
            try:
                pending.wait(10)
            except DeliveryPending as error:
                assert error.intent_ids == pending.intent_ids
                assert time.monotonic() - began < 5
            else:
                raise AssertionError("the parent's intents are the parent's")
            closes(sexton)
        return run
    for child in [in_child(work(n), FORK) for n in range(3)]:
        ended_well(child)
    pending.wait(10)
    tenant.delete("bucket", ["master-after"]).wait(10)
    closes(sexton)
    """
    service(kafka, body.replace("FORK", "os.fork" if hooks else "fork"), first=GREEN.get(kind, ""))
    per_worker = [f"{what}-{n}" for what in ("worker", "old-handle") for n in range(3)]
    assert keys(arrived) == sorted(["master", "master-after", *per_worker])


@pytest.mark.parametrize("fork", ["ctypes.PyDLL(None).fork", "os.fork"])
def test_p_2_close_is_in_time_on_both_sides_of_a_fork(fork: str) -> None:
    """P-2: without a broker, closed in the child, in the parent, by a child's child, and without a call.

    A master that is forked in C has emitted nothing before: a thread that holds the interpreter at that
    moment leaves a child that never runs, whatever a library in it does.
    """
    body = """
    sexton = connect(NOBODY)
    tenant = sexton.attach("t")
    if "os." in "FORK":
        tenant.delete("bucket", ["parent"])
    def grandchild():
        tenant.delete("bucket", ["grandchild"])
        closes(sexton, 1)
    def child():
        tenant.delete("bucket", ["child"])
        ended_well(in_child(grandchild, os.fork))
        closes(sexton, 1)
    def nothing_called_before():
        ended_well(in_child(grandchild, FORK))
    def only_closes():
        closes(sexton, 0)
        try:
            tenant.delete("bucket", ["x"])
        except ConnectionClosed:
            pass
    for work in (child, nothing_called_before, only_closes, lambda: None):
        ended_well(in_child(work, FORK))
    closes(sexton, int("os." in "FORK"))
    """
    service(NOBODY, body.replace("FORK", fork))


def test_p_2_a_connection_that_has_emitted_nothing_runs_no_thread(kafka: str) -> None:
    """P-2: so that a server may fork in C right after it has connected; `close` needs none either."""
    service(kafka, "sexton = connect()\nassert threading.active_count() == 1\ncloses(sexton)")


@pytest.mark.parametrize("fork", ["fork", "os.fork"])
def test_p_2_a_child_of_an_index_put_emits_nothing(fork: str, kafka: str, arrived: Arrived) -> None:
    """P-2: a PUT that forks returns twice: only the parent, whose PUT it is, emits."""
    body = """
    sexton = connect()
    tenant = sexton.attach("t")
    here, child = os.getpid(), None
    def put():
        global child
        child = FORK()
    try:
        tenant.replace_index(put, ["a"], bucket="bucket").wait(10)
    except IndexFateUnknown:
        os._exit(0 if os.getpid() != here else 1)
    if os.getpid() != here:
        os._exit(2)
    ended_well(child)
    closes(sexton)
    """
    service(kafka, body.replace("FORK", fork))
    assert keys(arrived) == ["a"]


def test_p_2_a_connection_that_is_made_in_a_child(kafka: str, arrived: Arrived) -> None:
    """P-2: forked before anything was connected, and with a closed connection of the parent."""
    body = """
    def work(n):
        def run():
            with connect() as own:
                own.attach("t").delete("bucket", [f"child-{n}"]).wait(10)
        return run
    ended_well(in_child(work(1)))
    with connect() as sexton:
        ended_well(in_child(work(2)))
    ended_well(in_child(work(3)))
    """
    service(kafka, body)
    assert keys(arrived) == ["child-1", "child-2", "child-3"]


def test_p_2_an_asyncio_worker_of_a_forking_server(kafka: str, arrived: Arrived) -> None:
    """P-2: connected before the fork, used by a loop in each worker."""
    body = """
    import asyncio
    sexton = AsyncSexton.connect("n", issuer=FakeIssuer(), kafka_bootstrap_servers=BROKER)
    async def serve(n):
        await (await sexton.promise_delete("bucket", [f"{n}"], operation="o"))
        own = await sexton.attach(f"t{n}")
        async def put():
            await asyncio.sleep(0.01)
        await (await own.replace_index(put, [f"own-{n}"], bucket="bucket"))
        assert await sexton.close(3) == ()
    children = [in_child(lambda n=n: asyncio.run(serve(n)), f) for n, f in enumerate([os.fork] * 3)]
    for child in children:
        ended_well(child)
    assert asyncio.run(sexton.close(3)) == ()
    """
    service(kafka, body)
    assert keys(arrived) == ["0", "1", "2", "own-0", "own-1", "own-2"]


@pytest.mark.parametrize(
    ("emits", "told"), [(1, "1 intent: "), (3, "3 intents: "), (5, "5 intents: ")], ids=["1", "3", "5"]
)
def test_p_2_a_process_that_ends_without_close_says_what_is_lost(emits: int, told: str) -> None:
    """P-2: how many, and the first ids."""
    body = f"""
    sexton = connect(NOBODY)
    tenant = sexton.attach("t")
    print(*[tenant.delete("bucket", [f"k{{n}}"]).intent_ids[0] for n in range({emits})])
    """
    said = service(NOBODY, body)
    ids = said.splitlines()[0].split()
    shown = ", ".join(ids[:3]) + (", ..." if emits > 3 else "")
    assert f"the process ends without close, not acknowledged: {told}{shown}" in said


@pytest.mark.parametrize(
    "end",
    [
        "closes(sexton, 1)",
        "in_child(lambda: None); os.wait(); sexton.close(1)",
        "child = fork()\nif child: os.waitpid(child, 0); sexton.close(1)\nelse: sys.exit(0)",
    ],
)
def test_p_2_nothing_is_said_of_what_was_closed_or_is_a_parents(end: str) -> None:
    """P-2: `close` has returned the ids; a child's end says nothing of what its parent emitted."""
    body = 'sexton = connect(NOBODY)\nsexton.attach("t").delete("bucket", ["a"])\n' + end
    assert service(NOBODY, body) == ""


@pytest.mark.parametrize("kind", ["", *GREEN])
def test_p_2_nothing_is_said_of_what_has_arrived(kind: str, kafka: str, arrived: Arrived) -> None:
    """P-2: also where the report was not read yet when the process ends."""
    body = 'connect(linger=0).attach("t").delete("bucket", ["a"])\nctypes.CDLL(None).usleep(3000000)'
    assert service(kafka, body, first=GREEN.get(kind, "")) == ""
    assert keys(arrived) == ["a"]
