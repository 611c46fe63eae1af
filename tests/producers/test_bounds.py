"""What the SDK remembers has a bound, however long a service runs: what falls out costs time, and no data."""

from __future__ import annotations

import asyncio
import gc

import pytest
from tests.support.services import service

from sexton.producers import KeyReused, Limits, _emitter, _fork, _names
from sexton.producers._names import Names
from sexton.producers.testing import FakeAsyncSexton, FakeSexton

OWN = "-00000007"


def remembered(names: Names) -> int:
    """How many names are known exactly."""
    halves = (*names._named.newer.values(), *names._named.older.values())
    return sum(map(len, halves)) + sum(map(len, names._again.newer.values()))


@pytest.mark.parametrize("own", [True, False], ids=["own names", "names of others"])
@pytest.mark.parametrize("buckets", [1, 3])
def test_k_6_a_million_names_stay_within_a_fixed_count(own: bool, buckets: int) -> None:
    """K-6: the latest names are known exactly, the others by a filter of one size; in any bucket."""
    names, most = Names(OWN), 0
    for call in range(200):
        keys = [f"layer-{call}-{n}{OWN if own else '-00000001'}" for n in range(5_000)]
        names.take(f"bucket-{call % buckets}", [keys])
        if call % 7 == 0:  # failed ones are bounded, too
            names.allow_again(f"bucket-{call % buckets}", keys)
        most = max(most, remembered(names))
    assert most <= 2 * (_names.REMEMBERED + 5_000)
    assert (names._forgotten is not None) == own
    assert len(names._forgotten or b"") in (0, _names._WORDS)


def test_k_6_a_name_that_was_forgotten_is_never_handed_out() -> None:
    """K-6: a key that an intent has named may be deleted at any moment: writing it again would lose it."""
    names = Names(OWN, remembered=1_000)
    used = [f"layer-{n}{OWN}" for n in range(50_000)]
    for start in range(0, len(used), 500):
        names.take("bucket", [used[start : start + 500]])
    assert remembered(names) <= 2_000

    for key in used:
        with pytest.raises(KeyReused, match="named this key"):
            names.check_fresh(key)
    with pytest.raises(KeyReused, match="may have named") as told:
        names.check_fresh(used[0])
    assert "re-attach" in (told.value.hint or "")


def test_k_6_what_was_never_named_is_handed_out() -> None:
    """K-6: the filter seldom calls a fresh name used, and nothing but own names is in it."""
    names = Names(OWN, remembered=1_000)
    for start in range(0, 100_000, 500):
        names.take("bucket", [[f"layer-{n}{OWN}" for n in range(start, start + 500)]])
    refused = 0
    for n in range(20_000):
        try:
            names.check_fresh(f"other-{n}{OWN}")
        except KeyReused:
            refused += 1
    assert refused <= 20


def test_k_6_the_latest_names_are_given_once_and_older_ones_cost_a_request() -> None:
    """K-6: a second intent for a key that was deleted long ago finds it absent."""
    names = Names(OWN, remembered=10)
    names.take("bucket", [["first"]])
    for n in range(4):
        names.take("bucket", [[f"k{n}"]])
    with pytest.raises(KeyReused, match="before: first"):
        names.take("bucket", [["first"]])
    names.take("bucket", [[f"more-{n}" for n in range(10)]])
    names.take("bucket", [["turned"]])
    names.take("bucket", [["first"]])


def test_k_6_a_name_may_be_given_again_though_others_came_between() -> None:
    """K-6: the permission outlives the names that it stands beside, and is used up once."""
    names = Names(OWN, remembered=10)
    names.take("bucket", [["failed"]])
    names.allow_again("bucket", ["failed", "never named"])
    names.take("bucket", [[f"k{n}" for n in range(5)]])
    names.take("bucket", [["turned"]])
    names.take("bucket", [["failed"]])
    with pytest.raises(KeyReused, match="before: failed"):
        names.take("bucket", [["failed"]])
    assert "never named" not in set().union(*names._again.newer.values())


def test_k_6_what_was_given_back_is_fresh_in_every_half() -> None:
    """K-6: an index that was certainly not written uses no name up."""
    names = Names(OWN, remembered=10)
    for _ in range(50):
        names.give_back("bucket", [[f"a{OWN}"]], names.take("bucket", [[f"a{OWN}"]]))
        names.check_fresh(f"a{OWN}")
    assert names._forgotten is None


