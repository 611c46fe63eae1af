"""P-2: the SDK where threads are greenlets: patched before anything else, after a fork, or too late."""

from __future__ import annotations

import pytest
from tests.support.services import GREEN, NOBODY, Arrived, keys, service

pytestmark = pytest.mark.faults


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
    assert gap[0] < 1.5, gap
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
    sexton = connect(NOBODY, queue_messages=2, call_timeout=1.5)
    tenant = sexton.attach("t")
    receipt = tenant.delete("bucket", ["a"])
    tenant.delete("bucket", ["b"])
    threading.Thread(target=tick, daemon=True).start()
    for call, error in ((lambda: receipt.wait(1.5), DeliveryPending),
                        (lambda: tenant.delete("bucket", ["c"]), QueueFull)):
        began = time.monotonic()
        try:
            call()
        except error:
            assert time.monotonic() - began < 4
        else:
            raise AssertionError(error)
    assert sexton.flush(1.5) == 2
    closes(sexton, 3)
    assert gap[0] < 1.2, gap
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
