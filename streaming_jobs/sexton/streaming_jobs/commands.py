"""`sexton reaper`: the verbs of the streaming job."""

from __future__ import annotations

import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sexton.schemas import settings as settings_module
from sexton.schemas.errors import EnvironmentFault
from sexton.schemas.forms import to_json

if TYPE_CHECKING:
    from sexton.streaming_jobs.reaper.stop import StopFlag

__all__ = ["app"]


class OutputFormat(StrEnum):
    """How a dry run prints."""

    TEXT = "text"
    JSON = "json"


app = typer.Typer(
    help="The streaming job that judges and executes deletion intents.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_EXAMPLES = """\b
Examples:
  sexton reaper run --once       process what is there, then exit
  sexton reaper run              keep running until SIGTERM
  sexton reaper run --dry-run    show what would become of each waiting intent
  sexton reaper run --master spark://host:7077 --pack sexton-pack
"""


@app.callback()
def _noun() -> None:
    """The streaming job that judges and executes deletion intents."""


@app.command(epilog=_EXAMPLES, short_help="take intents, judge them, delete, write outcomes")
def run(
    once: Annotated[bool, typer.Option("--once", help="process what is there and exit")] = False,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="judge and report what is there; writes nothing anywhere")
    ] = False,
    output_format: Annotated[
        OutputFormat, typer.Option("--format", help="how a dry run prints: text or json")
    ] = OutputFormat.TEXT,
    checkpoint: Annotated[
        str | None, typer.Option(help="any path that Spark can write [SEXTON_CHECKPOINT]")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="serve Prometheus metrics [SEXTON_METRICS_PORT]")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(help="Spark cluster to have tasks done on, spark://HOST:PORT [SEXTON_SPARK_MASTER]"),
    ] = None,
    pack: Annotated[
        Path | None, typer.Option(help="made by `sexton deploy pack` [SEXTON_SPARK_PACK]")
    ] = None,
) -> None:
    """Run the reaper: take intents from Kafka, judge them, delete, write outcomes.

    Exit 0 done or stopped, 1 failed, 75 an environment fault: nothing advanced, try again.
    """
    from sexton.schemas.kafka.admin import reach
    from sexton.streaming_jobs.cluster import handed_out
    from sexton.streaming_jobs.java_client import java_properties

    settings = settings_module.load(
        checkpoint=checkpoint, metrics_port=metrics_port, spark_master=master, spark_pack=pack
    )
    # Said before anything starts, and before anything is waited for.
    handed_out(settings)
    java_properties(settings.kafka_bootstrap_servers, settings.kafka_extra)
    reach(settings)  # brokers that are away are reported soon, and before a JVM is started
    if dry:
        show_dry_run(settings, output_format)
    else:
        run_reaper(settings, once=once)


def show_dry_run(settings: settings_module.Settings, output_format: OutputFormat) -> None:
    """Print a line for each record of the backlog, then how often each outcome came."""
    from sexton.schemas.registry import open_codec
    from sexton.streaming_jobs.reaper.availability import ExecutorWatch
    from sexton.streaming_jobs.reaper.dry_run import about, dry_run, keys_by_kind, kind_of, line_of, summed
    from sexton.streaming_jobs.reaper.executors import check_executors
    from sexton.streaming_jobs.reaper.progress import Progress
    from sexton.streaming_jobs.spark import open_session

    spark = open_session(settings, "sexton-dry-run")
    codec = open_codec(settings)
    words: Counter[str] = Counter()
    keys: Counter[str] = Counter()
    skipped: list[int] = []
    try:
        check_executors(settings, ExecutorWatch(spark, Progress().note))
        for decision in dry_run(settings, spark, skipped.append):
            words[kind_of(decision)] += 1
            of = about(decision, codec)
            keys.update(keys_by_kind(decision, of.keys))
            if output_format is OutputFormat.JSON:
                print(json.dumps({type(decision).__name__: to_json(decision)}))
            else:
                print(line_of(decision, of))
    finally:
        spark.stop()
    message = [summed(words, "record"), summed(keys, "key")]
    left_out = sum(skipped)
    if left_out:
        message.append(f"{left_out} without a value, left out: such a record asks for nothing")
    print(f"dry run: {'; '.join(message)}; nothing was written", file=sys.stderr)


def run_reaper(settings: settings_module.Settings, *, once: bool) -> None:
    """Run the streaming job in this process until it is done or stopped."""
    from py4j.protocol import Py4JError

    from sexton.storage import StoreSettings, check_way
    from sexton.streaming_jobs.reaper.job import Reaper
    from sexton.streaming_jobs.reaper.progress import Progress, serve_metrics
    from sexton.streaming_jobs.reaper.stop import StopFlag
    from sexton.streaming_jobs.spark import jvm_process, open_session
    from sexton.streaming_jobs.submitted import close_stderr, gateway, is_submitted, take_signals

    jvm = None

    def abandon() -> None:
        if jvm is not None:
            jvm.kill()
        close_stderr()  # where it leads through the JVM, the last line is still under way

    stop = StopFlag(settings.reaper_grace_s, abandon)
    stop.install()  # an interrupt while Spark starts would leave its JVM behind
    if is_submitted():
        take_signals(gateway(), stop.told_by_jvm)
    check_way(StoreSettings.of(settings))  # before Spark starts, as the next
    await_free_checkpoint(settings, stop)
    if stop.is_set:
        return
    try:
        port = serve_metrics(settings.metrics_bind, settings.metrics_port)
    except OSError as error:
        raise EnvironmentFault(
            f"metrics cannot be served on {settings.metrics_bind}:{settings.metrics_port}: {error.strerror}",
            hint="--metrics-port or SEXTON_METRICS_PORT names a port that is free, 0 takes one;"
            " SEXTON_METRICS_BIND an address of this machine",
        ) from error
    try:
        # In another thread: in the main one PySpark takes SIGINT for itself, and raises it in the middle of
        # whatever is under way.
        with ThreadPoolExecutor(1) as pool:
            opened = pool.submit(open_session, settings, "sexton-reaper", told=stop.told_by_jvm)
            spark = opened.result()
    except Exception:
        if stop.is_set:
            return  # sent to all processes, the signal has ended the JVM that was starting
        raise
    jvm = jvm_process(spark)
    progress = Progress()
    try:
        if not stop.is_set:
            Reaper(settings, spark, stop, once=once, metrics_port=port, progress=progress).run()
        if stop.is_set:
            progress.note("stopped")  # also with --once, which has not done all that is there then
    finally:
        # A JVM that is gone needs no stop, and what the reaper raised is what has to be reported.
        with suppress(OSError, Py4JError):
            spark.stop()


def await_free_checkpoint(settings: settings_module.Settings, stop: StopFlag) -> None:
    """Return at a stop, or once no other reaper is seen to hold the checkpoint; the lock is not taken here.

    Without Spark only a local checkpoint can be looked into. Raises InvalidSettings when none is set,
    CheckpointLocked.
    """
    from sexton.streaming_jobs.reaper.job import checkpoint_of
    from sexton.streaming_jobs.reaper.progress import Progress
    from sexton.streaming_jobs.reaper.recovery.checkpoint import local_identity
    from sexton.streaming_jobs.reaper.recovery.lock import CheckpointLock

    identity = local_identity(checkpoint_of(settings))
    if identity is not None:
        report = Progress().note
        CheckpointLock(settings, identity).await_free(lambda by: report("locked", holder=by), stop.wait)
