"""P-2: calls in the middle of calls: signal handlers, callbacks, finalisers, other threads, the end."""

from __future__ import annotations

import pytest
from tests.support.services import GREEN, NOBODY, Arrived, keys, service

pytestmark = pytest.mark.faults

CLOSES_ON_SIGNAL = """
import signal
told = []
def on_signal(*_):
    began = time.monotonic()
    told.append(sexton.close(1))
    assert time.monotonic() - began < 2.5, time.monotonic() - began
signal.signal(signal.SIGALRM, on_signal)
"""


@pytest.mark.parametrize("kind", ["", *GREEN])
@pytest.mark.parametrize(
    "during",
    [
        "sexton.close(3)",
        "sexton.flush(3)",
        "fails(DeliveryFailed, lambda: receipt.wait(3))",
        "fails(ConnectionClosed, lambda: tenant.delete('bucket', ['full']))",
        "time.sleep(1)",
    ],
    ids=["close", "flush", "wait", "a full queue", "nothing"],
)
def test_p_2_a_signal_handler_closes(kind: str, during: str) -> None:
    """P-2: in the middle of any call of its own thread, without a broker: in time, and that call ends."""
    body = (
        """
    def fails(error, call):
        try:
            call()
        except error:
            return
        raise AssertionError(error)
    sexton = connect(NOBODY, queue_messages=1, call_timeout=5)
    tenant = sexton.attach("t")
    receipt = tenant.delete("bucket", ["a"])
    """
        + CLOSES_ON_SIGNAL.replace("\n", "\n    ")
        + """
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    began = time.monotonic()
    DURING
    assert time.monotonic() - began < 8
    while not told: time.sleep(0.05)
    (left,) = told  # the one in the middle of its call may be among them
    assert left[:1] == receipt.intent_ids and len(left) <= 2, left
    closes(sexton, len(left))
    counts = sexton.statistics()
    assert (counts.emitted, counts.failed, counts.pending) == (len(left), len(left), 0), counts
    """.replace("DURING", during)
    )
    service(NOBODY, body, first=GREEN.get(kind, ""))


@pytest.mark.parametrize("call", ["sexton.flush(0.05)", "sexton.statistics()", "emit()"])
def test_p_2_signals_in_the_middle_of_reports(call: str, kafka: str, arrived: Arrived) -> None:
    """P-2: a handler that calls while the client reports ends no process; what it may not do is an error."""
    body = """
    import signal
    sexton = connect(queue_messages=5, linger=0)
    tenant, own = sexton.attach("t"), sexton.attach("own")
    count = [0]
    tenant.delete("bucket", ["first"]).wait(10)  # without a broker each handler waits within the one before
    def emit():
        count[0] += 1
        try:
            own.delete("bucket", [f"signal-{count[0]}"])
        except UsageError:
            count[0] -= 1
    depth, over = [0], [False]
    def again():
        if not over[0]: signal.setitimer(signal.ITIMER_REAL, 0.002)
    def on_signal(*_):
        depth[0] += 1
        if depth[0] < 5: again()  # within each other, but never without end on a slow machine
        try: CALL
        finally:
            depth[0] -= 1
            again()
    signal.signal(signal.SIGALRM, on_signal)
    again()
    for n in range(1500):
        tenant.delete("bucket", [f"k{n}"])
        if n % 5 == 0: sexton.flush(1)
    over[0] = True
    signal.setitimer(signal.ITIMER_REAL, 0)
    closes(sexton)
    print(1501 + count[0])
    """
    said = int(service(kafka, body.replace("CALL", call)))
    assert len(keys(arrived)) == said


