"""`sexton demo`: throw-away stack, or an installation that is there; story, table, checks."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from sexton.deploy import java
from sexton.deploy.demo import given
from sexton.deploy.demo.checks import Result, check, keys_of
from sexton.deploy.demo.evidence import Evidence
from sexton.deploy.demo.generations_story import TENANTS, GenerationsStory
from sexton.deploy.demo.story import Story
from sexton.deploy.demo.transactions_story import TransactionsStory
from sexton.deploy.local import BUCKET, LocalStack
from sexton.deploy.output import say
from sexton.schemas.errors import SextonError, UsageError
from sexton.schemas.settings import Settings, load

__all__ = ["EXAMPLES", "demo"]

_PAUSE_S = 1.2  # between sentences, for a person at a terminal

EXAMPLES = """\b
Examples:
  sexton demo              a story of two or three minutes
  sexton demo transactions a relocation, and a node that is over
  sexton demo --fast       without pauses; so it is when nobody watches
  sexton demo --keep DIR   leave the stack's folder behind, with its logs
  sexton demo --bucket B   on a fresh installation whose reaper runs
"""


class Teller:
    """Tells the story on the terminal; a pause after each sentence where a person reads along."""

    def __init__(self, console: Console, pause_s: float) -> None:
        self._console = console
        self._pause_s = pause_s
        self._chapters = 0

    def chapter(self, title: str) -> None:
        """Start a chapter."""
        self._chapters += 1
        self._console.print(f"\n[bold]{self._chapters}. {title}[/bold]")
        time.sleep(self._pause_s)

    def say(self, text: str) -> None:
        """Say one sentence."""
        self._console.print(f"   {text}", highlight=False, markup=False)
        time.sleep(self._pause_s)


class Which(StrEnum):
    """The stories that there are."""

    GENERATIONS = "generations"
    TRANSACTIONS = "transactions"


_STORIES: dict[Which, type[Story]] = {
    Which.GENERATIONS: GenerationsStory,
    Which.TRANSACTIONS: TransactionsStory,
}


def demo(
    story: Annotated[Which, typer.Argument(help="which story")] = Which.GENERATIONS,
    fast: Annotated[bool, typer.Option("--fast", help="without pauses")] = False,
    keep: Annotated[Path | None, typer.Option(help="use this folder and leave it behind")] = None,
    bucket: Annotated[
        str | None, typer.Option(help="this bucket, on the fresh installation that the settings lead to")
    ] = None,
) -> None:
    """See the whole chain work on a throw-away local stack; exit code 0 only if every check held.

    With `--bucket` nothing is started: the story is played on the installation that the settings lead to,
    whose topics and bucket have to be empty, and waits for the reaper that runs there.
    """
    if keep is not None and bucket is not None:
        raise UsageError("--keep is for a throw-away stack, --bucket for an installation that is there")
    console = Console(width=None if sys.stdout.isatty() else 120)
    pause = 0.0 if fast or not sys.stdout.isatty() else _PAUSE_S
    teller = Teller(console, pause)
    if bucket is not None:
        results = _run_given(console, teller, bucket, _STORIES[story])
    else:
        with ExitStack() as resources:
            folder = keep or Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="sexton-demo-")))
            results = _run(console, teller, folder, resources, _STORIES[story])
    if not all(result.held for result in results):
        raise SextonError("the demo found a promise that did not hold")
    console.print("\n[bold green]Every check held.[/bold green] Nothing was buried alive.")


def _run(
    console: Console, teller: Teller, folder: Path, resources: ExitStack, kind: type[Story]
) -> list[Result]:
    console.print("Starting a throw-away stack: Kafka, Valkey, an S3 server, the issuer, Spark ...")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SEXTON_", "AWS_"))}
    if cache := os.environ.get("SEXTON_CACHE_DIR"):
        environ["SEXTON_CACHE_DIR"] = cache
    stack = LocalStack.start(folder, environ=environ, say=say)
    resources.callback(stack.stop)
    os.environ.update({name: value for name, value in stack.env.items() if name.startswith("AWS_")})
    os.environ["JAVA_HOME"] = str(java.find(stack.settings.cache_dir.expanduser()).home)
    settings = kind.prepared(stack.settings)
    with ThreadPoolExecutor(1) as starter:
        session = starter.submit(_open_session, settings, resources)
        story = kind(settings, BUCKET, lambda: _reap(settings, session), teller)
        story.play()
    return _judged(console, story)


def _run_given(console: Console, teller: Teller, bucket: str, kind: type[Story]) -> list[Result]:
    settings = kind.prepared(load())
    given.check_fresh(settings, bucket)
    story = kind(settings, bucket, lambda: given.await_reaper(settings), teller)
    story.play()
    return _judged(console, story)


def _judged(console: Console, story: Story) -> list[Result]:
    evidence = story.evidence()
    results = check(evidence, story.checks())
    _show(console, evidence, results)
    return results


def _open_session(settings: Settings, resources: ExitStack) -> Any:
    from sexton.streaming_jobs.spark import open_session

    begun = time.monotonic()
    session = open_session(settings, "sexton-demo")
    resources.callback(session.stop)
    say(f"spark: ready ({time.monotonic() - begun:.1f} s)")
    return session


def _reap(settings: Settings, starting: Future[Any]) -> None:
    from sexton.streaming_jobs.reaper.job import Reaper
    from sexton.streaming_jobs.reaper.progress import Progress
    from sexton.streaming_jobs.reaper.stop import StopFlag

    if not starting.done():
        say("spark: still starting")
    session = starting.result()
    # A person reads the story; what the reaper says of each micro-batch is kept beside the servers' logs.
    with (settings.state_dir / "logs" / "reaper.log").open("a") as log:
        stop = StopFlag(settings.reaper_grace_s, lambda: None)
        Reaper(settings, session, stop, once=True, progress=Progress(out=log)).run()


def _show(console: Console, evidence: Evidence, results: list[Result]) -> None:
    objects = Table(title="What lived and what died", title_justify="left")
    for column in ("object", "now", "outcome of the intent that named it"):
        objects.add_column(column, overflow="fold")
    words = {
        key: f"{outcome.outcome} ({outcome.verdict.reason}, log offset {outcome.verdict.log_offset})"
        for outcome in evidence.outcomes
        for intent in evidence.intents
        if intent.intent_id == outcome.intent_id
        for key in keys_of(intent, evidence)
    }
    for key in sorted(evidence.written):
        alive = key in evidence.left
        objects.add_row(
            _short(key), "[green]lives[/green]" if alive else "[red]gone[/red]", words.get(key, "-")
        )
    console.print()
    console.print(objects)
    checks = Table(title="Checks against bucket and topics", title_justify="left")
    checks.add_column("promise")
    checks.add_column("held")
    for result in results:
        checks.add_row(result.promise, "[green]yes[/green]" if result.held else "[red]NO[/red]")
        for fault in result.faults:
            checks.add_row(f"  {fault}", "")
    console.print(checks)


def _short(key: str) -> str:
    """Shorten ids and key ranges, not the parts that tell objects apart."""
    if key.count("/") != 4:
        return key
    _, tenant_id, _, _, name = key.split("/")
    tenant = next((name for name, known in TENANTS.items() if known == tenant_id), tenant_id)
    return f"{tenant}/.../{name.partition('__')[2] or name}"
