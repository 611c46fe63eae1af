"""A process with everything that it has started: listed, killed and paused as one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.commands import Command

_JVM = "org.apache.spark.deploy.SparkSubmit"


def family(pid: int) -> dict[int, str]:
    """A process and those below it, with their command lines."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    lines: dict[int, str] = {}
    for each in found:
        try:
            lines[each] = (Path("/proc") / str(each) / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return lines


def jvm_of(command: Command) -> int:
    """The process id of a reaper's JVM."""
    (jvm,) = [pid for pid, line in family(command.process.pid).items() if _JVM in line]
    return jvm


def kill_all(command: Command) -> None:
    """Kill a reaper with everything that it has started, as a machine does that goes down."""
    send_all(command, signal.SIGKILL)


def send_all(command: Command, number: int) -> None:
    """Send a signal to a reaper, its JVM and its workers."""
    for pid in family(command.process.pid):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
