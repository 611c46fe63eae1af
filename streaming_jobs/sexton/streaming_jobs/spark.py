"""The Spark session of Sexton's jobs, and where its Kafka connector comes from."""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from sexton.schemas.errors import InvalidSettings
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.java_client import java_properties

__all__ = [
    "CONNECTOR",
    "archive_options",
    "archive_path",
    "connector_jars",
    "jvm_process",
    "kafka_options",
    "kafka_source_options",
    "open_session",
]

SPARK_VERSION = "4.2.0"
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}"
_DAEMON = "sexton.streaming_jobs.worker_daemon"
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")


def connector_jars(cache_dir: Path) -> list[Path]:
    """Return the connector's jars in the cache, none if they were never fetched."""
    return sorted((cache_dir.expanduser() / f"spark-kafka-{SPARK_VERSION}").glob("*.jar"))


def archive_path(cache_dir: Path) -> Path:
    """Return where the archive of classes for this Java, Spark and connector lies, or would.

    It is in the virtual environment, whose Spark alone it fits, and goes with it.
    """
    loaded = [os.environ.get("JAVA_HOME", ""), *map(str, connector_jars(cache_dir))]
    name = hashlib.sha256("\n".join(loaded).encode()).hexdigest()[:16]
    return Path(pyspark.__file__).parent / f"sexton-classes-{name}.jsa"


def archive_options(cache_dir: Path) -> list[str]:
    """Return the options by which a JVM takes its classes from the archive, none without one."""
    archive = archive_path(cache_dir)
    if not archive.is_file():
        return []
    # Java leaves an archive aside that does not fit, and would say so at each start.
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def open_session(
    settings: Settings, app: str, *, memory: str = "1g", class_options: Sequence[str] | None = None
) -> SparkSession:
    """Return the Spark session: a local one, or under spark-submit the one that it prepared.

    `class_options` are the JVM's about its classes: by default it takes them from the archive, if there is
    one. The time zone is UTC. Raises InvalidSettings when speculation is on, wherever that was set: a
    speculated task deletes twice.
    """
    # Else workers take `python3` from PATH, which does not have the packages of this environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # What a callback of ours raised is raised again in this process, where it is reported once.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    builder = (
        SparkSession.builder.appName(app)
        .config("spark.sql.session.timeZone", "UTC")
        # The delay queue's tasks get their share beside the query's, and no more.
        .config("spark.scheduler.mode", "FAIR")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.worker.reuse", "true")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "2000")
        # A task begins to send once its first batch is there, and continues while the next is fetched.
        .config("spark.sql.execution.arrow.maxBytesPerBatch", str(2 * 1024 * 1024))
        .config("spark.sql.streaming.numRecentProgressUpdates", "10")
        # What Spark shows of a plan: by itself it hides no login module and no key.
        .config("spark.sql.redaction.options.regex", "(?i)url|jaas|keystore|password")
    )
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # set by spark-submit, whose own settings stand
        if class_options is None:
            class_options = archive_options(settings.cache_dir)
        builder = (
            builder.master(f"local[{settings.reaper_cores}]")
            # On a cluster Spark's own: there this package may come with the tasks.
            .config("spark.python.daemon.module", _DAEMON)
            .config("spark.driver.memory", memory)
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.extraJavaOptions", _java_options(_LOG_CONFIG, class_options))
        )
        jars = connector_jars(settings.cache_dir)
        if jars:
            # On the class path and no `spark.jars`: nothing is copied at a start, and the archive holds them.
            builder = builder.config("spark.driver.extraClassPath", os.pathsep.join(map(str, jars)))
        else:
            builder = builder.config("spark.jars.packages", CONNECTOR)
    session = builder.getOrCreate()
    if jvm_process(session) is not None:
        _leave_stop_signals_to_us(session)
    # Asked for and not overruled: who has set it for all jobs of a cluster has to know that this one differs.
    if session.sparkContext.getConf().get("spark.speculation", "false").lower() != "false":
        raise InvalidSettings(
            "spark.speculation is on: a task that runs twice deletes twice",
            hint="set spark.speculation=false for this job (spark-submit --conf, or spark-defaults.conf)",
        )
    return session


def jvm_process(spark: SparkSession) -> subprocess.Popen[bytes] | None:
    """Return the session's JVM when this process started it, None under spark-submit."""
    gateway: Any = spark.sparkContext._gateway
    return getattr(gateway, "proc", None)


def _leave_stop_signals_to_us(session: SparkSession) -> None:
    """Let the JVM continue when all processes of a service are told to stop; without us it ends by
    itself.

    SIGINT it ignores from the start: PySpark sees to that.
    """
    signals: Any = session._jvm.sun.misc  # type: ignore[union-attr]
    signals.Signal.handle(signals.Signal("TERM"), signals.SignalHandler.SIG_IGN)


def kafka_options(settings: Settings) -> dict[str, str]:
    """Return the options of Spark's Kafka source and sink that name the cluster and how to log in.

    Raises InvalidSettings for a property by which Spark's client cannot log in.
    """
    properties = java_properties(settings.kafka_bootstrap_servers, settings.kafka_extra)
    return {f"kafka.{name}": value for name, value in properties.items()}


def kafka_source_options(settings: Settings, topic: str) -> dict[str, str]:
    """Return how a topic is read: committed records only, and a range that is gone is reported."""
    return {
        **kafka_options(settings),
        "subscribe": topic,
        # A range that is no longer there is never skipped.
        "failOnDataLoss": "true",
        "kafka.isolation.level": "read_committed",
        # Each task was seen to wait this long before its first records, half a second by default.
        "kafka.fetch.max.wait.ms": "20",
    }


def _java_options(log_config: Path, class_options: Sequence[str]) -> str:
    """Return the options of the driver's JVM as one text, which Spark takes apart as a shell does."""
    # C1 alone: this JVM moves bytes between Kafka and Python, C2 costs more than it saves there.
    options = [
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={log_config.as_uri()}",
    ]
    return " ".join(map(_quoted, [*options, *class_options]))


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
