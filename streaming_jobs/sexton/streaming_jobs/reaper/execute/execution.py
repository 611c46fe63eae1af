"""One intent's way through the execute stage, as the stage sees it; each action has a room of its own for
it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from sexton.schemas.actions import DeleteObjects, DeletePrefix
from sexton.storage import Deleter
from sexton.streaming_jobs.reaper.broken import Broken, alone
from sexton.streaming_jobs.reaper.execute.bucket import Bucket
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome
from sexton.streaming_jobs.reaper.execute.result import Result
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt

if TYPE_CHECKING:
    from sexton.streaming_jobs.reaper.execute.sender import Sender

__all__ = ["Execution"]

T = TypeVar("T")


@dataclass(slots=True)
class Execution(ABC):
    """An intent that passed, with what an earlier attempt may have done to it.

    `requests` are the numbers of those that carried something of it. `overdue`: past the age limit, so that
    what its bucket holds is decided now. `held` is set when its bucket was closed before anything was queued.
    `bucket` is there once the stage has taken it in. `broken` says that the stage failed for it: nothing more
    of it is sent, and what was queued may have gone.
    """

    action: DeleteObjects | DeletePrefix
    earlier: Attempt | None = None
    overdue: bool = False
    held: ItemOutcome | None = None
    broken: Broken | None = None
    requests: list[int] = field(default_factory=list)
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
