"""`sexton local`: the local stack."""

from __future__ import annotations

import shlex
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sexton.deploy.local import state
from sexton.deploy.local.stack import BUCKET, LocalStack
from sexton.deploy.output import Format, coloured, say, show_json, show_table
from sexton.schemas import settings

__all__ = ["app"]

app = typer.Typer(
    help="The local stack: Kafka, Valkey, an S3 server, the issuer, topics and a bucket.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
Directory = Annotated[
    Path | None, typer.Option("--dir", help="its folder; default: SEXTON_STATE_DIR", show_default=False)
]
Form = Annotated[Format, typer.Option("--format", help="how to print")]
_UP = """\b
Examples:
  eval "$(sexton local up)"
  sexton local up --dir /tmp/stack --without issuer --format json
  sexton local up --faults faults.toml
  sexton local up --brokers 3 --issuers 2
"""
_DOWN = """\b
Examples:
  sexton local down
  sexton local down --wipe
"""
_STATUS = """\b
Examples:
  sexton local status
  sexton local status --format json
"""
_FAULTS = """\b
Examples:
  sexton local faults --to http://127.0.0.1:8333 faults.toml
  sexton local faults --to http://127.0.0.1:8333 --log log.jsonl faults.toml
"""
_BROKERS = "Kafka brokers; default: as many as there are, 1 in a new stack"
_ISSUERS = "issuers that serve the same log; default: as many as there are, or 1"
# More than that no single machine is for: each broker may take 512 MB.
_MOST = 20
_COLOURS = {"ready": "green", "dead": "red", "starting": "yellow"}


@app.command(epilog=_UP, short_help="start what is not running, print the variables to use")
def up(
    dir: Directory = None,
    without: Annotated[
        list[str] | None,
        typer.Option(help="leave out: kafka, redis, s3, issuer, topics, bucket (repeatable)"),
    ] = None,
    faults: Annotated[
        Path | None,
        typer.Option(help="put a proxy before the store that plays this file's rules", show_default=False),
    ] = None,
    brokers: Annotated[int | None, typer.Option(min=1, max=_MOST, help=_BROKERS, show_default=False)] = None,
    issuers: Annotated[int | None, typer.Option(min=1, max=_MOST, help=_ISSUERS, show_default=False)] = None,
    format: Form = Format.TEXT,
) -> None:
    """Start what is not running, wait until each part answers, and print the variables to use.

    A second `up` finds the first one's parts and starts those again that died.
    """
    stack = LocalStack.start(
        _directory(dir), without=without or (), faults=faults, brokers=brokers, issuers=issuers, say=say
    )
    if format is Format.JSON:
        show_json(stack.env)
    else:
        for name, value in stack.env.items():
            print(f"export {name}={shlex.quote(value)}")
    say(f"ready: bucket {BUCKET}, logs in {stack.directory / 'logs'}; `sexton local down` ends it")


@app.command(epilog=_DOWN, short_help="end what `up` started")
def down(
    dir: Directory = None,
    wipe: Annotated[bool, typer.Option("--wipe", help="remove all that it has written too")] = False,
) -> None:
    """End what `up` started, and wait until it is gone. Kafka's and Valkey's data stay for the next `up`."""
    directory = _directory(dir)
    if state.is_new(directory) and not (wipe and directory.exists()):
        say(f"no stack in {directory}: --dir or SEXTON_STATE_DIR names the folder of one")
        return
    stack = LocalStack(directory)
    if wipe:
        stack.wipe(say)
    else:
        stack.stop(say)
    say("down")


@app.command(epilog=_STATUS, short_help="print how each server is")
def status(dir: Directory = None, format: Form = Format.TEXT) -> None:
    """Print how each server is; exit 1 if one that was started does not answer."""
    stack = LocalStack(_directory(dir))
    rows = [asdict(row) for row in stack.status()]
    if format is Format.JSON:
        show_json({"directory": str(stack.directory), "parts": rows})
    else:
        columns = ("part", "state", "pid", "port", "log")
        painted = [
            row | {"state": coloured(row["state"], _COLOURS.get(row["state"], "yellow"))} for row in rows
        ]
        show_table(painted, columns)
    if any(row["state"] in ("dead", "starting") for row in rows):
        raise typer.Exit(1)


@app.command(epilog=_FAULTS, short_help="run the proxy that plays faults, alone")
def faults(
    file: Annotated[Path, typer.Argument(help="the rules, as TOML")],
    to: Annotated[str, typer.Option(help="the store that it stands before: http://HOST:PORT")],
    listen: Annotated[str, typer.Option(help="HOST:PORT; port 0 takes a free one")] = "127.0.0.1:0",
    log: Annotated[
        Path | None,
        typer.Option(help="append the request log to this file; default: stdout", show_default=False),
    ] = None,
) -> None:
    """Run the proxy that plays faults and logs requests, alone, until SIGTERM or Ctrl-C.

    The address goes to stderr. The file is read again whenever it changes.
    """
    from sexton.deploy.local.faults.proxy import serve

    with log.open("ab") if log else nullcontext(sys.stdout.buffer) as stream:
        serve(listen, to, file, stream)


def _directory(given: Path | None) -> Path:
    return settings.load(state_dir=given).state_dir
