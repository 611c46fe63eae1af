"""Making a pack: what executors on a Spark cluster need, from what is installed here.

The archive is a virtual environment that pex lays out without a network, from the distributions of this one:
the same versions as the driver's. Spark is not in it; executors have their own. Its Python is a link to one
that the workers have.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

import sexton
from sexton.deploy import jars
from sexton.schemas.errors import EnvironmentFault, ToolMissing, UsageError
from sexton.streaming_jobs.pack import ARCHIVE, Pack, check_path, here, is_pack

__all__ = ["make", "requirements", "write_code"]

_SECONDS = 900
_EXTRA = "executors"


def make(folder: Path, python: Path, cache: Path) -> Pack:
    """Make a pack in a folder that is new or one; `python` is where workers have Python, `cache` has jars.

    Raises UsageError for a folder of something else or a Python that cannot be right, ToolMissing without a
    virtual environment, EnvironmentFault when a package or jar cannot be had.
    """
    _check_folder(folder)
    _check_python(python)
    if sys.prefix == sys.base_prefix:
        raise ToolMissing(
            f"a pack is made from a virtual environment, this Python is in none: {sys.executable}",
            hint='python3 -m venv DIR && DIR/bin/pip install "sexton[streaming,pack]"',
        )
    folder = folder.absolute()
    with _beside(folder) as temporary:
        draft = Pack(Path(temporary) / "pack", here())
        draft.folder.mkdir()
        write_code(draft.code)
        _write_archive(draft, python, Path(temporary))
        shutil.copytree(jars.fetch(jars.CONNECTOR, cache), draft.folder / "jars")
        draft.note()
        # As a whole: who reads it meanwhile finds the old one, or none, never half of it.
        if folder.exists():
            folder.replace(Path(temporary) / "old")
        draft.folder.replace(folder)
    return Pack(folder.resolve(), draft.made)


def _beside(folder: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent)
    except OSError as error:
        raise UsageError(
            f"the pack cannot be made there: {folder}: {error.strerror}",
            hint="--to names a folder that this user can make",
        ) from error


def requirements() -> list[str]:
    """Return what executors import beside Sexton, by its metadata; the registry's client if it is here."""
    extras = [_EXTRA]
    if importlib.util.find_spec("authlib") is not None:  # of that client alone
        extras.append("registry")
    wanted = []
    for line in distribution("sexton").requires or ():
        needed = Requirement(line)
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
            needed.marker = None
            wanted.append(str(needed))
    return wanted


def write_code(path: Path) -> None:
    """Write Sexton as a zip that Python imports from: with its folders as entries.

    Without those a package that has no `__init__.py` cannot be found in a zip. Its metadata are in it, by
    which executors know their version.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        written: set[str] = set()
        for name, content in _code():
            for parent in reversed(Path(name).parents[:-1]):
                if f"{parent}/" not in written:
                    out.writestr(f"{parent}/", b"")
                    written.add(f"{parent}/")
            out.writestr(name, content)


def _code() -> Iterator[tuple[str, bytes]]:
    for root in map(Path, sexton.__path__):
        for file in sorted(root.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield f"sexton/{file.relative_to(root)}", file.read_bytes()
    ours = distribution("sexton")
    yield f"sexton-{ours.version}.dist-info/METADATA", (ours.read_text("METADATA") or "").encode()


def _write_archive(pack: Pack, python: Path, temporary: Path) -> None:
    environment = temporary / ARCHIVE
    _lay_out(environment, python, temporary / "pex")
    with zipfile.ZipFile(pack.code) as code:
        code.extractall(environment / "lib" / f"python{pack.made.python}" / "site-packages")
    with tarfile.open(pack.archive, "w:gz", compresslevel=6) as out:
        for part in sorted(environment.iterdir()):
            out.add(part, part.name)


def _lay_out(environment: Path, python: Path, cache: Path) -> None:
    command = [sys.executable, "-m", "pex.cli", "venv", "create", "--layout", "venv", "-d", str(environment)]
    command += ["--venv-repository", sys.prefix, "--link-python", str(python), "--site-packages-copies"]
    command += ["--pex-root", str(cache), *requirements()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFault(f"the archive was not laid out within {_SECONDS} s") from error
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise EnvironmentFault(
            f"the packages that executors need cannot be packed: {'; '.join(lines[-3:])[:500]}",
            hint=f'{sys.executable} -m pip install "sexton[streaming,pack]" installs what is packed',
        )


def _check_folder(folder: Path) -> None:
    check_path(folder)
    if folder.exists() and not is_pack(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"the folder holds something else than a pack: {folder}", hint="--to names a new one"
        )


def _check_python(python: Path) -> None:
    """Look at a Python that this machine has, too: workers' own is known to nobody here."""
    if not python.is_absolute():
        raise UsageError(f"not a path from the root: {python}", hint="--python is a path on the workers")
    if not python.exists():
        return
    asked = [str(python), "-c", "import platform; print(platform.python_version())"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
        if not found:
            raise subprocess.SubprocessError("it says no version")
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"not a Python that starts: {python}", hint="--python names another") from error
    if found != (ours := platform.python_version()):
        # To the last number: what packages ask for may differ with it, and these are the driver's.
        raise UsageError(
            f"{python} is Python {found}, the driver's is {ours}",
            hint=f"make the driver's environment with the workers' Python: {python} -m venv DIR",
        )
