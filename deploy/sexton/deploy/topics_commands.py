"""`sexton topics`: create the topics, or compare them with what is needed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from sexton.deploy import topics
from sexton.deploy.output import Format, say, show_json, show_table
from sexton.schemas import settings
from sexton.schemas.text import counted

__all__ = ["app"]

app = typer.Typer(help="Sexton's topics.", no_args_is_help=True, add_completion=False, rich_markup_mode=None)
_CREATE = """\b
Examples:
  sexton topics create
  sexton topics create --replication-factor 3 --partitions 48
"""
_CHECK = """\b
Examples:
  sexton topics check
  sexton topics check --format json
"""


@app.command(epilog=_CREATE, short_help="create the topics that are missing")
def create(
    replication_factor: Annotated[
        int | None,
        typer.Option(min=1, help="copies of each record; default: 3, or 1 with fewer than 3 brokers"),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="partitions of each topic that may have several")
    ] = None,
) -> None:
    """Create the topics that are missing, and the log's first event; print the names of the new ones.

    Nothing is created beside a log that belongs to other topics or another cluster: exit 75.
    Topics that exist are not changed: `sexton topics check` says what is wrong with them.
    """
    loaded = settings.load()
    created = topics.create_installation(loaded, replication_factor, partitions)
    for name in created:
        print(name)
    say(f"{counted(len(created), 'topic')} created" if created else "every topic is there")
    if partitions is not None:
        for name, found in topics.other_partitions(loaded, partitions).items():
            say(f"warning: {name} was there and keeps {counted(found, 'partition')}, not {partitions}")


@app.command(epilog=_CHECK, short_help="compare the topics with what is needed")
def check(
    format: Annotated[Format, typer.Option(help="how to print")] = Format.TEXT,
) -> None:
    """Compare the topics with what is needed, and with those that the log's first event names.

    Exit 1 if anything makes deleting unsafe or impossible.

    Differences that are not fatal are warnings, and alone exit 0.
    """
    problems = topics.check_topics(settings.load())
    rows = [{"severity": "error" if p.fatal else "warning", **asdict(p)} for p in problems]
    if format is Format.JSON:
        show_json(rows)
    elif rows:
        show_table(rows, ("severity", "topic", "setting", "found", "needed"))
    fatal = sum(problem.fatal for problem in problems)
    say(f"{counted(fatal, 'error')}, {counted(len(problems) - fatal, 'warning')}")
    if fatal:
        raise typer.Exit(1)
