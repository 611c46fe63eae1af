"""In which state each key is: exactly one at a time, and one table of what may follow what.

Of a million keys few meet anything, and only those have an entry. One without is `waiting` while its phase
is, `due` while its bucket's lines hold it, `in flight` while a request carries it, and, once that is answered
without a word about it, settled: plainly gone. Who moves a key says which of these it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

from sexton.storage import MAX_KEYS
from sexton.streaming_jobs.reaper.execute.items import Item, key_of
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome

__all__ = ["TRANSITIONS", "Entry", "KeyStates", "State"]


class State(StrEnum):
    """Where a key is on its way through the stage."""

    WAITING = "waiting"
    """for its phase: everything before it has to be gone first"""
    DUE = "due"
    """to be sent, at once or again, in a request or alone"""
    IN_FLIGHT = "in flight"
    """a request, or a question about it, is under way"""
    TO_VERIFY = "to verify"
    """it may be gone, or a repeat would leave a trace: it is looked for first"""
    TO_PROBE = "to probe"
    """refused until the store was seen to do it right"""
    DENIED = "denied"
    """by itself or by its bucket's policy: that is decided once all others are at rest"""
    SETTLED = "settled"
    """it has its outcome, or is held with its bucket and waits outside of this task"""


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.WAITING: frozenset([State.DUE, State.TO_VERIFY]),
    State.DUE: frozenset([State.IN_FLIGHT, State.SETTLED]),
    State.IN_FLIGHT: frozenset(
        [State.DUE, State.TO_VERIFY, State.TO_PROBE, State.DENIED, State.SETTLED],
    ),
    State.TO_VERIFY: frozenset([State.IN_FLIGHT, State.SETTLED]),
    State.TO_PROBE: frozenset([State.DUE, State.SETTLED]),
    State.DENIED: frozenset([State.TO_VERIFY, State.SETTLED]),
    # Nothing follows an outcome within a task: a second one could contradict what was read meanwhile.
    State.SETTLED: frozenset(),
}
"""What may follow a state; from each state but the last a bucket whose circuit opens settles its keys."""

_STEPS_FOR = (State.TO_VERIFY, State.TO_PROBE, State.DENIED)


@dataclass(slots=True)
class Entry:
    """One key that met something; `outcome` is its last, final once it is settled.

    `tries` counts how often this task sent it, those left out at which the store was only busy.
    """

    state: State
    outcome: ItemOutcome
    tries: int = 0


@dataclass(slots=True)
class KeyStates:
    """The keys of one bucket that met something."""

    entries: dict[Item, Entry] = field(default_factory=dict)
    _in: dict[State, dict[Item, Entry]] = field(default_factory=lambda: {state: {} for state in _STEPS_FOR})

    def __bool__(self) -> bool:
        return bool(self.entries)

    @property
    def at_rest(self) -> bool:
        """Return whether no key has to be verified or waits for a probe."""
        return not (self._in[State.TO_VERIFY] or self._in[State.TO_PROBE])

    def outcome(self, item: Item) -> ItemOutcome | None:
        """Return what is known of a key's end, None where it met nothing."""
        entry = self.entries.get(item)
        return entry.outcome if entry is not None else None

    def tries(self, item: Item) -> int:
        """Return how often a key was tried."""
        entry = self.entries.get(item)
        return entry.tries if entry is not None else 0

    def move(
        self, item: Item, to: State, outcome: ItemOutcome, *, was: State = State.IN_FLIGHT, tries: int = 0
    ) -> None:
        """Bring a key into a state; `was` is that of one without an entry, `tries` are added to its own.

        Raises RuntimeError for what the table does not have: nothing of the micro-batch is settled then.
        """
        entry = self.entries.get(item)
        before = entry.state if entry is not None else was
        if to not in TRANSITIONS[before]:
            raise RuntimeError(f"a key that is {before} cannot become {to}: {key_of(item)!r}")
        if entry is None:
            entry = self.entries[item] = Entry(to, outcome)
        else:
            if before in self._in:
                del self._in[before][item]
            entry.state, entry.outcome = to, outcome
        entry.tries += tries
        if to in self._in:
            self._in[to][item] = entry

    def all_in(self, state: State) -> Mapping[Item, Entry]:
        """Return the keys to verify, to probe or denied, in the order in which they came to be so."""
        return self._in[state]

    def first_to_verify(self) -> list[Item]:
        """Return those of the first 1,000 to be verified that name no key twice."""
        taken: dict[str, Item] = {}
        for item in islice(self._in[State.TO_VERIFY], MAX_KEYS):
            taken.setdefault(key_of(item), item)
        return list(taken.values())
