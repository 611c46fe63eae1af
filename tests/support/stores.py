"""S3 servers that the store suite runs against, built once from their Go modules: SeaweedFS and versitygw.

They lie in the cache as `stores/weed` and `stores/versitygw`, outside the work tree. A store that was built
from another version is built anew.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import golang

from sexton.schemas.errors import EnvironmentFault, SextonError
from sexton.schemas.reporting import report_error

__all__ = ["SEAWEEDFS", "STORES", "VERSITYGW", "StoreBuild", "build", "built", "main"]

_BUILD_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class StoreBuild:
    """A server and what its binary is built from.

    `directives` are further lines of the module file, `compiler` is what Go's compiler is told: a large
    server that nobody measures is built without optimising, in two thirds of the time.
    """

    binary: str
    module: str
    version: str
    package: str
    directives: tuple[str, ...] = ()
    compiler: str = ""

    @property
    def module_file(self) -> str:
        """The text of the go.mod of a module that needs nothing but this server."""
        oldest = ".".join(str(number) for number in golang.OLDEST)
        lines = ["module sexton/stores", f"go {oldest}", f"require {self.module} {self.version}"]
        return "\n".join([*lines, *self.directives, ""])


SEAWEEDFS = StoreBuild(
    "weed",
    "github.com/seaweedfs/seaweedfs",
    "v0.0.0-20261109003541-7506e5f91cd6",
    "github.com/seaweedfs/seaweedfs/weed",
    # The original repository of this dependency is gone.
    ("replace github.com/tyler-smith/go-bip39 => github.com/cosmos/go-bip39 v1.0.0",),
    compiler="all=-N -l",
)
VERSITYGW = StoreBuild(
    "versitygw",
    "github.com/versity/versitygw",
    "v1.8.0",
    "github.com/versity/versitygw/cmd/versitygw",
)
STORES = (VERSITYGW, SEAWEEDFS)


def built(store: StoreBuild, cache: Path) -> Path | None:
    """Return the binary in the cache if it is there and of the right version."""
    binary = cache / "stores" / store.binary
    stamp = _stamp(binary)
    if binary.is_file() and stamp.is_file() and stamp.read_text(encoding="utf-8") == store.module_file:
        return binary
    return None


def build(store: StoreBuild, cache: Path, environ: Mapping[str, str] | None = None) -> Path:
    """Return the binary, built first unless it is in the cache; takes minutes the first time.

    A second process that finds it missing waits for the first. Raises ToolMissing without a Go,
    EnvironmentFault when the build fails.
    """
    found = built(store, cache)
    if found is not None:
        return found
    environ = os.environ if environ is None else environ
    go = golang.find(environ)
    folder = cache / "stores"
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder / f".{store.binary}.lock"):
        found = built(store, cache)
        if found is None:
            print(f"building {store.module} {store.version} into {folder} (once)", file=sys.stderr)
            found = _build(store, folder, str(go), environ)
    return found


def _build(store: StoreBuild, folder: Path, go: str, environ: Mapping[str, str]) -> Path:
    binary = folder / store.binary
    with tempfile.TemporaryDirectory(prefix=f".{store.binary}-", dir=folder) as temporary:
        work = Path(temporary)
        (work / "go.mod").write_text(store.module_file, encoding="utf-8")
        command = [go, "build", "-o", "made", "-trimpath", "-ldflags=-s -w"]
        command += [f"-gcflags={store.compiler}", store.package]
        settings = {"GOFLAGS": "-mod=mod -buildvcs=false", "CGO_ENABLED": "0", "GOWORK": "off"}
        try:
            done = subprocess.run(
                command,
                cwd=work,
                env={**environ, **settings},
                capture_output=True,
                text=True,
                timeout=_BUILD_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise EnvironmentFault(f"{store.binary} was not built within {_BUILD_SECONDS} s") from error
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise EnvironmentFault(
                f"{store.binary} could not be built: {last}",
                hint="the machine must reach a Go module proxy once",
            )
        # The stamp goes first and comes last: a binary without it is built again, never used half.
        _stamp(binary).unlink(missing_ok=True)
        (work / "made").replace(binary)
        (work / "stamp").write_text(store.module_file, encoding="utf-8")
        (work / "stamp").replace(_stamp(binary))
    return binary


def _stamp(binary: Path) -> Path:
    return binary.with_name(f"{binary.name}.mod")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def main(arguments: list[str] | None = None) -> int:
    """Build the named stores (all without a name); exit code 75 without Go and when a build fails."""
    from sexton.schemas import settings

    names = sys.argv[1:] if arguments is None else arguments
    try:
        cache = settings.load().cache_dir.expanduser()
        for store in STORES:
            if not names or store.binary in names:
                build(store, cache)
    except SextonError as error:
        return report_error(error)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
