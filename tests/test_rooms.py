"""Kinds are known in their rooms alone: everything else asks the room, or iterates over a registry."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.schemas.actions import ACTIONS
from sexton.schemas.guards import GUARDS
from sexton.schemas.vetoes import VETOES
from sexton.streaming_jobs.reaper.actions.registry import ROOMS as EXECUTING
from sexton.streaming_jobs.reaper.guards import ROOMS as JUDGING

TREE = Path(__file__).parents[1]
ROOTS = ("schemas", "storage", "issuer", "producers", "streaming_jobs", "consumers", "deploy")
KINDS = {kind.__name__ for kind in (*GUARDS, *ACTIONS, *VETOES)}
ROOMS = (
    "schemas/sexton/schemas/guards/",
    "schemas/sexton/schemas/actions/",
    "streaming_jobs/sexton/streaming_jobs/reaper/guards/",
    "streaming_jobs/sexton/streaming_jobs/reaper/actions/",
    "streaming_jobs/sexton/streaming_jobs/reaper/vetoes/",
    "streaming_jobs/sexton/streaming_jobs/collectors/leftovers/",
    "streaming_jobs/sexton/streaming_jobs/collectors/sequenced/",
    "streaming_jobs/sexton/streaming_jobs/collectors/transactions/",
)


def kinds_told_apart(code: str) -> Iterator[tuple[int, str]]:
    """Yield line and kind where code tells guards or actions apart by their class."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Call(func=ast.Name("isinstance" | "issubclass"), args=[_, kinds]):
                yield from named(kinds)
            case ast.MatchClass(cls=kind):
                yield from named(kind)
            case ast.Dict(keys=keys):
                for key in keys:
                    if isinstance(key, ast.Name | ast.Attribute):
                        yield from named(key)
            case ast.Compare(left=ast.Call(func=ast.Name("type")), comparators=compared):
                for each in compared:
                    yield from named(each)


def named(node: ast.expr) -> Iterator[tuple[int, str]]:
    """Yield the kinds that an expression names."""
    for each in ast.walk(node):
        name = each.id if isinstance(each, ast.Name) else each.attr if isinstance(each, ast.Attribute) else ""
        if name in KINDS:
            yield node.lineno, name


def test_guards_and_actions_are_told_apart_in_their_rooms_alone() -> None:
    """A new kind is its rooms and a line of a registry: no other module knows one from another."""
    found = []
    for root in ROOTS:
        for file in sorted((TREE / root).glob("**/*.py")):
            path = file.relative_to(TREE).as_posix()
            if not path.startswith(ROOMS):
                found += [
                    f"{path}:{line}: {kind}" for line, kind in kinds_told_apart(file.read_text("utf-8"))
                ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(guard, events.GenerationGuard)",
        "isinstance(action, DeleteObjects | DeletePrefix)",
        "match guard:\n    case events.PromiseGuard():\n        pass",
        "{DeletePrefix: 1}",
        "type(action) is DeletePrefix",
    ],
)
def test_the_walk_sees_each_way_to_tell_them_apart(code: str) -> None:
    """The test above can fail."""
    assert list(kinds_told_apart(code))


def test_the_registries_name_kinds_that_there_are() -> None:
    """What is judged is a guard, what is executed an action; others wait for a newer reaper."""
    assert set(JUDGING) <= set(GUARDS)
    assert set(EXECUTING) <= set(ACTIONS)