def test_buckets_without_keys_leave_nothing_behind() -> None:
    """A call that names nothing is not remembered."""
    names = Names(OWN)
    for n in range(1_000):
        names.take(f"bucket-{n}", [])
        names.allow_again(f"bucket-{n}", [])
    assert not names._named.newer
    assert not names._again.newer


def test_handles_that_nobody_holds_are_forgotten() -> None:
    """A connection keeps the handles that its service keeps: a million tenants do not stay for ever."""
    sexton = FakeSexton("n")
    held = sexton.attach("held")
    for n in range(3_000):
        sexton.attach(f"t{n}").delete("bucket", [f"k{n}"])
        sexton.transport.records.clear()
    gc.collect()
    assert len(sexton._handles) == 1
    assert len([it for it in _fork._renewables if it is held]) == 1
    assert sum(type(it).__name__ == "Tenant" for it in _fork._renewables) < 100
    held.delete("bucket", ["still good"])
    sexton.attach("held")
    with pytest.raises(Exception, match="attached anew"):
        held.delete("bucket", ["superseded"])


def test_a_handle_that_waits_for_its_report_is_held_by_it() -> None:
    """What failed may be named again: the report finds the handle, though the service looks away."""
    sexton = FakeSexton("n")
    sexton.transport.hold = True
    tenant = sexton.attach("t")
    tenant.delete("bucket", ["a"])
    assert len(sexton._emitter._pending) == 1
    sexton.transport.release()
    assert not sexton._emitter._pending


def test_intents_that_fail_for_days_are_counted_and_the_latest_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is away: each receipt tells of its own; `close` names the latest, and counts all."""
    monkeypatch.setattr(_emitter, "_FAILED_KEPT", 0)
    sexton = FakeSexton("n", limits=Limits(queue_messages=10))
    sexton.transport.refuse = "away"
    tenant = sexton.attach("t")
    ids = [tenant.delete("bucket", [f"k{n}"]).intent_ids[0] for n in range(1_000)]
    counts = sexton.statistics()
    assert (counts.emitted, counts.failed, counts.pending) == (1_000, 1_000, 0)
    assert sexton._emitter.unacknowledged() == (1_000, ids[-10:])
    with pytest.raises(Exception, match="intents not delivered: 1000: "):
        sexton.__exit__(None, None, None)
    assert sexton.close() == tuple(ids[-10:])


def test_what_is_on_its_way_at_close_is_named_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the queue holds: of these nobody has been told."""
    monkeypatch.setattr(_emitter, "_FAILED_KEPT", 0)
    sexton = FakeSexton("n", limits=Limits(queue_messages=100))
    sexton.transport.hold = True
    tenant = sexton.attach("t")
    ids = [tenant.delete("bucket", [f"k{n}"]).intent_ids[0] for n in range(100)]
    assert sexton.close() == tuple(ids)


def test_p_2_a_receipt_that_is_looked_at_often_keeps_one_callback() -> None:
    """P-2: an asyncio service that waits in short steps leaves nothing behind with each."""

    async def work() -> None:
        sexton = FakeAsyncSexton("n")
        sexton.transport.hold = True
        receipt = await (await sexton.attach("t")).delete("bucket", ["a"])
        (future,) = receipt.receipt.futures.values()
        for _ in range(300):
            with pytest.raises(Exception, match="not acknowledged"):
                await receipt.wait(0)
        assert len(future._done_callbacks) == 1  # type: ignore[attr-defined]
        assert not receipt._waiting
        several = [asyncio.create_task(receipt.wait(20)) for _ in range(3)]
        await asyncio.sleep(0)
        sexton.transport.release()
        assert [list(found) for found in await asyncio.gather(*several)] == [[*receipt.intent_ids]] * 3

    asyncio.run(work())


@pytest.mark.faults
def test_p_2_a_process_that_lives_on_in_its_children_keeps_no_list_of_them() -> None:
    """P-2: forked in C again and again, each the child of the one before."""
    body = """
    from sexton.producers import _fork
    sexton = connect(NOBODY)
    for n in range(20):
        child = fork()
        if child:
            _, status = os.waitpid(child, 0)
            os._exit(os.waitstatus_to_exitcode(status))
        sexton.statistics()
        assert len(_fork._turns) <= 1, _fork._turns
    closes(sexton)
    """
    service("127.0.0.1:1", body)
