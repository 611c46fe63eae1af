"""The reaper on a Spark cluster whose workers have Python and the store's credentials, and nothing else."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from tests.support.chain import Chain
from tests.support.clustered import BACKLOG, OnCluster
from tests.support.s3_recorder import S3Recorder
from tests.support.spark_cluster import BIN, SparkCluster, spark_cluster

from sexton.deploy import java
from sexton.deploy.local import Installation, LocalStack
from sexton.deploy.pack_commands import submit_command
from sexton.streaming_jobs.budget.shared import key_of
from sexton.streaming_jobs.pack import Pack

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def workers(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A cluster of two workers: no PATH, no HOME, no Sexton."""
    own = {name: os.environ[name] for name in ("AWS_CA_BUNDLE", "AWS_EC2_METADATA_DISABLED")}
    own |= {name: value for name, value in stack.env.items() if name.startswith("AWS_")}
    own["JAVA_HOME"] = str(java.find(stack.settings.cache_dir.expanduser()).home)
    with spark_cluster(tmp_path_factory.mktemp("cluster"), own) as made:
        yield made


@pytest.fixture
def on_cluster(
    chain: Chain,
    installation: Installation,
    s3: S3Recorder,
    pack: Pack,
    workers: SparkCluster,
    tmp_path: Path,
) -> Iterator[OnCluster]:
    """The whole chain, with a cluster of two workers; a store that has halted answers at the end."""
    if workers.lost:
        workers.start_worker()
        workers.await_workers()
    made = OnCluster(chain, installation, s3, pack, workers, tmp_path)
    yield made
    made.halt.released.set()


def test_d_1_a_worker_dies_in_the_middle_of_a_backlog(on_cluster: OnCluster) -> None:
    """D-1: by spark-submit, as the pack's command says; a worker goes with all its executors."""
    on_cluster.fill()
    submit = [str(BIN / "spark-submit"), "--master", on_cluster.workers.url]
    with on_cluster.driver("home", [*submit, *submit_command(on_cluster.pack)[1:], "--once"]) as reaper:
        reaper.until(on_cluster.halt.reached)
        on_cluster.workers.kill(0)
        on_cluster.halt.released.set()
        reaper.ends()

    on_cluster.all_is_as_owed()


def test_d_2_the_driver_dies_and_is_started_elsewhere(on_cluster: OnCluster) -> None:
    """D-2: without spark-submit; meanwhile a second driver is refused, and the next one goes on.

    Both executors send for it, in one budget, which the store's refusals have made; no verdict changes.
    """
    on_cluster.fill()
    on_cluster.halt.throttled = 3
    once = [*on_cluster.run, "--once"]
    with on_cluster.driver("first", once) as first:
        first.until(on_cluster.halt.reached)
        with on_cluster.driver("second", once) as second:
            second.ends(1)
            assert "another reaper runs on this checkpoint" in second.tail
        first.kill()
    chain, settled = on_cluster.chain, len(on_cluster.chain.words())
    on_cluster.halt.released.set()
    with on_cluster.driver("third", once) as third:
        third.ends()

    assert 0 < settled < BACKLOG / 2
    on_cluster.all_is_as_owed()
    verdicts: dict[str, set[tuple[str, str]]] = {}
    for outcome in chain.outcomes():
        verdicts.setdefault(outcome.intent_id, set()).add((outcome.verdict.result, outcome.verdict.reason))
    assert [found for found in verdicts.values() if len(found) > 1] == []
    budget = redis.Redis.from_url(on_cluster.installation.settings.redis_url.get_secret_value())
    try:
        assert budget.exists(key_of(chain.bucket)) == 1
    finally:
        budget.close()
    unpacked = {path.parent.name for path in (on_cluster.workers.folder / "work").glob("*/*/environment")}
    assert {"0", "1"} <= unpacked


def test_x_14_sigterm_to_a_driver_lets_the_micro_batch_on_executors_settle(on_cluster: OnCluster) -> None:
    """X-14 on a cluster: what runs there is finished, exit 0, the rest is left, nothing is done twice."""
    on_cluster.fill()
    with on_cluster.driver("home", on_cluster.run) as reaper:
        reaper.until(on_cluster.halt.reached)
        reaper.process.send_signal(signal.SIGTERM)
        on_cluster.halt.released.set()
        reaper.ends()
        assert len(reaper.events("stopped")) == 1

    chain, settled = on_cluster.chain, len(on_cluster.chain.words())
    assert 0 < settled < BACKLOG
    chain.reap(s3_endpoint_url=on_cluster.s3.url)
    on_cluster.all_is_as_owed()
    assert len(chain.outcomes()) == BACKLOG
    asked = [key for request in on_cluster.s3.deletes() for key in request.keys]
    assert len(asked) == len(set(asked))


def test_a_cluster_that_gives_no_executor_is_waited_for_aloud(on_cluster: OnCluster) -> None:
    """Executors larger than any worker: said with what helps, nothing is read, and a stop is heard."""
    (on_cluster.folder / "spark-defaults.conf").write_text("spark.executor.memory  2g\n")
    too_large = {"SPARK_CONF_DIR": str(on_cluster.folder)}
    with (
        on_cluster.driver("home", on_cluster.run, **too_large) as reaper,
        on_cluster.driver("dry", [*on_cluster.run, "--dry-run"], **too_large) as dry_run,
    ):
        reaper.until("no_executors")
        reaper.process.send_signal(signal.SIGTERM)
        reaper.ends()
        dry_run.until("no_executors")
        dry_run.process.send_signal(signal.SIGINT)
        dry_run.ends(130)

    (said,) = reaper.events("no_executors")
    assert "spark.executor.memory is 2g" in said["fault"]
    assert "docs/operating.md, 'No executors'" in said["hint"]
    assert said["waited_s"] >= 10
    assert len(reaper.events("stopped")) == 1
    assert reaper.events("ready") == []
    assert on_cluster.s3.requests == []
