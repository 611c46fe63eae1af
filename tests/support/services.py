"""A service that embeds the SDK, as a process of its own against a broker: it ends in time, or fails."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from sexton.schemas.events import DeletionIntent

__all__ = ["GREEN", "NOBODY", "Arrived", "keys", "service"]

Arrived = Callable[[], list[DeletionIntent]]
NOBODY = "127.0.0.1:1"
GREEN = {
    "gevent": "from gevent import monkey; monkey.patch_all()",
    "eventlet": (
        "import warnings; warnings.simplefilter('ignore'); import eventlet; eventlet.monkey_patch()"
    ),
}
SERVICE = """
import ctypes, os, sys, threading, time
from sexton.producers import *
from sexton.producers.testing import FakeIssuer
BROKER = sys.argv[1]
NOBODY = "127.0.0.1:1"

def connect(broker=BROKER, **limits):
    return Sexton.connect("n", issuer=FakeIssuer(), limits=Limits(**limits), kafka_bootstrap_servers=broker)

def fork():
    "Fork as a server in C does: Python's hooks do not run."
    return ctypes.PyDLL(None).fork()

def in_child(work, fork=fork):
    "Do work in a child that must end well in 20 s."
    child = fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child

def ended_well(child):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0, status
            return
        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")

def closes(sexton, undelivered=0):
    began = time.monotonic()
    left = sexton.close(3)
    assert time.monotonic() - began < 5, time.monotonic() - began
    assert len(left) == undelivered, left
"""


def service(broker: str, body: str, *, first: str = "", timeout: float = 60, file: Path | None = None) -> str:
    """Run a service to its end and return what it has said; fails if it does not end well.

    With a `file` it is a program that children may import.
    """
    code = first + SERVICE + textwrap.dedent(body)
    program = ["-c", code] if file is None else [str(file)]
    if file is not None:
        file.write_text(code, encoding="utf-8")
    run = [sys.executable, "-X", "faulthandler", *program, broker]
    done = subprocess.run(run, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def keys(arrived: Arrived) -> list[str]:
    """Return the keys of all intents in the topic, sorted."""
    found = [phase for intent in arrived() for phase in intent.action.phases]  # type: ignore[union-attr]
    return sorted(key for phase in found for key in phase)
