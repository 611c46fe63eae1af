"""A Docker engine for tests: the one that answers, else, as root on Debian, one of our own for a while.

    python -m tests.support.engine COMMAND...

runs a command with `DOCKER_HOST` set to it. An engine of our own keeps all that it has in a temporary folder,
and goes with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sexton.schemas.errors import EnvironmentFault, SextonError, ToolMissing
from sexton.schemas.reporting import report_error

__all__ = ["PACKAGES", "answers", "engine", "install", "main"]

PACKAGES = {
    "dockerd": ("docker.io", "iptables"),
    "mmdebstrap": ("mmdebstrap",),
    "docker-compose": ("docker-compose",),
}
"""A program of an engine's host, and the Debian packages that bring it."""
_READY_SECONDS = 150


def answers(host: str | None = None) -> bool:
    """Return whether an engine answers at this address, by default where `DOCKER_HOST` or docker says."""
    if shutil.which("docker") is None:
        return False
    environment = dict(os.environ) if host is None else {**os.environ, "DOCKER_HOST": host}
    done = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"],
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode == 0


def install(*programs: str) -> None:
    """Install the Debian packages of these programs where they are missing.

    Raises ToolMissing for who is not root on Debian, EnvironmentFault when apt fails.
    """
    lacking = [name for name in programs if shutil.which(name) is None]
    if not lacking:
        return
    packages = [package for name in lacking for package in PACKAGES[name]]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ToolMissing(
            f"no Docker engine answers, and there is no {', '.join(lacking)} to make do without",
            hint="start an engine and set DOCKER_HOST, or run this as root on Debian, which installs one",
        )
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
    wanted = [*apt, "install", "-y", "--no-install-recommends", *packages]
    for command in ([*apt, "update"], wanted):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise EnvironmentFault(f"{' '.join(command)}: {done.stderr.strip()}")


@contextmanager
def engine() -> Iterator[str | None]:
    """Yield the address of an engine, None for the one that docker finds by itself.

    Raises ToolMissing where there is none and none can be started here, EnvironmentFault where it fails.
    """
    if answers():
        yield os.environ.get("DOCKER_HOST")
        return
    install("dockerd")
    if os.geteuid() != 0:
        raise ToolMissing("no Docker engine answers, and only root can start one", hint="set DOCKER_HOST")
    # Short, as the path of a socket has to be; what the daemon mounts in it is gone once it has ended.
    folder = Path(tempfile.mkdtemp(prefix="sexton-engine-"))
    try:
        with _daemon(folder) as host:
            yield host
    finally:
        shutil.rmtree(folder)


@contextmanager
def _daemon(folder: Path) -> Iterator[str]:
    host = f"unix://{folder}/socket"
    places = ("--data-root", "data", "--exec-root", "exec", "--pidfile", "pid")
    command = [part if part.startswith("--") else f"{folder}/{part}" for part in places]
    log = folder / "log"
    with log.open("w") as out:
        daemon = subprocess.Popen(["dockerd", "-H", host, *command], stdout=out, stderr=out)
        try:
            deadline = time.monotonic() + _READY_SECONDS
            while not answers(host):
                if daemon.poll() is not None or time.monotonic() > deadline:
                    last = log.read_text(encoding="utf-8").strip().splitlines()[-1:]
                    raise EnvironmentFault(f"the Docker engine does not start: {' '.join(last)}")
                time.sleep(0.2)
            yield host
        finally:
            daemon.terminate()
            daemon.wait(_READY_SECONDS)


def main(command: Sequence[str] | None = None) -> int:
    """Run the command with an engine; its exit code, or 75 where no engine can be had."""
    command = sys.argv[1:] if command is None else command
    try:
        with engine() as host:
            environment = dict(os.environ) if host is None else {**os.environ, "DOCKER_HOST": host}
            return subprocess.run(command, env=environment, check=False).returncode
    except SextonError as error:
        return report_error(error)


if __name__ == "__main__":
    raise SystemExit(main())
