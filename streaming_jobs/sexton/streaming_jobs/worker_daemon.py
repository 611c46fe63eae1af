"""Spark's parent of the Python workers of a reaper on one machine: loaded once, deaf to what asks to stop.

Spark's own imports nothing of ours, so that each worker does, for a second of CPU. Here it is done before
the first fork, and what is loaded is shared by all of them.

Who ends a service sends the signal to all of its processes: systemd to the control group, `timeout` to the
process group. The driver alone acts on it; its workers finish the micro-batch. Parent and workers end when
the JVM does, with which they are connected.
"""

from __future__ import annotations

import gc
import signal

from pyspark.daemon import manager

import sexton.streaming_jobs.reaper.task  # noqa: F401 - what workers run

__all__: list[str] = []

if __name__ == "__main__":
    gc.freeze()  # a collection in a worker would write to the pages that it shares
    # Blocked, not ignored: Spark sets the handlers anew, and a worker inherits what is blocked.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    manager()
