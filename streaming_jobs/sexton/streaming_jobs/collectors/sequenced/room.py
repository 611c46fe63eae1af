"""The collector `sequenced`: files of sequenced metadata that newer ones have replaced.

Each namespace is asked for under its boundary, which the reaper raises before it deletes. Which files are
held by checkpoints, and where the boundary is, is asked once the whole listing is there: a checkpoint that
was made while it was listed is seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from sexton.schemas.errors import InvalidFormat, UsageError
from sexton.schemas.sequenced import Namespace, parse_boundary
from sexton.storage import Absent, NoReply, StoreRefused, read_if_changed
from sexton.storage import Found as StoredObject
from sexton.streaming_jobs.collectors.durations import seconds
from sexton.streaming_jobs.collectors.room import Found, PlainRoom, RoomOption, Scope, Sources, Unresolved
from sexton.streaming_jobs.collectors.sequenced.checkpoints import (
    Answer,
    Checkpoints,
    FromFile,
    NoCheckpoints,
    NotSaid,
    Unknown,
    held_in,
)
from sexton.streaming_jobs.collectors.sequenced.decide import (
    Fact,
    found_in,
    is_asked_about,
    problem_of,
    unresolved_of,
)
from sexton.streaming_jobs.collectors.sequenced.engine import MANIFEST, FromEngine
from sexton.streaming_jobs.collectors.sequenced.files import Files, FilesFold, joined

__all__ = ["ROOM", "Sequenced", "SequencedPlan"]

_ASK_AT_ONCE = 8
_SOURCES: Mapping[str, Checkpoints] = {
    "unknown": NotSaid(),
    "none": NoCheckpoints(),
    "slatedb": FromEngine(),
}
_OPTIONS = (
    RoomOption("checkpoints", "who says what checkpoints hold: slatedb, a JSON file, none", "unknown"),
    RoomOption("min-age", "younger files are kept, by the store's clock", "24h"),
    RoomOption("names", "names of namespaces, with commas between", "manifest,compactions"),
)


@dataclass(frozen=True, slots=True)
class SequencedPlan:
    """The names and the age that are looked for; once all is listed, its Date and what was asked then."""

    names: Sequence[str]
    min_age_s: float
    listed_at: datetime | None = None
    facts: Sequence[Fact] = ()
    unresolved: Sequence[Unresolved] = ()

    def fold(self) -> FilesFold:
        """Return a new fold."""
        return FilesFold(self.names)

    @property
    def facts_by_root(self) -> dict[str, list[Fact]]:
        """What is known of each database."""
        found: dict[str, list[Fact]] = {}
        for each in self.facts:
            found.setdefault(each.root, []).append(each)
        return found


class Sequenced(PlainRoom):
    """The room, with the values of its options."""

    name = "sequenced"
    summary = "files of sequenced metadata that newer ones have replaced"
    prefix_help = "prefix of a database or of many, ends in /"
    prefix_example = "db/"
    plan_type = SequencedPlan
    part_type = Files
    options: Sequence[RoomOption] = _OPTIONS

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = {**{each.name: each.default for each in _OPTIONS}, **given}
        self._names = _names(self.given["names"])
        self._min_age_s = seconds(self.given["min-age"])
        said = self.given["checkpoints"]
        self._checkpoints = _SOURCES.get(said) or FromFile(Path(said))

    def configured(self, given: Mapping[str, str]) -> Sequenced:
        """Return the room with values of its options; raises UsageError."""
        return Sequenced(given)

    def listed(self, scope: Scope) -> str:
        """Return the prefix."""
        return scope.prefix

    def plan(self, scope: Scope, sources: Sources) -> SequencedPlan:
        """Return what is looked for; raises UsageError where nobody could say what checkpoints hold."""
        self._checkpoints.check(self._names)
        return SequencedPlan(self._names, self._min_age_s)

    def sift(self, parts: Sequence[Files], sources: Sources) -> list[Files]:
        """Return all parts: which file is the newest is known once all are there."""
        return list(parts)

    def complete(
        self,
        plan: SequencedPlan,
        scope: Scope,
        parts: Sequence[Files],
        sources: Sources,
        listed_at: datetime,
    ) -> SequencedPlan:
        """Ask for boundaries and checkpoints, of databases that may have garbage alone.

        Now, and not before the listing: what is held is asked after the files were seen, so that a
        checkpoint on one of them counts though it was made meanwhile.
        """
        folders = joined(parts)
        asked = [each for each in folders if is_asked_about(each, listed_at, plan.min_age_s)]
        facts = self._facts(folders, asked, scope, sources, listed_at) if asked else []
        done = replace(plan, listed_at=listed_at, facts=facts)
        known = done.facts_by_root
        unresolved = [one for each in folders for one in unresolved_of(each, known.get(each.root, ()))]
        return replace(done, unresolved=unresolved)

    def decide(self, plan: SequencedPlan, scope: Scope, parts: Sequence[Files]) -> list[Found]:
        """Return the findings of each namespace; pure."""
        if plan.listed_at is None:
            return []
        known, listed_at = plan.facts_by_root, plan.listed_at
        return [
            found
            for each in joined(parts)
            for found in found_in(each, known.get(each.root, ()), scope, listed_at, plan.min_age_s)
        ]

    def _facts(
        self,
        folders: Sequence[Files],
        asked: Sequence[Files],
        scope: Scope,
        sources: Sources,
        listed_at: datetime,
    ) -> list[Fact]:
        manifests = {each.root: max(each.ids) for each in folders if each.name == MANIFEST and each.ids}
        newest = {each.root: manifests.get(each.root) for each in asked}
        address = sources.store.address(scope.bucket)
        answers = self._checkpoints.ask(address, scope.bucket, newest)
        instants = datetime.now(UTC), listed_at
        with ThreadPoolExecutor(_ASK_AT_ONCE) as pool:
            boundaries = pool.map(lambda each: _boundary(each, scope.bucket, sources), asked)
            return [
                _fact(each, answers[each.root], boundary, instants, self._names)
                for each, boundary in zip(asked, boundaries, strict=True)
            ]


def _fact(
    files: Files, answer: Answer, boundary: int | str, instants: Sequence[datetime], names: Sequence[str]
) -> Fact:
    if isinstance(answer, Unknown):
        return Fact(files.root, files.name, problem=answer.why)
    if (other := next((each.name for each in answer if each.name not in (None, *names)), None)) is not None:
        # Misspelt it would hold nothing, and the file that was meant would go.
        problem = f"a checkpoint holds a file of the name {other!r:.80}, which --names does not have"
        return Fact(files.root, files.name, problem=problem)
    if isinstance(boundary, str):
        return Fact(files.root, files.name, problem=boundary)
    held = sorted(held_in(answer, files.name, *instants))
    return Fact(files.root, files.name, boundary, held, problem_of(files, boundary))


def _boundary(files: Files, bucket: str, sources: Sources) -> int | str:
    """Return the boundary, or why nobody can tell; absent is 0."""
    key = files.namespace.boundary_key
    try:
        found = read_if_changed(sources.store.calls, bucket, key)
        if isinstance(found, StoredObject):
            return parse_boundary(found.body)
        return 0 if isinstance(found, Absent) else f"{key}: no answer"
    except (InvalidFormat, StoreRefused, NoReply) as error:
        return f"{key}: {error}"


def _names(text: str) -> Sequence[str]:
    names = tuple(each.strip() for each in text.split(","))
    for each in names:
        try:
            Namespace("", each)
        except InvalidFormat as error:
            raise UsageError(f"--names: {error}", hint="such as manifest,compactions") from error
    return names


ROOM = Sequenced({})
