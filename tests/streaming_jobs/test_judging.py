"""The reaper judges on real parts: broker, issuer, Redis, S3 server and Spark."""

from __future__ import annotations

import pytest
from tests.support.chain import Chain, forget_last_commit, keys
from tests.support.crashes import without_a_look_back

from sexton.schemas import events
from sexton.storage import ObjectStore

pytestmark = [pytest.mark.real, pytest.mark.spark]


def put(store: ObjectStore, bucket: str, names: list[str]) -> None:
    """Put small objects."""
    for name in names:
        store.put(bucket, name, b"x")


def left(store: ObjectStore, bucket: str) -> list[str]:
    """Names of what is left."""
    return sorted(store.list_keys(bucket, ""))


@pytest.mark.slow
def test_j_1_stale_intents_are_refused_and_their_objects_stay(chain: Chain, store: ObjectStore) -> None:
    """J-1: a superseded generation's intents are stale; its successor may delete the same keys."""
    names = keys("t", 3)
    put(store, chain.bucket, names)
    with chain.issuer() as issuer:
        old = issuer.attach("a", "t").generation
        new = issuer.attach("b", "t").generation
    stale = chain.emit(*(chain.intent("t", old, [name]) for name in names))

    counts = chain.reap()

    assert chain.words() == dict.fromkeys(stale, "stale")
    assert (counts.intents["stale"], counts.records) == (3, 3)
    assert left(store, chain.bucket) == names
    assert (chain.dead_letters(), chain.deferred()) == ([], [])

    good = chain.emit(chain.intent("t", new, names))
    chain.reap()

    assert chain.words() == {**dict.fromkeys(stale, "stale"), good[0]: "deleted"}
    assert left(store, chain.bucket) == []


@pytest.mark.slow
def test_j_1_a_stale_owner_is_told_so_after_its_history_was_cut(chain: Chain, store: ObjectStore) -> None:
    """J-1: its window is forgotten once all below is settled, and it is still told to be superseded."""
    put(store, chain.bucket, ["old", "new", "late", "never"])
    with chain.issuer() as issuer:
        old = issuer.attach("a", "t").generation
        chain.emit(chain.intent("t", old, ["old"], intent_id="old"))
        new = issuer.attach("b", "t").generation
        for name in ("new", "later"):
            chain.emit(chain.intent("t", new, [name], intent_id=name))
            chain.reap()
        late = chain.emit(chain.intent("t", old, ["late"], intent_id="late"))
        chain.emit(chain.intent("t", new + 1, ["never"], intent_id="never"))
        chain.reap()
        state = issuer.tenant("t")

    assert state is not None
    assert [span.generation for span in state.history] == [new]
    verdicts = {outcome.intent_id: outcome.verdict for outcome in chain.outcomes()}
    assert {name: verdict.reason for name, verdict in verdicts.items()} == {
        "old": "pass",
        "new": "pass",
        "later": "pass",
        "late": "superseded",
        "never": "never-issued",
    }
    assert f"ended at or before offset {state.history[0].start[0]}" in verdicts[late[0]].detail
    assert chain.words()["late"] == "stale"
    assert left(store, chain.bucket) == ["late", "never"]


@pytest.mark.slow
def test_j_2_order_in_the_micro_batch_does_not_matter(chain: Chain, store: ObjectStore) -> None:
    """J-2: of two generations that both write after the change, only the newer one's keys go."""
    put(store, chain.bucket, [*keys("old", 4), *keys("new", 4)])
    with chain.issuer() as issuer:
        old = issuer.attach("a", "t").generation
        new = issuer.attach("b", "t").generation
    for partition in range(2):
        part = slice(2 * partition, 2 * partition + 2)
        chain.emit(chain.intent("t", new, keys("new", 4)[part]), partition=partition)
        chain.emit(chain.intent("t", old, keys("old", 4)[part]), partition=partition)

    chain.reap()

    assert sorted(chain.words().values()) == ["deleted", "deleted", "stale", "stale"]
    assert left(store, chain.bucket) == keys("old", 4)


