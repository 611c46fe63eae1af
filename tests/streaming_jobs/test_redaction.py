"""What Spark shows of a job, in logs, event log and pages, holds no secret of the settings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.support.secured_broker import PASSWORD, USER, SecuredBroker
from tests.support.spark_cluster import BIN, SHORT_LIVED, cluster

from sexton.schemas.settings import load
from sexton.streaming_jobs.spark import connector_jars

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.faults]

MARKER = "hunter2-0123456789"
# What the reaper does with Spark, in the small, and then all that its pages say.
JOB = """
import os, re, sys, urllib.request
from sexton.schemas import settings
from sexton.streaming_jobs.spark import kafka_options, kafka_source_options, open_session

found = settings.load()
spark = open_session(found, "redaction")
def tasks(batches, settings=found):
    yield from batches
def process(batch, batch_id):
    rows = batch.select("value").mapInArrow(tasks, "value BINARY")
    rows.write.format("kafka").options(**kafka_options(found), topic="letters").save()
def fails(batches, settings=found):
    os.environ["AWS_SECRET_ACCESS_KEY"]
    raise ValueError("as asked")
source = spark.readStream.format("kafka").options(**kafka_source_options(found, "letters"))
query = source.option("startingOffsets", "earliest").load().writeStream.foreachBatch(process)
query.option("checkpointLocation", sys.argv[1]).trigger(availableNow=True).start().awaitTermination()
try:
    spark.range(2).mapInArrow(fails, "id LONG").collect()
except Exception as error:
    print(error)
def get(url):
    with urllib.request.urlopen(url, timeout=60) as reply:
        return reply.read().decode()
ui = spark.sparkContext.uiWebUrl
app = f"{ui}/api/v1/applications/{spark.sparkContext.applicationId}"
for name in ("environment", "executors", "jobs", "stages", "sql?details=true"):
    print(get(f"{app}/{name}"))
for name in ("environment/", "SQL/", "SQL/execution/?id=0", "executors/", "StreamingQuery/"):
    print(get(f"{ui}/{name}"))
spark.stop()
print("pages read")
"""


def _pages(log: str) -> list[str]:
    """What master and worker have pages at, by their own log.

    Not `/json/`: while an executor runs, a standalone worker tells there its whole command with the
    environment, whatever is to be redacted. The documentation says so.
    """
    return [f"{url}/" for url in re.findall(r"started at (http://\S+)", log)]


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as reply:
        return str(reply.read().decode())


def test_no_secret_of_the_settings_is_in_a_log_or_page_of_spark(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    """Given to the driver, and to executors by `spark.executorEnv`: in no log, event log, page or answer."""
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "events").mkdir()
    broker_password = json.dumps(PASSWORD)[1:-1]
    secret = {
        "AWS_ACCESS_KEY_ID": f"id-{MARKER}",
        "AWS_SECRET_ACCESS_KEY": MARKER,
        "SEXTON_REDIS_URL": f"redis://u:{MARKER}@127.0.0.1:1/0",
        "SEXTON_ISSUER_TOKEN": MARKER,
        "SEXTON_SCHEMA_REGISTRY_EXTRA": json.dumps({"basic.auth.user.info": f"user:{MARKER}"}),
        "SEXTON_KAFKA_EXTRA": json.dumps(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": USER,
                "sasl.password": PASSWORD,
            }
        ),
    }
    env = {**os.environ, **secret, **SHORT_LIVED, "PYSPARK_PYTHON": sys.executable}
    env |= {
        "SEXTON_KAFKA_BOOTSTRAP_SERVERS": broker.at["PASSWORD"],
        "SEXTON_SCHEMA_REGISTRY_URL": f"http://user:{MARKER}@127.0.0.1:1",
    }
    given = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.jars": ",".join(map(str, connector_jars(load().cache_dir))),
        "spark.ui.enabled": "true",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        "spark.logConf": "true",
        "spark.log.level": "INFO",
        **{f"spark.executorEnv.{name}": value for name, value in secret.items()},
    }
    conf = tmp_path / "spark.conf"  # not on the command line, where `ps` shows it
    conf.write_text("".join(f"{name} {value}\n" for name, value in given.items()))
    theirs = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SEXTON_"))}

    with cluster(tmp_path, theirs, workers=1) as master:
        done = subprocess.run(
            [
                BIN / "spark-submit",
                "--master",
                master,
                "--properties-file",
                conf,
                tmp_path / "job.py",
                str(tmp_path / "checkpoint"),
            ],
            env=env,
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )

        daemons = (tmp_path / "spark.log").read_text()
        pages = {url: _get(url) for url in _pages(daemons)}

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "pages read" in done.stdout
    assert "as asked" in done.stdout
    texts = {"stdout": done.stdout, "stderr": done.stderr}
    texts |= {str(file): file.read_text() for file in tmp_path.glob("work/**/std*")}
    texts |= {str(file): file.read_text() for file in tmp_path.glob("events/**/*") if file.is_file()}
    texts |= {"daemons": daemons, **pages}
    assert len(texts) >= 8, list(texts)
    found = {
        name: [line[:300] for line in text.splitlines() if MARKER in line or broker_password in line]
        for name, text in texts.items()
    }
    assert {name: lines for name, lines in found.items() if lines} == {}
