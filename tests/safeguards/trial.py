"""Trying a line of the list: its edit is made in a copy of the tree, and its tests are run there.

The copy has an interpreter of its own, that finds the product in the copy and nowhere else: what a test
starts with `sys.executable` (a reaper, an issuer, Spark's workers) is the edited code too.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sysconfig
import venv
import xml.etree.ElementTree as Xml
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tests.safeguards.lines import TREE, Line, edited, node_ids, place_of

__all__ = ["Copy", "Run", "Verdict", "judge"]

_ROOTS = ("schemas", "storage", "issuer", "producers", "streaming_jobs", "consumers", "deploy")
_WHERE = """
import importlib, pathlib, sys
for part in sys.argv[2:]:
    paths = importlib.import_module(f"sexton.{part}").__path__
    assert all(pathlib.Path(path).is_relative_to(sys.argv[1]) for path in paths), list(paths)
"""
# An edit that only breaks the code says nothing of what it protected.
_BROKEN = re.compile(
    r"\b(NameError|UnboundLocalError|ImportError|ModuleNotFoundError|SyntaxError|IndentationError)\b: "
)


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one run: the tests that passed and failed, by pytest's names, and what was printed."""

    passed: frozenset[str]
    failed: frozenset[str]
    text: str
    seconds: float
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a trial showed; `fault` is empty when every named test failed."""

    line: Line
    fault: str
    run: Run


class Copy:
    """A copy of the tree in which edits are made, one at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = folder / "tree"
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=TREE, capture_output=True, text=True, check=True,
        )  # fmt: skip
        for name in filter(None, listed.stdout.split("\0")):
            if (source := TREE / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, self.tree / name)
        self.python = self._interpreter()
        subprocess.run(
            [self.python, "-c", _WHERE, self.tree, *_ROOTS], cwd=folder, check=True, env=_environment()
        )
        self._zygote = subprocess.Popen(
            [self.python, "-m", "tests.safeguards.zygote"],
            cwd=self.tree, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def _interpreter(self) -> Path:
        """Make a virtual environment that sees the installed packages, and the product in the copy alone.

        The installed ones stand on its path as a plain folder, so that the file in there which leads to the
        original tree is not read.
        """
        home = self.tree / ".venv"
        venv.create(home, symlinks=True, with_pip=False)
        site = Path(sysconfig.get_path("purelib", "venv", {"base": str(home), "platbase": str(home)}))
        folders = [*(self.tree / root for root in _ROOTS), Path(sysconfig.get_path("purelib"))]
        (site / "safeguards.pth").write_text("".join(f"{folder}\n" for folder in folders))
        scripts = Path(sysconfig.get_path("scripts"))
        for name in ("sexton", "spark-submit"):
            text = (scripts / name).read_text()
            (home / "bin" / name).write_text(text.replace(str(scripts / "python"), str(home / "bin/python")))
            (home / "bin" / name).chmod(0o755)
        return home / "bin" / "python"

    def run(self, tests: Sequence[str]) -> Run:
        """Run tests, named as pytest does, on the copy as it is now."""
        report, printed = self.folder / "report.xml", self.folder / "printed"
        report.unlink(missing_ok=True)
        options = [
            "-q",
            "--no-header",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
        ]
        options += [f"--junitxml={report}", f"--basetemp={self.folder / 'pytest'}"]
        started = monotonic()
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        print(json.dumps([str(printed), *options, *tests]), file=self._zygote.stdin, flush=True)
        self._zygote.stdout.readline()
        return _read(report, printed.read_text(), monotonic() - started)

    def without(self, line: Line) -> Run:
        """Run a line's tests without its safeguard."""
        path = self.tree / place_of(line)
        original = path.read_text()
        try:
            _write(path, edited(line))
            return self.run(node_ids(line.tests))
        finally:
            _write(path, original)


def judge(line: Line, run: Run) -> Verdict:
    """Return whether every test that a line names failed, as a test and for the edit's meaning."""
    for test in node_ids(line.tests):
        if not any(_is_case(test, name) for name in run.failed):
            passed = any(_is_case(test, name) for name in run.passed)
            return Verdict(line, f"{'passes without it' if passed else 'could not be run'}: {test}", run)
    if run.broken:
        return Verdict(line, f"the edit only breaks the code: {run.broken}", run)
    return Verdict(line, "", run)


def _is_case(test: str, name: str) -> bool:
    """Return whether a name is a test's own, or that of one of its cases."""
    return name == test or name.startswith(f"{test}[")


def _read(report: Path, text: str, seconds: float) -> Run:
    passed, failed, broken = set(), set(), ""
    cases = Xml.parse(report).iter("testcase") if report.exists() else ()
    for case in cases:
        module, dot, group = case.get("classname", "").partition(".Test")
        owner = f"Test{group}::" if dot else ""
        name = f"{module.replace('.', '/')}.py::{owner}{case.get('name')}"
        failure = case.find("failure")
        if failure is not None:
            failed.add(name)
            match = _BROKEN.search(failure.get("message", ""))
            broken = broken or (match.group(1) if match else "")
        elif case.find("error") is None and case.find("skipped") is None:
            passed.add(name)
    return Run(frozenset(passed), frozenset(failed), text, seconds, broken)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    # What was compiled from a text of the same second and length would be taken for this one's.
    if path.suffix == ".py":
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def _environment() -> dict[str, str]:
    """Return what a copy's programs see; what they compile is kept, else each run compiles all anew."""
    left_out = {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"}
    return {name: value for name, value in os.environ.items() if name not in left_out}
