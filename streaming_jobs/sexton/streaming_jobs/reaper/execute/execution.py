"""One intent's way through the execute stage, as the stage sees it; each action has a room of its own for
it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from sexton.schemas.actions import DeleteObjects, DeletePrefix
from sexton.schemas.errors import EnvironmentFault
from sexton.schemas.guards import Guard
from sexton.storage import Deleter
from sexton.streaming_jobs.reaper.broken import Broken, alone
from sexton.streaming_jobs.reaper.execute.bucket import Bucket
from sexton.streaming_jobs.reaper.execute.gate import Gate
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome
from sexton.streaming_jobs.reaper.execute.result import Result
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt
from sexton.streaming_jobs.reaper.vetoes import First, Said, Stop, Wait

if TYPE_CHECKING:
    from sexton.streaming_jobs.reaper.execute.sender import Sender

__all__ = ["Execution"]

T = TypeVar("T")


@dataclass(slots=True)
class Execution(ABC):
    """An intent that passed, with what an earlier attempt may have done to it.

    `requests` are the numbers of those that carried something of it. `overdue`: past the age limit, so that
    what its bucket holds is decided now. `held` is set when its bucket was closed before anything was queued.
    `gate` is what is asked before each of its phases, None for nothing; `gated` is why the next one may not
    begin, with Wait not yet, with Stop never. `made` says of each guard that was to be made true
    whether it is. `bucket` is there once the stage has taken it in. `broken` says
    that the stage failed for it: nothing more of it is sent, and what was queued may have gone.
    """

    action: DeleteObjects | DeletePrefix
    earlier: Attempt | None = None
    overdue: bool = False
    held: ItemOutcome | None = None
    broken: Broken | None = None
    requests: list[int] = field(default_factory=list)
    gate: Gate | None = None
    gated: Stop | Wait | None = None
    made: dict[Guard, Stop | Wait | None] = field(default_factory=dict)
    _asked: Mapping[int, Any] | None = None
    bucket: Bucket = field(init=False)

    def attempt(self, step: Callable[[], T], otherwise: T) -> T:
        """Take a step of this intent's alone; what it raises breaks it, and `otherwise` is returned.

        Raises EnvironmentFault.
        """
        if self.broken is not None:
            return otherwise
        found = alone("execute", step)
        if not isinstance(found, Broken):
            return found
        self.broken = found
        return otherwise

    @property
    @abstractmethod
    def next_phase(self) -> int | None:
        """The number of the phase that comes next, None where nothing of it would be sent."""

    def ask(self, sender: Sender) -> None:
        """Have the store asked what the next phase hangs on, beside the requests."""
        gate, phase = self.gate, self.next_phase
        self._asked = None
        if gate is None or phase is None or not gate.asks(phase) or self.bucket.is_open:
            return

        def ask() -> Mapping[int, Any] | None:
            try:
                return gate.ask(phase, self.bucket.name, sender.deleter)
            except EnvironmentFault:
                if sender.dry:
                    return None  # who only looks may have no right at the store
                raise

        def told(bucket: Bucket, found: Mapping[int, Any] | None) -> None:
            self._asked = found

        sender.job(self.bucket, ask, told)

    def may_begin(self, sender: Sender, resumes_at: datetime | None = None) -> bool:
        """Return whether the next phase may begin, now that the store was asked; else note why not.

        `resumes_at` is when the pause before it ends.
        """
        gate, phase = self.gate, self.next_phase
        if gate is None or phase is None:
            return True
        said = self._said(gate, phase, sender, resumes_at)
        if said is None or isinstance(said, First):
            said = self._not_made(gate) or said
        if isinstance(said, First):
            said = self.delete_first(said.key)
        self.gated = said
        if isinstance(said, Wait):
            self.held = ItemOutcome(None, said.reason, said.detail)
        return said is None

    def to_make(self, sender: Sender) -> Sequence[Guard]:
        """Return the guards that are to be made true now: nothing else keeps the next phase back.

        Each once in a task. Where a veto stops the intent, or it waits for something, none is.
        """
        gate, phase = self.gate, self.next_phase
        if gate is None or phase is None or self.bucket.is_open:
            return ()
        new = [guard for guard in gate.unmade if guard not in self.made]
        said = self._said(gate, phase, sender, None) if new else None
        return () if isinstance(said, Stop | Wait) else new

    def _said(self, gate: Gate, phase: int, sender: Sender, resumes_at: datetime | None) -> Said:
        """Return what the clocks and the vetoes say of a phase."""
        if gate.asks(phase) and self._asked is None:
            return Wait("veto-unknown", "the store could not be asked")
        said = gate.said(phase, self._asked or {}, sender.now(self.bucket.name), resumes_at)
        if said is None and (key := next(filter(self.bucket.queued, gate.needs(phase)), None)) is not None:
            # It was seen before the delete that is on its way: of two that need each other one has to stay.
            return Wait("veto-unknown", f"{key!r} is being deleted")
        return said

    def _not_made(self, gate: Gate) -> Stop | Wait | None:
        """Return why not all of these guards hold; one of which nobody has told does not."""
        unknown = Wait("boundary-unknown", "the store could not be asked")
        told = (self.made.get(guard, unknown) for guard in gate.unmade)
        return next((said for said in told if said is not None), None)

    def delete_first(self, key: str) -> Wait | None:
        """Have a key deleted before the phase that comes next; return why that is not possible now."""
        return Wait("veto-unknown", f"{key!r} stands, and is to be gone before the rest")

    @abstractmethod
    def start(self, sender: Sender) -> None:
        """Queue what waits for nothing, and have the rest called up: `sender.later` or `sender.last`."""

    @abstractmethod
    def proceed(self, sender: Sender) -> bool:
        """Queue what comes next, now that all is acknowledged that was queued; return whether more is to
        come.
        """

    @abstractmethod
    def expire(self, deleter: Deleter) -> None:
        """Decide what is still held of an intent past the age limit; raises EnvironmentFault."""

    @abstractmethod
    def result(self, request_ids: Sequence[str]) -> Result:
        """Return what became of it, once it has come to rest; `request_ids` are the task's, by number."""
