"""The images of Sexton, and stand-ins for public ones, built where no registry of images can be reached.

    python -m tests.support.images

builds all of them on the engine that docker finds; `BASE` names another base than the one that is made here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import engine

from sexton.schemas.errors import EnvironmentFault, SextonError
from sexton.schemas.reporting import report_error

__all__ = ["BROKER", "ISSUER", "REAPER", "S3", "TOOLS", "VALKEY", "base", "build", "main"]

ROOT = Path(__file__).parents[2]
ISSUER, REAPER, TOOLS = (f"sexton-{name}:latest" for name in ("issuer", "reaper", "tools"))
BROKER, VALKEY, S3 = (f"sexton-test-{name}:latest" for name in ("broker", "valkey", "s3"))
_BASE = "sexton-test-base:bookworm"
_SUITE = "bookworm"  # whose Python is 3.11
_DROPPED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")


def base(cache: Path) -> str:
    """Return the name of the base image: Debian with Python, made once and kept in the cache as an archive.

    Raises EnvironmentFault when it cannot be made, ToolMissing without the program for it.
    """
    if _docker("image", "inspect", _BASE, check=False).returncode == 0:
        return _BASE
    archive = cache / "containers" / f"{_SUITE}.tar"
    if not archive.is_file():
        engine.install("mmdebstrap")
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as temporary:
            made = Path(temporary, "base.tar")
            options = [f"--dpkgopt=path-exclude={path}" for path in _DROPPED]
            include = "--include=python3-venv,ca-certificates"
            _run(["mmdebstrap", "--quiet", "--variant=minbase", include, *options, _SUITE, str(made)])
            made.replace(archive)
    _docker("import", str(archive), _BASE)
    return _BASE


def build(cache: Path) -> None:
    """Build all images on the engine that docker finds; what it has built it takes from its own cache."""
    environment = {**os.environ, "PYTHON": sys.executable, "TAG": "latest"}
    environment.setdefault("BASE", base(cache))
    _run([str(ROOT / "deploy" / "images" / "build")], environment)
    folder = Path(__file__).with_name("stand_ins")
    for image in (BROKER, VALKEY, S3):
        target = image.removeprefix("sexton-test-").partition(":")[0]
        _docker("build", "--network=none", "--target", target, "--tag", image, str(folder))


def _docker(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return _run(["docker", *arguments], check=check)


def _run(
    command: list[str], environment: dict[str, str] | None = None, *, check: bool = True
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
        raise EnvironmentFault(f"{' '.join(command[:3])} ended with {done.returncode}: {last}")
    return done


def main() -> int:
    """Build all images; exit code 75 if one cannot be built."""
    from sexton.schemas import settings

    try:
        build(settings.load().cache_dir.expanduser())
    except SextonError as error:
        return report_error(error)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
