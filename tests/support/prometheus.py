"""Prometheus and its `promtool`: those on PATH, else Debian's package, unpacked once beside the jars."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from sexton.schemas.settings import load

__all__ = ["program"]

_PACKAGE = "prometheus"


def program(name: str) -> Path | None:
    """Return the program, None where it is not there and this is no Debian; raises CalledProcessError."""
    if (found := shutil.which(name)) is not None:
        return Path(found)
    if shutil.which("apt-get") is None:
        return None
    folder = load({key: value for key, value in os.environ.items() if key == "SEXTON_CACHE_DIR"}).cache_dir
    unpacked = folder.expanduser() / _PACKAGE
    if not unpacked.exists():
        _unpack(unpacked)
    return unpacked / "usr" / "bin" / name


def _unpack(target: Path) -> None:
    """Fetch the package and unpack it; no service is installed or started."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        if os.geteuid() == 0:
            _run(folder, "apt-get", "update", "-q")
        _run(folder, "apt-get", "download", "-q", _PACKAGE)
        (package,) = Path(folder).glob("*.deb")
        _run(folder, "dpkg", "-x", package.name, "unpacked")
        # Whole or not at all: another process may look meanwhile.
        (Path(folder) / "unpacked").rename(target)


def _run(folder: str, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=250)
