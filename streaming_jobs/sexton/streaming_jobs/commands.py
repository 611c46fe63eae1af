"""`sexton reaper`: the verbs of the streaming job."""

from __future__ import annotations

import os
import signal
from typing import Annotated

import typer

from sexton.schemas import settings as settings_module

__all__ = ["app"]

app = typer.Typer(help="The streaming job that judges and executes deletion intents.", no_args_is_help=True)

_EXAMPLES = """
EXAMPLES

  sexton reaper run --once            work off what is there, then exit

  sexton reaper run                   keep running until SIGTERM

Exit codes: 0 done or stopped, 1 failed, 2 wrong usage, 75 an environment fault: nothing advanced, try again.
"""


@app.callback()
def _noun() -> None:
    """The streaming job that judges and executes deletion intents."""


@app.command(epilog=_EXAMPLES)
def run(
    once: Annotated[bool, typer.Option("--once", help="work off what is there and exit")] = False,
    checkpoint: Annotated[
        str | None, typer.Option(help="any path that Spark can write [SEXTON_CHECKPOINT]")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="serve Prometheus metrics [SEXTON_METRICS_PORT]")
    ] = None,
) -> None:
    """Run the reaper: take intents from Kafka, judge them, delete, write outcomes."""
    run_reaper(settings_module.load(checkpoint=checkpoint, metrics_port=metrics_port), once=once)


def run_reaper(settings: settings_module.Settings, *, once: bool) -> None:
    """Run the streaming job in this process until it is done or stopped."""
    from sexton.streaming_jobs.reaper.job import Reaper, jvm_pid
    from sexton.streaming_jobs.reaper.progress import serve_metrics
    from sexton.streaming_jobs.reaper.stop import StopFlag
    from sexton.streaming_jobs.spark import open_session

    port = serve_metrics(settings.metrics_port)
    spark = open_session(settings, "sexton-reaper")
    pid = jvm_pid(spark)

    def abandon() -> None:
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    stop = StopFlag(settings.reaper_grace_s, abandon)
    stop.install()
    try:
        Reaper(settings, spark, stop, once=once, metrics_port=port).run()
    finally:
        spark.stop()
