"""The list of safeguards: `*.toml` beside this file, one `[[safeguard]]` for each line of it.

    [[safeguard]]
    name = "what is protected, in a few words"
    text = '''the code that protects, as it stands; once in the whole product'''
    edit = '''what takes its place when the safeguard is removed'''
    tests = ["test_that_must_fail"]

Neither the file nor the test's file is named: both are looked up, so that nothing changes here when code
moves. A test whose name stands in two files is named with its file's: `test_running::test_name`; one case of
a parametrised test as pytest prints it: `test_name[case]`.

A module without a line has a reason in the table `[without]` of one of the files. What was edited and made no
test fail, and may, is a `[[survivor]]` of a file: a text, an edit, the reason.
"""

from __future__ import annotations

import ast
import functools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "LIST",
    "TREE",
    "Line",
    "Misfit",
    "edited",
    "load",
    "module_of",
    "modules",
    "node_ids",
    "place_of",
    "product",
    "survivors",
    "without",
]

TREE = Path(__file__).parents[2]
LIST = Path(__file__).parent
_ROOTS = ("schemas", "storage", "issuer", "producers", "streaming_jobs", "consumers", "deploy")
_KINDS = frozenset([".py", ".lua"])
_FIELDS = {"name", "text", "edit", "tests"}


class Misfit(Exception):
    """A line of the list does not fit the tree."""


@dataclass(frozen=True, slots=True)
class Line:
    """One safeguard: `text` protects `name`; once `edit` takes its place, every one of `tests` must fail."""

    name: str
    text: str
    edit: str
    tests: tuple[str, ...]


def load(folder: Path = LIST) -> list[Line]:
    """Return the whole list in the order of files and lines; raises Misfit for a line that is not one."""
    found: list[Line] = []
    for file in sorted(folder.glob("*.toml")):
        for entry in _read(file).get("safeguard", []):
            if set(entry) != _FIELDS or not entry["tests"] or entry["text"] == entry["edit"]:
                raise Misfit(f"{file.name}: not a line of the list: {entry.get('name', entry)}")
            found.append(Line(entry["name"], entry["text"], entry["edit"], tuple(entry["tests"])))
    return found


def survivors(folder: Path = LIST) -> list[Line]:
    """Return the edits that no test has to notice, each named by its reason."""
    found = [entry for file in sorted(folder.glob("*.toml")) for entry in _read(file).get("survivor", [])]
    return [Line(entry["reason"], entry["text"], entry["edit"], ()) for entry in found]


def without(folder: Path = LIST) -> dict[str, str]:
    """Return the modules that have no line, each with the reason."""
    found: dict[str, str] = {}
    for file in sorted(folder.glob("*.toml")):
        found.update(_read(file).get("without", {}))
    return found


@functools.cache
def product(tree: Path = TREE) -> Mapping[Path, str]:
    """Return the text of each source file of the product, by its path in the tree."""
    return {
        file.relative_to(tree): file.read_text()
        for root in _ROOTS
        for file in sorted((tree / root).rglob("*"))
        if file.suffix in _KINDS and file.is_file()
    }


def place_of(line: Line, tree: Path = TREE) -> Path:
    """Return the file in which a line's text stands; raises Misfit unless it stands exactly once."""
    places = [(path, text.count(line.text)) for path, text in product(tree).items() if line.text in text]
    if len(places) != 1 or places[0][1] != 1:
        reported = ", ".join(f"{path} ({times} times)" for path, times in places) or "nowhere"
        raise Misfit(f"the text of {line.name!r} must stand once in the product, found: {reported}")
    return places[0][0]


def edited(line: Line, tree: Path = TREE) -> str:
    """Return the file of a line without the safeguard; raises Misfit when that would not compile."""
    path = place_of(line, tree)
    text = product(tree)[path].replace(line.text, line.edit)
    if path.suffix == ".py":
        try:
            ast.parse(text)
        except SyntaxError as error:
            raise Misfit(f"the edit of {line.name!r} does not compile: {error}") from error
    return text


def modules(part: str, tree: Path = TREE) -> set[str]:
    """Return the names of the modules of a part that hold code: they need a line, or a reason why not."""
    found = {
        module_of(path) for path, text in product(tree).items() if path.suffix == ".py" and _has_code(text)
    }
    return {name for name in found if name.startswith(f"{part}.")}


def module_of(path: Path) -> str:
    """Return the module of a source file of the product."""
    return ".".join(path.with_suffix("").parts[1:])


def _has_code(text: str) -> bool:
    return any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.walk(ast.parse(text)))


@functools.cache
def _tests(tree: Path) -> dict[str, list[str]]:
    """Return the tests of each name as pytest names them, those in classes too."""
    found: dict[str, list[str]] = {}
    for file in sorted((tree / "tests").rglob("test_*.py")):
        module = ast.parse(file.read_text())
        classes = [(f"{node.name}::", node.body) for node in module.body if isinstance(node, ast.ClassDef)]
        for place, body in [("", module.body), *classes]:
            for node in body:
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    found.setdefault(node.name, []).append(f"{file.relative_to(tree)}::{place}{node.name}")
    return found


def node_ids(names: Iterable[str], tree: Path = TREE) -> list[str]:
    """Return the tests as pytest names them; raises Misfit for one that is not there, or there twice."""
    return [_node_id(name, tree) for name in names]


def _node_id(name: str, tree: Path) -> str:
    stem, _, rest = name.rpartition("::")
    test, bracket, case = rest.partition("[")
    ids = [each for each in _tests(tree).get(test, []) if stem in ("", Path(each.partition("::")[0]).stem)]
    if len(ids) != 1:
        raise Misfit(f"a test must be in one place: {name}, found: {', '.join(ids) or 'none'}")
    return f"{ids[0]}{bracket}{case}"


def _read(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text())
