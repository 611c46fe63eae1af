"""Spark's parent of the Python workers, deaf to the signals by which a reaper is asked to stop.

Who ends a service sends them to all of its processes: systemd to the control group, `timeout` to the process
group. The driver alone acts on them; its workers finish the micro-batch. Parent and workers end when the JVM
does, with which they are connected.
"""

from __future__ import annotations

import signal

from pyspark import daemon

__all__: list[str] = []

if __name__ == "__main__":
    # Blocked, not ignored: Spark sets the handlers anew, and a worker inherits what is blocked.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    daemon.manager()
