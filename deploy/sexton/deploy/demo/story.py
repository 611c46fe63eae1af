"""What every story has: an installation to play on, and the evidence that it leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sexton.deploy.demo.checks import Check
from sexton.deploy.demo.evidence import Evidence, gather
from sexton.deploy.demo.narrator import Narrator
from sexton.schemas.settings import Settings
from sexton.storage import ObjectStore, StoreSettings

__all__ = ["Story"]


@dataclass
class Story:
    """Plays a story on an installation; `reap` runs the reaper until everything there is processed.

    `asked` are the ids of the intents of each chapter, `index_keys` the newest index of each tenant.
    """

    settings: Settings
    bucket: str
    reap: Callable[[], None]
    narrator: Narrator
    written: set[str] = field(default_factory=set)
    granted: list[tuple[str, int]] = field(default_factory=list)
    index_keys: dict[str, str] = field(default_factory=dict)
    asked: dict[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._store = ObjectStore(StoreSettings.of(self.settings))

    @staticmethod
    def prepared(settings: Settings) -> Settings:
        """Return the settings with which the story is played."""
        return settings

    def play(self) -> None:
        """Tell the whole story; `evidence` and `checks` are for afterwards."""
        raise NotImplementedError

    def checks(self) -> Mapping[str, Check]:
        """Return every check of the story, by what it promises."""
        raise NotImplementedError

    def evidence(self) -> Evidence:
        """Gather the evidence as it is now."""
        return gather(
            self.settings,
            self._store,
            self.bucket,
            written=frozenset(self.written),
            index_keys=self.index_keys,
            granted=self.granted,
        )

    def _reap(self) -> None:
        self.narrator.say("the reaper runs: decode, judge, execute, settle")
        self.reap()

    def _put_object(self, key: str, body: str) -> None:
        self._store.put(self.bucket, key, body.encode())
        self.written.add(key)
