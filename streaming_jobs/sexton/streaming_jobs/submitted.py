"""A driver below spark-submit: there the JVM is the parent, it has the streams and it gets the signals.

Spark copies what its Python prints, stdout and stderr alike, to the stdout of the JVM; and who stops a
service knows the JVM alone, which ends at SIGTERM in the middle of whatever is under way. Here stderr goes to
the JVM's stderr, and the JVM tells this process of a signal in place of ending.
"""

from __future__ import annotations

import atexit
import importlib.resources
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started

__all__ = ["close_stderr", "gateway", "is_submitted", "quiet_log", "take_signals", "take_stderr"]

_CHUNK = 65_536
_DRAINED_S = 5
_SIGNALS = ("TERM", "INT")
_LOG_CONFIG = "log4j2.properties"
# How Scala names the private fields of its object `Logging`.
_SPARK_S_OWN = "org$apache$spark$internal$Logging$$"


def is_submitted() -> bool:
    """Return whether spark-submit started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def gateway() -> Any:
    """Return the connection to spark-submit's JVM, which the session will use too."""
    SparkContext._ensure_initialized()
    return SparkContext._gateway


def take_signals(gateway: Any, told: Callable[[], None] | None) -> None:
    """Let the JVM continue at SIGTERM and SIGINT, and call `told`, if there is one, in a thread of its own.

    A JVM that was started deaf to SIGINT, as PySpark starts its own, stays so.
    """
    signals = gateway.jvm.sun.misc
    handler: Any = signals.SignalHandler.SIG_IGN
    if told is not None:
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        handler = _Handler(told)
    for name in _SIGNALS:
        signals.Signal.handle(signals.Signal(name), handler)


class _Handler:
    """Java's `SignalHandler` in Python."""

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told

    def handle(self, signal: Any) -> None:
        self._told()

    class Java:
        """What Py4J has to know: the interface that this is."""

        implements = ("sun.misc.SignalHandler",)


class _Stderr:
    """A pipe in place of stderr, and a thread that empties it.

    A handler of signals writes too, and may not wait for the thread that it has interrupted, as a call of its
    own into the JVM would.
    """

    def __init__(self, err: Any) -> None:
        self._own = os.dup(2)
        self._read, write = os.pipe()
        os.dup2(write, 2)
        os.close(write)
        self._thread = threading.Thread(target=self._copy, args=(err,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        sys.stderr.flush()
        os.dup2(self._own, 2)  # with the last writer gone the thread reads to the end
        self._thread.join(_DRAINED_S)

    def _copy(self, err: Any) -> None:
        while data := os.read(self._read, _CHUNK):
            try:
                err.write(data, 0, len(data))
                err.flush()
            except (OSError, Py4JError):
                os.write(self._own, data)  # the JVM ends: its stdout may still be there
        os.close(self._read)


_until_the_end = ExitStack()
atexit.register(_until_the_end.close)
_taken: list[_Stderr] = []


def take_stderr(gateway: Any) -> None:
    """Send what this process writes on its stderr, by whatever way, to the JVM's until it ends."""
    _taken.append(_Stderr(gateway.jvm.System.err))
    # After what Python itself prints at its end: the trace of an error that nobody has caught.
    atexit.register(close_stderr)


def close_stderr() -> None:
    """Return once all that was written is with the JVM, 5 s at most; later writes go where they went."""
    while _taken:
        _taken.pop().close()


def quiet_log(gateway: Any) -> bool:
    """Give the JVM's log the configuration that `sexton reaper run` has; return whether that was done.

    It takes the place of Spark's built-in one, which says all that Spark does. One that somebody has written,
    for this job or as the cluster's `log4j2.properties`, stands.
    """
    java = gateway.jvm
    spark = getattr(getattr(java.org.apache.spark.internal, "Logging$"), "MODULE$")
    built_in = f"{_SPARK_S_OWN}defaultSparkLog4jConfig"
    if not getattr(spark, built_in)():
        return False
    config = importlib.resources.files(__package__).joinpath(_LOG_CONFIG)
    file = _until_the_end.enter_context(importlib.resources.as_file(config))
    java.org.apache.logging.log4j.LogManager.getContext(False).setConfigLocation(
        java.java.net.URI(file.as_uri())
    )
    # Else the session that starts puts the built-in one back.
    getattr(spark, f"{built_in}_$eq")(False)
    getattr(spark, "setLogLevelPrinted_$eq")(True)
    return True
