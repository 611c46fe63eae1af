"""The `sexton` command: finds a noun's verbs beside their code and imports them only when called."""

from __future__ import annotations

import difflib
import errno
import importlib
import logging
import os
import sys
import textwrap
from dataclasses import dataclass
from typing import Any

from sexton.schemas.errors import EnvironmentFault, SextonError, UsageError
from sexton.schemas.masking import MaskingFormatter
from sexton.schemas.reporting import report, report_error

__all__ = ["NOUNS", "Noun", "main", "run"]


@dataclass(frozen=True, slots=True)
class Noun:
    """One noun: `target` is `module:attribute` of its Typer app, or of a function for a noun without verbs.

    `extra` names what has to be installed for it; with `java`, or the option `java_for`, JAVA_HOME is set to
    a usable one. The examples of a function are the module's `EXAMPLES`, those of a verb its own.
    """

    name: str
    target: str
    extra: str
    summary: str
    verbs: tuple[str, ...] = ()
    java: bool = False
    java_for: str | None = None


NOUNS = (
    Noun(
        "local",
        "sexton.deploy.local.commands:app",
        "local",
        "the local stack",
        ("up", "down", "status", "faults"),
    ),
    Noun("demo", "sexton.deploy.demo.command:demo", "local", "a guided end-to-end run on a throw-away stack"),
    Noun("topics", "sexton.deploy.topics_commands:app", "consumers", "Kafka's topics", ("create", "check")),
    Noun(
        "issuer",
        "sexton.issuer.cli.commands:app",
        "issuer",
        "the generation authority",
        ("serve", "show", "rebuild", "verify", "snapshot", "truncate", "scan", "import", "export"),
    ),
    Noun(
        "transactions",
        "sexton.issuer.cli.transaction_commands:app",
        "issuer",
        "MVCC transactions: open, rejected, uncollected",
        ("list", "show", "acknowledge", "decommission"),
    ),
    Noun(
        "reaper", "sexton.streaming_jobs.commands:app", "streaming", "the streaming job", ("run",), java=True
    ),
    Noun(
        "collect",
        "sexton.streaming_jobs.collectors.commands:app",
        "collectors",
        "finding garbage, and asking for its deletion",
        ("leftovers", "sequenced", "transactions"),
        java_for="--spark",
    ),
    Noun(
        "intents",
        "sexton.deploy.intents_commands:app",
        "consumers",
        "asking for deletions, and what became of them",
        ("emit", "status"),
    ),
    Noun("tail", "sexton.consumers.commands:tail", "consumers", "decoded records of a topic"),
    Noun(
        "dead-letters",
        "sexton.consumers.dead_letters_commands:app",
        "consumers",
        "what could not be processed",
        ("list", "show", "replay"),
    ),
    Noun("config", "sexton.deploy.config_commands:app", "consumers", "the settings in force", ("show",)),
    Noun("deploy", "sexton.deploy.pack_commands:app", "pack", "what other machines need", ("pack",)),
    Noun("doctor", "sexton.deploy.doctor:doctor", "consumers", "preflight probes of everything outside"),
)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_HELP = """\
Sexton deletes objects from shared object storage, and never one that somebody
still needs.

Usage: sexton <noun> <verb> [options]

Nouns, and the verbs of each:
{nouns}

Options:
  --version  print the version
  --help     this text; `sexton <noun> <verb> --help` tells the options

Settings are SEXTON_... variables: `sexton config show` prints each with its
value and source.
Exit codes: 0 done, 1 the request failed, 2 wrong usage or internal error,
75 an environment fault (nothing advanced; try again), 130 interrupted.

Examples:
  sexton local up                       start everything on this machine
  sexton intents emit --file F.jsonl    ask for deletions
  sexton tail outcomes --until-end      see what became of them
"""


def main() -> None:
    """Run the command line and exit with its code."""
    raise SystemExit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; every error of Sexton is reported here and nowhere else."""
    try:
        code = _dispatch(arguments)
        # Here: what Python writes when it ends has no error that anybody could report.
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except SextonError as error:
        return report_error(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has seen enough.
        _drop_output()
        return 1
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return _no_room(error)
        logging.getLogger(__name__).debug("internal error", exc_info=True)
        report(f"internal error: {type(error).__name__}: {error}", "SEXTON_LOG_LEVEL=DEBUG shows where")
        return 2


def _no_room(error: OSError) -> int:
    _drop_output()
    full = f"cannot be written: {error.filename or 'the output, or a file'}: {error.strerror}"
    return report_error(EnvironmentFault(full, hint="what was written so far is not whole"))


def _drop_output() -> None:
    """Let what Python would still flush go nowhere: it has no place to go to."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        told = _HELP.format(nouns="\n".join(map(_line, NOUNS)))
        print(told, end="", file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if arguments[0] == "--version":
        from importlib.metadata import version

        print(f"sexton {version('sexton')}")
        return 0
    noun = _noun(arguments[0])
    command = _load(noun)
    _start_logging()
    if (noun.java or noun.java_for in arguments) and "--help" not in arguments:
        _set_java_home()
    from sexton.deploy.usage import invoke

    return invoke(command, arguments[1:], f"sexton {noun.name}")


def _line(noun: Noun) -> str:
    width = max(len(each.name) for each in NOUNS)
    told = f"{noun.summary}: {', '.join(noun.verbs)}" if noun.verbs else noun.summary
    indent = " " * (width + 4)
    return textwrap.fill(told, 80, initial_indent=f"  {noun.name:<{width}}  ", subsequent_indent=indent)


def _noun(name: str) -> Noun:
    for noun in NOUNS:
        if noun.name == name:
            return noun
    close = difflib.get_close_matches(name, [noun.name for noun in NOUNS], n=1)
    hint = f"did you mean `sexton {close[0]}`?" if close else "`sexton --help` lists the nouns"
    raise UsageError(f"unknown noun: {name}", hint=hint)


def _load(noun: Noun) -> Any:
    module, _, attribute = noun.target.partition(":")
    try:
        import typer
        from typer.main import get_command, get_group

        imported = importlib.import_module(module)
        found = getattr(imported, attribute)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "sexton":
            raise
        raise UsageError(
            f"`sexton {noun.name}` needs a package that is not installed: {error.name}",
            hint=f'pip install "sexton[{noun.extra}]"',
        ) from error
    if isinstance(found, typer.Typer):
        found.rich_markup_mode = None  # plain help, the same for every noun, readable in a log
        return get_group(found)
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(noun.name, epilog=imported.EXAMPLES)(found)
    return get_command(single)


def _set_java_home() -> None:
    from sexton.deploy import java
    from sexton.schemas import settings

    # Spark's launcher knows JAVA_HOME and PATH only, not the wheel that a machine without Java has.
    os.environ["JAVA_HOME"] = str(java.find(settings.load().cache_dir.expanduser()).home)


def _start_logging() -> None:
    from sexton.schemas import settings
    from sexton.schemas.errors import InvalidSettings

    try:
        level = settings.load().log_level
    except InvalidSettings:
        level = "INFO"  # the verb loads the settings itself and says what is wrong with them
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(MaskingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    if level != "DEBUG":
        for chatty in ("httpx", "botocore", "boto3"):
            logging.getLogger(chatty).setLevel(logging.WARNING)


if __name__ == "__main__":
    main()
