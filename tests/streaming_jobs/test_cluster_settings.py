"""What Spark is told where tasks run on a cluster, without one."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path

import pytest

from sexton.schemas.errors import EnvironmentFault, InvalidSettings
from sexton.schemas.settings import load
from sexton.streaming_jobs.cluster import (
    DAEMON,
    check_master,
    defaults,
    handed_out,
    has_executors,
    worker_python,
)
from sexton.streaming_jobs.pack import PYTHON, Pack, here
from sexton.streaming_jobs.spark import SPARK_VERSION, _started


@pytest.mark.parametrize(
    ("master", "found"),
    [
        ("local", False),
        ("local[2]", False),
        ("local[2,3]", False),
        ("local-cluster[1,1,512]", True),
        ("spark://h:7077", True),
        ("yarn", True),
        ("k8s://https://h", True),
    ],
)
def test_which_masters_have_executors(master: str, found: bool) -> None:
    """Only in local mode tasks run beside the driver."""
    assert has_executors(master) is found


@pytest.mark.parametrize(
    ("conf", "environ", "python"),
    [
        ({"spark.master": "local[2]"}, {}, sys.executable),
        ({}, {}, sys.executable),
        ({"spark.master": "spark://h:1", "spark.archives": "a.zip,/p/e.tar.gz#environment"}, {}, PYTHON),
        ({"spark.master": "spark://h:1", "spark.archives": "/p/e.tar.gz#other"}, {}, "python3"),
        ({"spark.master": "yarn"}, {}, "python3"),
        ({"spark.master": "yarn"}, {"PYSPARK_PYTHON": "/opt/python"}, "/opt/python"),
        ({"spark.master": "yarn", "spark.pyspark.python": PYTHON}, {"PYSPARK_PYTHON": "/opt/python"}, PYTHON),
        ({"spark.master": "local[2]", "spark.pyspark.python": "/a/python"}, {}, "/a/python"),
    ],
    ids=["local", "nothing", "the pack", "another archive", "no archive", "machine", "job first", "job"],
)
def test_the_python_of_workers(conf: dict[str, str], environ: dict[str, str], python: str) -> None:
    """The job's before the machine's; the driver's own path only where workers are on its machine."""
    assert worker_python(conf, environ) == python


@pytest.mark.parametrize(
    ("checkpoint", "jars"), [("/c", ["kafka.jar"]), ("s3a://b/c", ["kafka.jar", "s3a.jar"])]
)
def test_executors_get_the_pack_and_what_reads_the_checkpoint(
    checkpoint: str, jars: list[str], tmp_path: Path
) -> None:
    """Each jar once, and the connector of the pack, whatever the cache has; their Python is the pack's."""
    pack = Pack(tmp_path / "my pack #1", here())
    (pack.folder / "jars").mkdir(parents=True)
    for path in (pack.archive, pack.code, pack.folder / "jars" / "kafka.jar"):
        path.touch()
    pack.note()
    for name in ("s3a", "kafka"):
        (tmp_path / f"spark-{name}-{SPARK_VERSION}").mkdir()
        (tmp_path / f"spark-{name}-{SPARK_VERSION}" / f"{name}.jar").touch()
    named = {"spark_master": "yarn", "spark_pack": pack.folder, "cache_dir": tmp_path}

    options = _started(load({}, **named, checkpoint=checkpoint), "1g", [])

    assert [Path(jar).name for jar in options["spark.jars"].split(",")] == jars
    assert options["spark.jars"].split(",")[0].startswith(f"{tmp_path.as_uri()}/my%20pack%20%231/jars/")
    assert options["spark.archives"] == f"{pack.archive.as_uri()}#environment"
    assert worker_python(options, {"PYSPARK_PYTHON": "/opt/python"}) == PYTHON
    assert "spark.jars.packages" not in options


def test_only_the_pack_has_the_parent_of_workers() -> None:
    """Where Sexton comes with the tasks it is not there yet when that is started."""
    cluster = {"spark.master": "spark://h:1"}

    assert defaults(cluster, PYTHON)["spark.python.daemon.module"] == DAEMON
    assert "spark.python.daemon.module" not in defaults(cluster, "python3")
    assert defaults({"spark.master": "local[2]"}, "python3")["spark.python.daemon.module"] == DAEMON


def test_a_dead_executor_is_given_up_soon() -> None:
    """Every setting of these stands on the page, with the value that is set."""
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")

    rows = dict(re.findall(r"^\| `(spark\.[\w.]+)` \| (\d+ s) \|", page, re.MULTILINE))
    assert rows == {
        name: value.replace("s", " s")
        for name, value in defaults({"spark.master": "yarn"}, "python3").items()
    }


@pytest.mark.parametrize(
    "master",
    [
        *(
            "local",
            "local[2]",
            "h:7077",
            "spark://",
            "mesos://h:1",
            "yarn-client",
            "spark://h",
            "spark://h:7077,",
        ),
        *(
            "spark://h:\u00b2",
            "spark://h:0",
            "spark://h:99999",
            "spark://u:p@h:7077",
            "spark://h:7077/x",
            "spark://::1:7077",
        ),
    ],
)
def test_a_master_that_is_none_is_refused(master: str) -> None:
    """Local mode has a setting of its own; anything else Spark would report in words of its own, late."""
    with pytest.raises(InvalidSettings, match="SEXTON_SPARK_MASTER"):
        load({"SEXTON_SPARK_MASTER": master})


def test_a_master_that_cannot_be_reached_is_told_before_spark_starts() -> None:
    """Each of several with its own cause; one that answers is enough."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        check_master(load({}, spark_master=f"spark://127.0.0.1:1,127.0.0.1:{port}"))
    with pytest.raises(EnvironmentFault, match=r"127\.0\.0\.1:1: Connection refused; \[::1\]:1: ") as away:
        check_master(load({}, spark_master="spark://127.0.0.1:1,[::1]:1"))
    assert away.value.hint is not None
    assert "SEXTON_SPARK_MASTER" in away.value.hint


@pytest.mark.parametrize("host", ["..", "a" * 70])
def test_a_host_that_cannot_be_looked_up_is_told_as_one_that_is_away(host: str) -> None:
    """Python has an error of its own for these."""
    with pytest.raises(EnvironmentFault, match=f"{re.escape(host)}:7077: "):
        check_master(load({}, spark_master=f"spark://{host}:7077"))


def test_spark_submit_has_chosen_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two masters are one too many: it is not left to chance which one is taken."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")

    with pytest.raises(InvalidSettings, match="spark-submit has chosen the master already"):
        handed_out(load({}, spark_master="yarn"))


def test_a_pack_without_a_cluster_is_refused(tmp_path: Path) -> None:
    """Who names a pack believes that tasks run elsewhere."""
    with pytest.raises(InvalidSettings, match="no master is named"):
        handed_out(load({}, spark_pack=tmp_path))