@pytest.mark.parametrize("kind", ["", *GREEN])
@pytest.mark.parametrize("call", ["emit", "flush", "close"])
def test_p_2_a_callback_calls_the_connection(kind: str, call: str, kafka: str, arrived: Arrived) -> None:
    """P-2: a future's callback emits into a full queue, flushes, or closes; the process lives on."""
    body = """
    sexton = connect(queue_messages=3, linger=0)
    tenants, left = [sexton.attach(f"t{n}") for n in range(3)], []
    def then(n, i):
        def told(future):
            if "CALL" == "emit" and i < 100:
                emit(n, i + 1)
            elif "CALL" == "flush" and i < 3:
                left.append(sexton.flush(1))
            elif "CALL" == "close":
                left.append(sexton.close(3))
        return told
    def emit(n, i):
        (future,) = tenants[n].delete("bucket", [f"{n}-{i}"]).futures.values()
        future.add_done_callback(then(n, i))
    for n in range(1 if "CALL" == "close" else 3):
        emit(n, 1)
    wanted = {"emit": 300, "flush": 3, "close": 1}["CALL"]
    end = time.monotonic() + 30
    while sexton.statistics().delivered < wanted and time.monotonic() < end:
        time.sleep(0.01)
    while "CALL" != "emit" and not left and time.monotonic() < end:
        time.sleep(0.01)
    assert "CALL" == "emit" or left[0] in (0, (), 1, 2), left
    closes(sexton)
    """
    service(kafka, body.replace("CALL", call), first=GREEN.get(kind, ""))
    assert len(keys(arrived)) == {"emit": 300, "flush": 3, "close": 1}[call]


@pytest.mark.parametrize("raises", ["SystemExit", "ValueError"])
def test_p_2_a_callback_that_raises_ends_no_reader(raises: str, kafka: str, arrived: Arrived) -> None:
    """P-2: later intents are heard of all the same."""
    body = """
    import logging; logging.disable()
    sexton = connect()
    tenant = sexton.attach("t")
    def told(future):
        raise RAISES("of the service")
    (future,) = tenant.delete("bucket", ["a"]).futures.values()
    future.add_done_callback(told)
    future.result(10)
    for n in range(3):
        tenant.delete("bucket", [f"b{n}"]).wait(10)
    closes(sexton)
    """
    service(kafka, body.replace("RAISES", raises))
    assert keys(arrived) == ["a", "b0", "b1", "b2"]


@pytest.mark.parametrize("kind", ["", *GREEN])
def test_p_2_closed_by_several_at_once(kind: str) -> None:
    """P-2: each is back in its own time; the one that has less ends nothing that another waits for."""
    body = """
    sexton = connect(NOBODY)
    receipt = sexton.attach("t").delete("bucket", ["a"])
    took = {}
    def close(seconds):
        began = time.monotonic()
        assert sexton.close(seconds) == receipt.intent_ids
        took[seconds] = time.monotonic() - began
    threads = [threading.Thread(target=close, args=(seconds,)) for seconds in (4, 0.1, 2)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads: thread.join(10)
    assert took[0.1] < 1.5 and took[2] < 3.5 < took[4] < 6, took
    assert sexton.close(3) == sexton.close(0) == receipt.intent_ids
    """
    service(NOBODY, body, first=GREEN.get(kind, ""))


@pytest.mark.parametrize("kind", ["", *GREEN])
def test_p_2_emitted_while_another_thread_closes(kind: str, kafka: str, arrived: Arrived) -> None:
    """P-2: each call either raises or has a receipt that ends; what was delivered and said to be is there."""
    body = """
    delivered = []
    for turn in range(10):
        sexton = connect(linger=0)
        handles = [sexton.attach(f"t{turn}-{n}") for n in range(3)]
        receipts = []
        def emit(n):
            for i in range(100000):
                try:
                    receipts.append(handles[n].delete("bucket", [f"{turn}-{n}-{i}"]))
                except ConnectionClosed:
                    return
                time.sleep(0)
        threads = [threading.Thread(target=emit, args=(n,)) for n in range(3)]
        for thread in threads: thread.start()
        time.sleep(0.02)
        left = set(sexton.close(3))
        for thread in threads: thread.join(5)
        for receipt in receipts:
            try:
                receipt.wait(2)
                delivered += receipt.intent_ids
            except DeliveryFailed as error:
                assert set(error.intent_ids) == set(receipt.intent_ids)
        counts = sexton.statistics()
        assert counts.pending == 0 and counts.emitted >= len(receipts), (counts, len(receipts))
    print(*delivered)
    """
    said = service(kafka, body, first=GREEN.get(kind, "")).split()
    assert set(said) <= {intent.intent_id for intent in arrived()}


