"""The process from which Spark forks the Python workers of a reaper on one machine.

Spark's own imports nothing of ours, so that each worker does, for a second of CPU. Here it is done once,
before the first fork, and what is loaded is shared by all of them.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

import sexton.streaming_jobs.reaper.task  # noqa: F401 - what workers run

__all__: list[str] = []

if __name__ == "__main__":
    gc.freeze()  # a collection in a worker would write to the pages that it shares
    manager()
