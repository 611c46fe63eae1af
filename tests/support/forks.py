"""The `sexton` command in processes forked from one that has imported it: a start without the imports.

A forked process is one like any other: a pid and a process group of its own, its environment, its output in
files. What is saved is the second and a half of work that each start of Python costs for the same imports.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn, TextIO

__all__ = ["Forks"]

_IMPORTED = (
    "sexton.deploy.main",
    "sexton.deploy.topics_commands",
    "sexton.deploy.usage",
    "sexton.issuer.cli.commands",
    "sexton.issuer.cli.migration_commands",
    "sexton.issuer.http.app",
    "sexton.issuer.service",
    "sexton.storage",
    "typer.main",
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
        with self._asked(arguments, directory, environment, log, log, wait=False) as reply:
            return int(reply.readline())

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], timeout: float = 150
    ) -> subprocess.CompletedProcess[str]:
        """Run `sexton ARGUMENTS...` in this process' folder to its end, which `timeout` (in seconds) brings.

        Raises subprocess.TimeoutExpired then.
        """
        with tempfile.TemporaryDirectory(prefix="sexton-run-") as folder:
            out, err = Path(folder) / "out", Path(folder) / "err"
            with self._asked(
                arguments, Path.cwd(), environment, out, err, wait=True, timeout=timeout
            ) as reply:
                pid = int(reply.readline())
                try:
                    code = int(reply.readline())
                except TimeoutError:
                    os.killpg(pid, signal.SIGKILL)
                    raise subprocess.TimeoutExpired(list(arguments), timeout, *_read(out, err)) from None
            return subprocess.CompletedProcess(["sexton", *arguments], code, *_read(out, err))

    @contextmanager
    def _asked(
        self,
        arguments: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        out: Path,
        err: Path,
        *,
        wait: bool,
        timeout: float | None = None,
    ) -> Iterator[TextIO]:
        asked = {
            "arguments": list(arguments),
            "directory": str(directory),
            "out": str(out),
            "err": str(err),
            "environment": dict(environment),
            "wait": wait,
        }
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(self._address)
            connection.sendall(json.dumps(asked).encode() + b"\n")
            with connection.makefile() as reply:
                yield reply

    def close(self) -> None:
        """End the process that forks."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(20)


def _read(*files: Path) -> tuple[str, ...]:
    return tuple(file.read_text(encoding="utf-8") for file in files)


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
                if not asked["wait"]:
                    stream.write(f"{_fork(asked, listener, connection)}\n")
                elif os.fork() == 0:
                    _wait(asked, listener, connection, stream)


def _wait(asked: dict[str, Any], listener: socket.socket, connection: socket.socket, stream: IO[str]) -> None:
    """Fork, tell the pid and, when that one has ended, its exit code; this process is there for it alone."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        pid = _fork(asked, listener, connection)
        stream.write(f"{pid}\n")
        stream.flush()
        _, status = os.waitpid(pid, 0)
        stream.write(f"{os.waitstatus_to_exitcode(status)}\n")
        stream.flush()
    finally:
        os._exit(0)


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
        out, err = (os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in ("out", "err"))
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        for descriptor in (out, err, nothing, *unused):
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
