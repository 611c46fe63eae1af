"""Each operation has one room: nothing else of the product tells operations, or their events, apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from tests.safeguards.lines import TREE, product

from sexton.issuer.answers import Validation
from sexton.issuer.client import Subject
from sexton.issuer.operations import FOLDS, OPERATIONS
from sexton.issuer.operations.validate import Validate
from sexton.issuer.subjects import KINDS
from sexton.issuer.testing import FakeIssuer
from sexton.schemas.events import GenerationEvent, Genesis

ROOMS = Path("issuer/sexton/issuer/operations")
CODECS = (Path("schemas/sexton/schemas/codec.py"), Path("consumers/sexton/consumers/output.py"))
"""What lists every kind of record, to turn each into bytes or text."""
NAMES = {each.__name__ for each in (*OPERATIONS, *FOLDS)}


def named(node: ast.AST | None) -> list[str]:
    """Return the operations and events that an expression names, alone, in a tuple or in a union."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return [name] if name in NAMES else []
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return [name for part in parts for name in named(part)]
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return named(left) + named(right)
    return []


def told_apart(text: str) -> Iterator[tuple[int, str]]:
    """Yield where a module asks which operation or event it has before it, or has a table of several."""
    for node in ast.walk(ast.parse(text)):
        found: list[str] = []
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, classes]):
                found = named(classes)
            case ast.MatchClass(cls=cls):
                found = named(cls)
            case ast.Compare(comparators=others):
                found = [name for other in others for name in named(other)]
            case ast.Dict(keys=keys):
                found = [name for key in keys for name in named(key)]
            case ast.Tuple() | ast.List() | ast.Set():
                found = named(node)[1:]
        yield from ((getattr(node, "lineno", 0), name) for name in found)


def test_only_the_rooms_tell_operations_apart() -> None:
    """No `isinstance`, `match` or table over request or event classes stands outside; the codecs' may."""
    outside = {path: text for path, text in product().items() if path.suffix == ".py" and path not in CODECS}
    found = [
        f"{path}:{line}: {name}"
        for path, text in outside.items()
        if ROOMS not in path.parents
        for line, name in told_apart(text)
    ]

    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(body, wire.Attach)",
        "isinstance(body, Attach | Detach)",
        "isinstance(event, (events.Issued, int))",
        "match event:\n    case events.Dropped(): pass",
        "MAY = {wire.Drop: 1}",
        "BODIES = (wire.Drop, wire.Attach)",
        "changes = body not in (Validate,)",
        "type(event) is Issued",
    ],
)
def test_each_way_to_tell_them_apart_is_noticed(text: str) -> None:
    """The walk sees what it is for."""
    assert list(told_apart(text))


def test_every_event_of_the_log_has_a_room() -> None:
    """Each kind of event but Genesis is folded by an operation, and each path is one operation's."""
    assert {*FOLDS, Genesis} == set(GenerationEvent.__args__)
    assert len({each.path for each in OPERATIONS}) == len(OPERATIONS)
    assert sorted(Path(TREE, ROOMS).glob("*.py")) != []


def test_every_kind_of_subject_has_its_place_in_question_and_answer() -> None:
    """Each kind is asked in a list of its own, answered in another, and read into fields of its own."""
    places = [(kind.asked_in, kind.answered_in) for kind in KINDS]

    assert {asked for asked, _ in places} == set(Validate.__struct_fields__) - {"at_least"}
    assert {answered for _, answered in places} <= set(Validate.answer.__struct_fields__)
    parts = [name for kind in KINDS for name in kind.found().parts()]
    assert sorted(parts) == sorted({each.name for each in fields(Validation)} - {"log_offset", "topic_id"})


def test_a_question_leaves_no_event_in_the_fakes_log() -> None:
    """Nobody else writes to a list: the fake needs no barrier to know its end."""
    issuer = FakeIssuer()
    issuer.attach("n", "t")
    before = list(issuer.log)

    assert len(issuer.validate([Subject("t", 1, 0)]).windows) == 1
    assert issuer.log == before
