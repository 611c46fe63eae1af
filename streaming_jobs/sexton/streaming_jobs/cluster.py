"""Spark's settings where tasks run on a cluster: what executors are given, how their death is noticed.

Where spark-submit has set one, that stands: these are defaults.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping

from sexton.schemas.errors import EnvironmentFault, InvalidSettings
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.pack import ARCHIVE, PYTHON, Pack, open_pack
from sexton.streaming_jobs.submitted import is_submitted

__all__ = [
    "DAEMON",
    "check_master",
    "defaults",
    "handed_out",
    "has_executors",
    "worker_python",
]

DAEMON = "sexton.streaming_jobs.worker_daemon"
_CONNECT_S = 5.0
# A micro-batch waits for its last task. What died is done again elsewhere, which is harmless: the sooner its
# executor is given up, the sooner all tenants' receipts come.
_DEATH = {
    "spark.network.timeout": "60s",
    "spark.network.timeoutInterval": "5s",
    "spark.standalone.executorRemoveDelayOnDisconnection": "1s",
    "spark.locality.wait": "0s",
}


def has_executors(master: str) -> bool:
    """Return whether tasks run in other processes than the driver's, as the master's URL says."""
    return master != "local" and not master.startswith("local[")


def handed_out(settings: Settings) -> Pack | None:
    """Return the pack that executors get, None without one; nothing is asked but the pack's folder.

    Raises InvalidSettings for an unfit pack, for one without a cluster, and where spark-submit has chosen the
    master before.
    """
    if settings.spark_master is None:
        if settings.spark_pack is not None:
            raise InvalidSettings(
                "a pack is for a cluster, and no master is named",
                hint="set SEXTON_SPARK_MASTER (--master), or leave SEXTON_SPARK_PACK (--pack) out",
            )
        return None
    if is_submitted():
        raise InvalidSettings(
            "spark-submit has chosen the master already, and SEXTON_SPARK_MASTER is set",
            hint="give spark-submit --master and the pack's options, or run `sexton reaper run` by itself",
        )
    return None if settings.spark_pack is None else open_pack(settings.spark_pack)


def check_master(settings: Settings) -> None:
    """Return when the cluster may be tried; nothing of Spark is started.

    Raises EnvironmentFault when no master of a standalone cluster can be reached: Spark itself takes a
    minute, and its words are of something else.
    """
    scheme, _, addresses = (settings.spark_master or "").partition("://")
    if scheme != "spark":
        return
    failures = [_reach(address) for address in addresses.split(",")]
    if all(failures):
        raise EnvironmentFault(
            f"no master of the Spark cluster can be reached: {'; '.join(map(str, failures))}",
            hint="is it up, and SEXTON_SPARK_MASTER right? docs/cluster.md",
        )


def worker_python(conf: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Return the Python of the workers, for `PYSPARK_PYTHON`: as Spark does it, what is set for this job
    counts before what is set for this machine.

    Where neither is, workers in local mode are processes of this machine, with the packages of this
    environment. On a cluster the path of this Python means nothing: the one of the pack is taken where that
    is given, else the name that Spark itself would look for.
    """
    if given := conf.get("spark.pyspark.python") or environ.get("PYSPARK_PYTHON"):
        return given
    if not has_executors(conf.get("spark.master", "local")):
        return sys.executable
    archives = conf.get("spark.archives", "").split(",")
    return PYTHON if any(name.endswith(f"#{ARCHIVE}") for name in archives) else "python3"


def defaults(conf: Mapping[str, str], python: str) -> dict[str, str]:
    """Return Spark's settings for workers that have this Python, in local mode or on a cluster."""
    # The parent of the Python workers is started before Spark has handed out any zip: on a cluster it is
    # known to have this package where that comes with the Python.
    daemon = {"spark.python.daemon.module": DAEMON}
    if not has_executors(conf.get("spark.master", "local")):
        return daemon
    return {**_DEATH, **(daemon if python == PYTHON else {})}


def _reach(address: str) -> str | None:
    """Return why a master cannot be reached, None when it can."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S):
            return None
    except UnicodeError as error:  # no name that could be looked up: a part of it is empty, or too long
        return f"{address}: {error}"
    except OSError as error:
        return f"{address}: {error.strerror or error}"