@pytest.mark.parametrize("successor", ["a", "b"])
def test_j_8_what_was_asked_for_before_the_change_is_still_deleted(
    chain: Chain, store: ObjectStore, successor: str
) -> None:
    """J-8: an intent below the end offsets of its successor's event is covered, one above them is not."""
    put(store, chain.bucket, ["before", "after"])
    with chain.issuer() as issuer:
        old = issuer.attach("a", "t").generation
        before = chain.emit(chain.intent("t", old, ["before"]))
        if successor == "a":
            assert issuer.re_attach("a") == {"t": old + 1}
        else:
            issuer.attach(successor, "t")
    after = chain.emit(chain.intent("t", old, ["after"]))

    chain.reap()

    assert chain.words() == {before[0]: "deleted", after[0]: "stale"}
    assert left(store, chain.bucket) == ["after"]


def test_j_11_a_number_claimed_before_it_was_issued_never_passes(chain: Chain, store: ObjectStore) -> None:
    """J-11: an intent below its generation's window is stale, also after that generation was issued."""
    put(store, chain.bucket, ["early", "never", "good"])
    with chain.issuer() as issuer:
        first = issuer.attach("a", "t").generation
        early = chain.emit(chain.intent("t", first + 1, ["early"]))
        second = issuer.attach("a", "t").generation
    never = chain.emit(chain.intent("t", second + 1, ["never"]))
    good = chain.emit(chain.intent("t", second, ["good"]))

    chain.reap()

    assert chain.words() == {early[0]: "stale", never[0]: "stale", good[0]: "deleted"}
    reasons = {outcome.intent_id: outcome.verdict.reason for outcome in chain.outcomes()}
    assert reasons == {early[0]: "claimed-early", never[0]: "never-issued", good[0]: "pass"}
    assert left(store, chain.bucket) == ["early", "never"]


def test_i_3_an_unknown_tenants_intents_are_refused(chain: Chain, store: ObjectStore) -> None:
    """I-3: nothing is executed for a tenant that the log does not know, and its neighbour is not harmed."""
    put(store, chain.bucket, ["a", "b"])
    with chain.issuer() as issuer:
        generation = issuer.attach("a", "known").generation
    chain.emit(chain.intent("unknown", 1, ["a"], intent_id="u"))
    chain.emit(chain.intent("known", generation, ["b"], intent_id="k"))

    chain.reap()

    assert chain.words() == {"u": "refused", "k": "deleted"}
    assert left(store, chain.bucket) == ["a"]


@pytest.mark.slow
def test_j_5_a_replayed_micro_batch_changes_no_outcome(chain: Chain, store: ObjectStore) -> None:
    """J-5: the whole micro-batch again gives the same outcomes; an object guarded by `unchanged` survives."""
    put(store, chain.bucket, [*keys("gone", 5), "stale", "guarded"])
    with chain.issuer() as issuer:
        old = issuer.attach("a", "t").generation
        new = issuer.attach("b", "t").generation
    unchanged = events.UnchangedGuard((events.KeyCondition("guarded", etag='"1"'),))
    chain.emit(chain.intent("t", new, keys("gone", 5), intent_id="gone"))
    chain.emit(chain.intent("t", old, ["stale"], intent_id="stale"))
    guards = (events.GenerationGuard("t", new), unchanged)
    chain.emit(chain.intent("t", None, ["guarded"], guards=guards, intent_id="guarded"))
    chain.produce(b"garbage", partition=0)
    first = chain.reap()
    before = (chain.words(), left(store, chain.bucket), {d.position for d in chain.dead_letters()})
    store.put(chain.bucket, "guarded", b"written again")
    forget_last_commit(chain)

    with without_a_look_back():
        second = chain.reap()

    after = (chain.words(), left(store, chain.bucket), {d.position for d in chain.dead_letters()})
    assert before == after
    assert before[0] == {"gone": "deleted", "stale": "stale", "guarded": "changed"}
    assert before[1] == ["guarded", "stale"]
    assert first.intents == second.intents


def test_what_nothing_executes_yet_is_deferred_and_pending(chain: Chain) -> None:
    """I2, I4: it waits in `deferred`, byte for byte with its first position, without an outcome."""
    action = events.AdvanceHorizon("line", 9)
    intent = chain.intent("t", None, ["x"], guards=(events.PromiseGuard("p"),), action=action)
    chain.emit(intent, partition=2)

    counts = chain.reap()

    (deferred,) = chain.deferred()
    assert (deferred.first.partition, deferred.first.offset) == (2, 0)
    assert (deferred.reason, deferred.raw_value) == ("action-not-executed", chain.codec.encode(intent))
    assert (counts.intents, chain.outcomes()) == ({"deferred": 1}, [])
