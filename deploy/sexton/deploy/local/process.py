"""Start, recognise and end processes that outlive the one that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from sexton.schemas.errors import EnvironmentFault

__all__ = ["Process", "alive", "last_lines", "send", "spawn", "started", "stop"]

_TERM_SECONDS = 15.0
_POLL_SECONDS = 0.02


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Process:
    """A process by pid and start: a pid alone may belong to another process by now."""

    pid: int
    start: str


def spawn(command: Sequence[str], *, directory: Path, log: Path, environment: Mapping[str, str]) -> Process:
    """Start a command in a session of its own, its output appended to `log`.

    Its own session keeps the terminal's Ctrl-C from it: who ends it, and in which order, is decided here.
    Raises EnvironmentFault when the program cannot be started.
    """
    with log.open("ab") as output:
        try:
            child = subprocess.Popen(
                list(command),
                cwd=directory,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            raise EnvironmentFault(f"cannot be started: {command[0]}: {error}") from error
    # The child may outlive this process, and is waited for by pid: Popen's own book-keeping would only warn.
    child.returncode = 0
    return started(child.pid)


def started(pid: int) -> Process:
    """Return the process that has this pid now."""
    return Process(pid, _start(pid) or "")


def alive(process: Process) -> bool:
    """Return whether exactly this process still runs; a zombie does not."""
    _reap(process.pid)
    return _start(process.pid) == process.start


def send(process: Process, number: signal.Signals) -> None:
    """Send a signal to the process and what it started; nothing happens if it is gone."""
    if alive(process):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return


def stop(processes: Sequence[Process], *, term_seconds: float = _TERM_SECONDS) -> None:
    """End processes and return when all are gone: SIGTERM, then SIGKILL to those that take too long."""
    for number, seconds in ((signal.SIGTERM, term_seconds), (signal.SIGKILL, 10.0)):
        remaining = [process for process in processes if alive(process)]
        for process in remaining:
            send(process, number)
        deadline = time.monotonic() + seconds
        while any(alive(process) for process in remaining) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
    if stuck := [str(process.pid) for process in processes if alive(process)]:
        raise EnvironmentFault(f"processes that do not end: {', '.join(stuck)}")


def last_lines(log: Path, count: int = 15) -> str:
    """Return the end of a log file, for the error that says why a part did not start."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16_384))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError as error:
        return f"(no log: {error})"
    return "\n".join(lines[-count:]) or "(its log is empty)"


def _start(pid: int) -> str | None:
    """Return when a running process began, as text that only this process has; None for a zombie or none.

    Where there is /proc, in ticks since the boot: the time of day is derived from a clock that is
    adjusted, and taking a process for another one would leave it running.
    """
    try:
        if _BOOT_ID.is_file():
            # The name in brackets may hold spaces; the third field is the state, the 22nd the start.
            fields = (
                Path(f"/proc/{pid}/stat")
                .read_text(encoding="utf-8", errors="replace")
                .rpartition(")")[2]
                .split()
            )
            return (
                None if fields[0] in "ZX" else f"{_BOOT_ID.read_text(encoding='ascii').strip()}:{fields[19]}"
            )
        found = psutil.Process(pid)
        return None if found.status() == psutil.STATUS_ZOMBIE else f"{found.create_time():.2f}"
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return None


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return  # not our child: another `sexton local` command started it
