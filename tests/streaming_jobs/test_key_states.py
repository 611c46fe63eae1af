"""A key is in one state at a time, and only what the table has may follow it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.support.execute_stage import CHANGED, CUT, DENIED, ERROR, Store, execution, run

from sexton.schemas.events import OutcomeKind
from sexton.storage import Delete, Versioning
from sexton.streaming_jobs.reaper.execute.items import Item
from sexton.streaming_jobs.reaper.execute.key_states import TRANSITIONS, KeyStates, State
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome

HELD = ItemOutcome(None, "SlowDown")


@pytest.mark.parametrize("after", State)
@pytest.mark.parametrize("before", State)
def test_only_what_the_table_has_may_follow_a_state(before: State, after: State) -> None:
    """What it lacks is refused and changes nothing, whether the key has met something before or not."""
    met = KeyStates()
    reach(met, "a", before)
    known = met.entries.get("a")
    for keys in (met, KeyStates()):
        if after in TRANSITIONS[before]:
            keys.move("a", after, HELD, was=before)
            assert keys.entries["a"].state is after
        else:
            with pytest.raises(RuntimeError, match=f"a key that is {before} cannot become {after}: 'a'"):
                keys.move("a", after, HELD, was=before)
            assert keys.entries.get("a") is (known if keys is met else None)


@pytest.mark.parametrize("state", [State.TO_VERIFY, State.TO_PROBE, State.DENIED])
def test_a_key_stands_where_its_state_says_and_nowhere_else(state: State) -> None:
    """It is in the line of its state in the order of its coming, and leaves it with its state."""
    keys = KeyStates()
    for name in ("b", "a"):
        reach(keys, name, state)
    for other in (State.TO_VERIFY, State.TO_PROBE, State.DENIED):
        assert list(keys.all_in(other)) == (["b", "a"] if other is state else [])

    keys.move("b", State.SETTLED, HELD)

    assert list(keys.all_in(state)) == ["a"]
    assert keys.outcome("b") == HELD


def test_tries_are_counted_through_all_states() -> None:
    """A key keeps the number of its tries, whatever it waits for in between."""
    keys = KeyStates()
    for to, tries in ((State.DUE, 1), (State.IN_FLIGHT, 0), (State.TO_VERIFY, 1), (State.IN_FLIGHT, 0)):
        keys.move("a", to, HELD, tries=tries)
    keys.move("a", State.DUE, HELD, tries=1)

    assert (keys.tries("a"), keys.tries("b")) == (3, 0)


def test_what_is_verified_together_names_no_key_twice() -> None:
    """X-8: versions of one key are looked at one after the other, as an answer names the key alone."""
    keys = KeyStates()
    items: list[Item] = [Delete("a", version_id="1"), Delete("a", version_id="2"), "b"]
    for item in items:
        keys.move(item, State.TO_VERIFY, HELD)

    assert keys.first_to_verify() == [items[0], "b"]


def test_keys_that_meet_nothing_have_no_entry() -> None:
    """A million plain keys cost nothing here; those that met something have come to rest at the end."""
    answers = {"a": ERROR, "b": CUT, "c": DENIED, "d": CHANGED}
    store = Store(versioning=Versioning.ON, objects={"b": {"a", "b", "c", "d", "e"}})
    store.answer = lambda number, bucket, item: answers.get(str(item)) if number == 0 else None

    executor, (result,) = run(store, execution(["a", "b", "c", "d", "e"]))

    (bucket,) = executor.sender.buckets.values()
    assert set(bucket.keys.entries) == set("abcd")
    assert {entry.state for entry in bucket.keys.entries.values()} == {State.SETTLED}
    assert result.counts[OutcomeKind.DELETED] == 3


def reach(keys: KeyStates, item: Item, state: State) -> None:
    """Bring a key into a state, from its first one."""
    for before, after in pairwise(path_to(state)):
        keys.move(item, after, HELD, was=before)


def path_to(state: State) -> list[State]:
    """The shortest way from the first state."""
    paths = [[State.WAITING]]
    while True:
        if (found := next((path for path in paths if path[-1] is state), None)) is not None:
            return found
        paths = [[*path, after] for path in paths for after in sorted(TRANSITIONS[path[-1]])]