@pytest.mark.parametrize(
    "end",
    [
        "import atexit; atexit.register(sexton.close, 3)",
        "import atexit; atexit.register(lambda: (sexton.close(3), sexton.close(3)))",
        "import atexit; atexit.register(lambda: threading.Thread(target=sexton.close, args=(3,)).run())",
        "class Owner:\n    def __del__(self): sexton.close(3)\nowner = Owner()",
        "class Owner:\n    own = sexton\n    def __del__(self): self.own.close(3)\n"  # noqa: ISC004
        "import builtins; builtins.owner = Owner(); del sexton",
        "import weakref; weakref.finalize(tenant, sexton.close, 3)",
    ],
    ids=["atexit", "twice", "in its own thread", "a finaliser", "after the modules", "weakref"],
)
@pytest.mark.parametrize("broker", [True, False], ids=["broker", "nobody"])
def test_p_2_closed_at_the_last_moment(end: str, broker: bool, kafka: str, arrived: Arrived) -> None:
    """P-2: by atexit, by a finaliser, in the interpreter's last moments: the process ends in time."""
    body = """
    began = time.monotonic()
    sexton = connect(BROKER, linger=0.2)
    tenant = sexton.attach("t")
    tenant.delete("bucket", ["a"])
    """
    service(kafka if broker else NOBODY, body + end.replace("\n", "\n    "), timeout=30)
    if broker:
        assert keys(arrived) == ["a"]


@pytest.mark.parametrize("kind", ["", *GREEN])
@pytest.mark.parametrize("when", ["del it", "it = None; import gc; gc.collect()", "pass"])
def test_p_2_a_finaliser_emits(kind: str, when: str, kafka: str, arrived: Arrived) -> None:
    """P-2: whenever it runs: at once, by the collector, or at the end of the process."""
    body = """
    class Garbage:
        def __init__(self, number):
            self.number, self.me = number, self
        def __del__(self):
            try:
                tenant.delete("bucket", [f"garbage-{self.number}"])
            except UsageError:
                pass  # in the middle of a call of this very handle, or closed
    sexton = connect(queue_messages=5, linger=0)
    tenant, other = sexton.attach("t"), sexton.attach("u")
    import gc; gc.set_threshold(20)
    for n in range(300):
        Garbage(n)
        other.delete("bucket", [f"k{n}"])
    it = Garbage("last")
    WHEN
    assert sexton.flush(10) == 0
    closes(sexton)
    """
    service(kafka, body.replace("WHEN", when), first=GREEN.get(kind, ""))
    found = keys(arrived)
    assert {f"k{n}" for n in range(300)} <= set(found)
    assert len(found) == len(set(found))


def test_p_2_a_handler_that_calls_the_handle_of_the_call_is_told(kafka: str) -> None:
    """P-2: the call's turn is its own until it ends: an error at once, and not after a wait for itself."""
    body = """
    import signal
    sexton = connect(NOBODY, queue_messages=1, call_timeout=2)
    tenant, told = sexton.attach("t"), []
    tenant.delete("bucket", ["a"])
    def on_signal(*_):
        began = time.monotonic()
        try:
            tenant.delete("bucket", ["b"])
        except UsageError as error:
            told.append((str(error), time.monotonic() - began))
    signal.signal(signal.SIGALRM, on_signal)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        tenant.delete("bucket", ["c"])
    except QueueFull:
        pass
    ((message, took),) = told
    assert "in the middle of its call" in message and took < 1.5, told
    closes(sexton, 1)
    """
    service(kafka, body)
