"""A checkpoint on an S3 server: `make test-s3a`, which fetches Hadoop's jars for it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
from tests.support.chain import Chain
from tests.support.commands import Command
from tests.support.families import kill_all
from tests.support.intents import GONE, folded, promised
from tests.support.replies import on_deletes
from tests.support.s3_recorder import Recorded, S3Recorder
from tests.support.s3_stores import STORES, Running
from tests.support.spark_cluster import SHORT_LIVED

from sexton.schemas.settings import load
from sexton.streaming_jobs.spark import s3a_jars

pytestmark = pytest.mark.stores

CHECKPOINT = "s3a://checkpoints/sexton/reaper"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Running]:
    """A server that honours conditional writes, with a bucket for checkpoints."""
    serve, _ = STORES["versitygw"]
    (tmp_path / "store").mkdir()
    with serve(tmp_path / "store") as running:
        yield running


def conf_dir(folder: Path, store: Running) -> str:
    """A folder with the settings of `s3a:` that lead to the store."""
    lines = {
        "endpoint": store.settings.endpoint_url,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "access.key": store.environ["AWS_ACCESS_KEY_ID"],
        "secret.key": store.environ["AWS_SECRET_ACCESS_KEY"],
    }
    folder.mkdir()
    text = "".join(f"spark.hadoop.fs.s3a.{name} {value}\n" for name, value in lines.items())
    (folder / "spark-defaults.conf").write_text(text)
    return str(folder)


def names_in(store: Running) -> set[str]:
    """The objects of the checkpoint."""
    client = boto3.client(
        "s3",
        endpoint_url=store.settings.endpoint_url,
        region_name="us-east-1",
        aws_access_key_id=store.environ["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=store.environ["AWS_SECRET_ACCESS_KEY"],
    )
    try:
        if not client.list_buckets()["Buckets"]:
            client.create_bucket(Bucket="checkpoints")
        found = client.list_objects_v2(Bucket="checkpoints").get("Contents", [])
        return {each["Key"].removeprefix("sexton/reaper/") for each in found}
    finally:
        client.close()


# Hadoop's file system alone, without a session: two writers of one file, both of which have found none.
WRITERS = """
import sys
from types import SimpleNamespace
from py4j.protocol import Py4JJavaError
from sexton.streaming_jobs.reaper.recovery.checkpoint import Checkpoint
from sexton.streaming_jobs.submitted import gateway

jvm = gateway().jvm
conf = jvm.org.apache.hadoop.conf.Configuration()
for line in open(sys.argv[1]):
    name, _, value = line.strip().partition(" ")
    conf.set(name.removeprefix("spark.hadoop."), value)
spark = SimpleNamespace(_jvm=jvm, _jsc=SimpleNamespace(hadoopConfiguration=lambda: conf))
checkpoint = Checkpoint(spark, sys.argv[2], "intents")
assert checkpoint.identity() == checkpoint.identity()
write, path = checkpoint._write, checkpoint._path("twice")
class Late:
    # The other one writes between this one's look and its own write.
    def __init__(self, builder): self.builder = builder
    def recursive(self): self.builder.recursive(); return self
    def overwrite(self, value): self.builder.overwrite(value); return self
    def opt(self, name, value): self.builder.opt(name, value); return self
    def build(self):
        out = self.builder.build()
        checkpoint._fs = fs
        write(path, "first", overwrite=False)
        return out
fs = checkpoint._fs
checkpoint._fs = SimpleNamespace(createFile=lambda path: Late(fs.createFile(path)))
try:
    write(path, "second", overwrite=False)
except Py4JJavaError as error:
    print("refused:", error.java_exception.getClass().getSimpleName())
print("stands:", checkpoint._read("twice"))
for text in ("one", "two"):
    checkpoint.commit_waiting(text)
print("waiting:", checkpoint.waiting())
"""


def test_of_two_first_writers_on_s3a_one_is_refused(store: Running, tmp_path: Path) -> None:
    """The id of a checkpoint is written once, though both have seen that there was none."""
    assert names_in(store) == set()
    conf = Path(conf_dir(tmp_path / "conf", store)) / "spark-defaults.conf"
    jars = os.pathsep.join(map(str, s3a_jars(load().cache_dir)))
    done = subprocess.run(
        [sys.executable, "-c", WRITERS, conf, CHECKPOINT],
        env={**os.environ, **SHORT_LIVED, "PYSPARK_SUBMIT_ARGS": f"--driver-class-path {jars} pyspark-shell"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        "refused: RemoteFileChangedException",
        "stands: first",
        "waiting: two",
    ]
    assert {"sexton-id", "twice", "sexton-waiting/0", "sexton-waiting/1"} <= names_in(store)


@pytest.mark.real
@pytest.mark.spark
def test_a_checkpoint_on_s3a_carries_on_after_a_stop_and_a_kill(
    chain: Chain, s3: S3Recorder, store: Running, start: Callable[..., Command], tmp_path: Path
) -> None:
    """Ended, begun again, killed in a micro-batch, continued elsewhere: all is gone."""
    s3.create_bucket("bucket", {"a": b"", "b": b""})
    assert names_in(store) == set()
    reached, end = threading.Event(), threading.Event()
    place = {"SEXTON_CHECKPOINT": CHECKPOINT, "SEXTON_S3_ENDPOINT_URL": s3.url, "SEXTON_ALLOW": '["bucket/"]'}
    env = {**place, "SPARK_CONF_DIR": conf_dir(tmp_path / "here", store)}
    first = promised(chain, "a")
    chain.emit(first)

    command = start("--once", **env)
    assert command.wait(250) == 0, command.printed
    assert {"sexton-id", "metadata", "offsets/0", "commits/0"} <= names_in(store)

    def wait(request: Recorded) -> None:
        reached.set()
        end.wait(30)

    s3.script(on_deletes(wait))
    second = promised(chain, "b")
    chain.emit(second)
    killed = start(**env)
    killed.until(reached.is_set, 250)
    kill_all(killed)
    end.set()
    killed.wait()
    s3.script(None)

    elsewhere = {**place, "SPARK_CONF_DIR": conf_dir(tmp_path / "elsewhere", store)}
    command = start("--once", **elsewhere)

    assert command.wait(250) == 0, command.printed
    assert not command.events("new_checkpoint")
    assert folded(chain, first, second) == [GONE, GONE]
    assert not s3.objects("bucket")
    assert {"offsets/1", "commits/1"} <= names_in(store)
