"""The `sexton` command in processes forked from one that has imported it: a start without the imports.

A forked process is one like any other: a pid and a process group of its own, its environment, its output in
a file. What is saved is the second and a half of work that each start of Python costs for the same imports.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["Forks"]

_IMPORTED = (
    "sexton.deploy.main",
    "sexton.issuer.cli.commands",
    "sexton.issuer.http.app",
    "sexton.issuer.service",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
)


class Forks:
    """The process that forks; it ends with this one, what it has forked does not."""

    def __init__(self, folder: Path) -> None:
        self._address = str(folder / "forks")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forks", self._address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def fork(
        self, arguments: Sequence[str], *, directory: Path, log: Path, environment: Mapping[str, str]
    ) -> int:
        """Start `sexton ARGUMENTS...`, its output appended to `log`, and return its pid."""
        asked = {
            "arguments": list(arguments),
            "directory": str(directory),
            "log": str(log),
            "environment": dict(environment),
        }
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._address)
            connection.sendall(json.dumps(asked).encode() + b"\n")
            with connection.makefile() as reply:
                return int(reply.readline())

    def close(self) -> None:
        """End the process that forks."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(20)


def _serve(address: str) -> None:
    for name in _IMPORTED:
        import_module(name)
    assert threading.active_count() == 1, threading.enumerate()  # a thread would be missing after a fork
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever ends is gone, no zombie
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            with connection, connection.makefile("rw") as stream:
                asked = json.loads(stream.readline())
                stream.write(f"{_fork(asked, listener, connection)}\n")


def _fork(asked: dict[str, Any], *sockets: socket.socket) -> int:
    reported, reporting = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(asked, reporting, reported, *(each.fileno() for each in sockets))
    os.close(reporting)
    os.read(reported, 1)  # its process group is there: who ends it sends to the group
    os.close(reported)
    return pid


def _become(asked: dict[str, Any], reporting: int, *unused: int) -> NoReturn:
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.chdir(asked["directory"])
        log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        for descriptor in (log, nothing, *unused):
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(asked["environment"])
        sys.argv = ["sexton", *asked["arguments"]]
        os.close(reporting)
        code = _run()
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run() -> int:
    from sexton.deploy.main import main

    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


if __name__ == "__main__":
    _serve(sys.argv[1])
