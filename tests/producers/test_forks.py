"""P-2: the SDK in processes that were forked, with Python's hooks and in C."""

from __future__ import annotations

import pytest
from tests.support.services import GREEN, NOBODY, Arrived, keys, service

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("kind", ["", *GREEN])
@pytest.mark.parametrize("hooks", [False, True])
def test_p_2_workers_emit_through_what_their_master_connected(
    kind: str, hooks: bool, kafka: str, arrived: Arrived
) -> None:
    """P-2: connect, attach and emit before the fork; each of three workers has a client of its own."""
    body = """
    sexton = connect(linger=0.3)
    tenant = sexton.attach("t")
    tenant.delete("bucket", ["first"]).wait(10)
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
    assert keys(arrived) == sorted(["first", "master", "master-after", *per_worker])


@pytest.mark.parametrize("kind", ["", *GREEN])
def test_p_2_a_child_that_can_look_up_no_name_says_so(kind: str, kafka: str, arrived: Arrived) -> None:
    """P-2: another thread held the C library's lock at the fork: an error in time, not a silence; no harm."""
    body = """
    import _socket, _thread, importlib.util, posix
    spec = importlib.util.find_spec("_thread")
    real = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(real)
    def look_up():
        while True:
            _socket.getaddrinfo(b"127.0.0.1", 0, flags=_socket.AI_ADDRCONFIG | _socket.AI_NUMERICHOST)
    for _ in range(4): real.start_new_thread(look_up, ())
    sexton = connect()
    tenant = sexton.attach("t")
    def child():
        began = time.monotonic()
        for _ in range(2):
            try:
                tenant.delete("bucket", ["child"])
            except ProducerFailed as error:
                assert "can look up none" in str(error), error
                assert "spawn" in error.hint
                assert time.monotonic() - began < 5
            else:
                os._exit(7)  # not caught
        closes(sexton)
    for _ in range(100):
        status = posix.waitpid(in_child(child, posix.fork), 0)[1]  # gevent's own wait for ever at times
        if status == 0: break
        assert os.waitstatus_to_exitcode(status) == 7, status
    else:
        raise AssertionError("no child was caught")
    tenant.delete("bucket", ["parent"]).wait(10)
    closes(sexton)
    """
    service(kafka, body, first=GREEN.get(kind, ""))
    assert "parent" in keys(arrived)


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
    def emits(key):
        "Names are looked up again and again where no broker answers: a fork may catch it."
        try:
            tenant.delete("bucket", [key])
        except ProducerFailed as error:
            assert "can look up none" in str(error), error
            return 0
        return 1
    def grandchild():
        closes(sexton, emits("grandchild"))
    def child():
        pending = emits("child")
        ended_well(in_child(grandchild, os.fork))
        closes(sexton, pending)
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
