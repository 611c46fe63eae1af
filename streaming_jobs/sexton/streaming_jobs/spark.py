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
from pyspark import SparkConf
from pyspark.sql import SparkSession

from sexton.schemas.errors import InvalidSettings
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.java_client import java_properties
from sexton.streaming_jobs.submitted import gateway, is_submitted, quiet_log, take_signals

__all__ = [
    "CONNECTOR",
    "archive_options",
    "archive_path",
    "connector_jars",
    "has_executors",
    "jvm_process",
    "kafka_options",
    "kafka_source_options",
    "open_session",
    "s3a_jars",
]

SPARK_VERSION = "4.2.0"
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}"
_DAEMON = "sexton.streaming_jobs.worker_daemon"
# What Spark hides of a plan's options, and of settings and environments. By itself it hides no login module,
# no key, and no URL, in which a password may be.
_SECRET = (
    "(?i)secret|password|token|credential|access[._]?key|jaas|keystore|user[._]?info|://[^/]*@"
    "|SEXTON_[A-Z_]*(URL|EXTRA)"
)
_REDACTED = {"spark.sql.redaction.options.regex": f"{_SECRET}|url", "spark.redaction.regex": _SECRET}
_DEFAULTS = {
    # The delay queue's tasks get their share beside the query's, and no more.
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    # A task begins to send once its first batch is there, and continues while the next is fetched.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2 * 1024 * 1024),
    "spark.sql.streaming.numRecentProgressUpdates": "10",
}
# The driver's level is its log's own; executors, whose log is Spark's, follow it.
_QUIET = {"spark.log.level": "ERROR", "spark.executor.syncLogLevel.enabled": "true"}
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")


def connector_jars(cache_dir: Path) -> list[Path]:
    """Return the connector's jars in the cache, none if they were never fetched."""
    return sorted((cache_dir.expanduser() / f"spark-kafka-{SPARK_VERSION}").glob("*.jar"))


def s3a_jars(cache_dir: Path) -> list[Path]:
    """Return the jars of the file system `s3a:` in the cache, none if they were never fetched."""
    return sorted((cache_dir.expanduser() / f"spark-s3a-{SPARK_VERSION}").glob("*.jar"))


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
    builder = SparkSession.builder.appName(app).config("spark.sql.session.timeZone", "UTC")
    for name, value in _conf(_given()).items():
        builder = builder.config(name, value)
    if not is_submitted():
        if class_options is None:
            class_options = archive_options(settings.cache_dir)
        builder = (
            builder.master(f"local[{settings.reaper_cores}]")
            .config("spark.driver.memory", memory)
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.extraJavaOptions", _java_options(_LOG_CONFIG, class_options))
        )
        jars = connector_jars(settings.cache_dir)
        if jars and (settings.checkpoint or "").startswith("s3a:"):
            jars += s3a_jars(settings.cache_dir)
        if jars:
            # On the class path and no `spark.jars`: nothing is copied at a start, and the archive holds them.
            builder = builder.config("spark.driver.extraClassPath", os.pathsep.join(map(str, jars)))
        else:
            builder = builder.config("spark.jars.packages", CONNECTOR)
    session = builder.getOrCreate()
    if jvm_process(session) is not None:
        take_signals(gateway(), None)  # without us it ends by itself
    # Asked for and not overruled: who has set it for all jobs of a cluster has to know that this one differs.
    if session.sparkContext.getConf().get("spark.speculation", "false").lower() != "false":
        raise InvalidSettings(
            "spark.speculation is on: a task that runs twice deletes twice",
            hint="set spark.speculation=false for this job (spark-submit --conf, or spark-defaults.conf)",
        )
    return session


def _given() -> SparkConf:
    """Return what spark-submit, or its spark-defaults.conf, has set; nothing where this process sets all."""
    if not is_submitted():
        return SparkConf(loadDefaults=False)
    gateway()
    return SparkConf()


def _conf(given: SparkConf) -> dict[str, str]:
    """Return what the session is opened with, but for what was given to spark-submit: that stands."""
    conf = dict(_DEFAULTS)
    if not has_executors(given.get("spark.master") or "local"):
        conf["spark.python.daemon.module"] = _DAEMON  # on a cluster this package may come with the tasks
    if is_submitted() and quiet_log(gateway()):
        conf |= _QUIET
    conf = {name: value for name, value in conf.items() if not given.contains(name)}
    for name, ours in _REDACTED.items():  # beside what they hide, and not in its place
        conf[name] = f"{theirs}|{ours}" if (theirs := given.get(name)) else ours
    return conf


def has_executors(master: str) -> bool:
    """Return whether tasks run in other processes than the driver's, as the master's URL says."""
    return master != "local" and not master.startswith("local[")


def jvm_process(spark: SparkSession) -> subprocess.Popen[bytes] | None:
    """Return the session's JVM when this process started it, None under spark-submit."""
    gateway: Any = spark.sparkContext._gateway
    return getattr(gateway, "proc", None)


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
