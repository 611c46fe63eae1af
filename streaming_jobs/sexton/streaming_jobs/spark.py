"""The Spark session of Sexton's jobs, and where its Kafka connector comes from."""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf
from pyspark.sql import SparkSession

from sexton.schemas.errors import InvalidSettings
from sexton.schemas.settings import Settings
from sexton.streaming_jobs import cluster
from sexton.streaming_jobs.java_client import java_properties
from sexton.streaming_jobs.pack import file_uris
from sexton.streaming_jobs.submitted import gateway, is_submitted, quiet_log, take_signals

__all__ = [
    "CONNECTOR",
    "archive_options",
    "archive_path",
    "connector_jars",
    "jvm_process",
    "kafka_options",
    "kafka_source_options",
    "open_session",
    "s3a_jars",
]

SPARK_VERSION = "4.2.0"
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}"
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
    "spark.executor.syncLogLevel.enabled": "true",
}
# Kafka's Java client asks a broker that has gone from the cluster until the call's time is over, a minute by
# default, though others lead its partitions after ten seconds. Spark asks anew then: as often as makes three
# minutes. A stop is given 30 s.
_CALL_MS = "20000"
_PATIENCE = {
    "kafka.default.api.timeout.ms": _CALL_MS,
    "kafka.request.timeout.ms": _CALL_MS,  # by default more than that, which the client refuses
    "fetchOffset.numRetries": "9",
}
_LOG_LEVEL = "ERROR"
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
    settings: Settings,
    app: str,
    *,
    memory: str = "1g",
    class_options: Sequence[str] | None = None,
    told: Callable[[], None] | None = None,
) -> SparkSession:
    """Return the Spark session: the one that spark-submit prepared, else one of the cluster that
    SEXTON_SPARK_MASTER names, else a local one.

    `class_options` are the JVM's about its classes: by default it takes them from the archive, if there is
    one. A JVM that this process has started calls `told` at SIGTERM, or takes no notice: once it ignores a
    signal it can never be made to hear it. The time zone is UTC. Raises InvalidSettings as
    `cluster.handed_out` does, and when speculation is on, wherever that was set: a speculated task deletes
    twice; EnvironmentFault when no master can be reached.
    """
    cluster.handed_out(settings)
    cluster.check_master(settings)
    # What a callback of ours raised is raised again in this process, where it is reported once.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    given = _submitted() if is_submitted() else _started(settings, memory, class_options)
    # Else workers take `python3` from PATH, which does not have the packages of this environment.
    python = os.environ["PYSPARK_PYTHON"] = cluster.worker_python(given, os.environ)
    builder = SparkSession.builder.appName(app).config("spark.sql.session.timeZone", "UTC")
    for name, value in {**given, **_unset(given, python)}.items():
        builder = builder.config(name, value)
    quiet = quiet_log(gateway()) if is_submitted() else cluster.has_executors(given["spark.master"])
    session = builder.getOrCreate()
    if quiet:
        # Executors, whose log is Spark's, take the level from this call, and from no setting. One that asked
        # for its settings before the call and registers after it is not told.
        session.sparkContext.setLogLevel(given.get("spark.log.level", _LOG_LEVEL))
    if jvm_process(session) is not None:
        take_signals(gateway(), told)  # without us it ends by itself
    # Asked for and not overruled: who has set it for all jobs of a cluster has to know that this one differs.
    if session.sparkContext.getConf().get("spark.speculation", "false").lower() != "false":
        raise InvalidSettings(
            "spark.speculation is on: a task that runs twice deletes twice",
            hint="set spark.speculation=false for this job (spark-submit --conf, or spark-defaults.conf)",
        )
    return session


def _submitted() -> dict[str, str]:
    """Return what spark-submit, or its spark-defaults.conf, has set: that stands."""
    gateway()  # a SparkConf reads the JVM's properties once it has one
    return dict(SparkConf().getAll())


def _started(settings: Settings, memory: str, class_options: Sequence[str] | None) -> dict[str, str]:
    """Return the settings with which this process starts its JVM, for a cluster or for local mode."""
    if class_options is None:
        class_options = archive_options(settings.cache_dir)
    options = {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": _java_options(_LOG_CONFIG, class_options),
    }
    if settings.spark_master is not None:
        return {**options, **_for_executors(settings), "spark.master": settings.spark_master}
    jars = _jars(settings)
    return {
        **options,
        "spark.master": f"local[{settings.reaper_cores}]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # On the class path and no `spark.jars`: nothing is copied at a start, and the archive holds them.
        **_fetched_unless(jars, {"spark.driver.extraClassPath": os.pathsep.join(map(str, jars))}),
    }


def _for_executors(settings: Settings) -> dict[str, str]:
    """Return the settings by which executors get what they need; raises InvalidSettings for an unfit pack."""
    if (pack := cluster.handed_out(settings)) is not None:
        return pack.spark_options(_checkpoint_jars(settings))
    jars = _jars(settings)
    return _fetched_unless(jars, {"spark.jars": file_uris(jars)})


def _jars(settings: Settings) -> list[Path]:
    """Return the jars of the cache, none where the connector is not in it."""
    connector = connector_jars(settings.cache_dir)
    return [*connector, *_checkpoint_jars(settings)] if connector else []


def _fetched_unless(jars: Sequence[Path], options: dict[str, str]) -> dict[str, str]:
    """Return the options that name the jars; without any, Spark is to fetch the connector."""
    return options if jars else {"spark.jars.packages": CONNECTOR}


def _checkpoint_jars(settings: Settings) -> list[Path]:
    """Return the jars of the file system on which the checkpoint lies, none for those that Spark has."""
    return s3a_jars(settings.cache_dir) if (settings.checkpoint or "").startswith("s3a:") else []


def _unset(given: Mapping[str, str], python: str) -> dict[str, str]:
    """Return what the session is opened with beside what was given."""
    conf = {**_DEFAULTS, **cluster.defaults(given, python)}
    conf = {name: value for name, value in conf.items() if name not in given}
    for name, ours in _REDACTED.items():  # beside what they hide, and not in its place
        conf[name] = f"{theirs}|{ours}" if (theirs := given.get(name)) else ours
    return conf


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
        **_PATIENCE,
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
