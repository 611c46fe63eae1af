"""`sexton deploy`: what other machines need."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sexton.deploy import pack as packing
from sexton.deploy.output import Format, say, show_json
from sexton.schemas import settings
from sexton.streaming_jobs.pack import Pack

__all__ = ["app", "submit_command"]

app = typer.Typer(
    help="What other machines need.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)
_MASTER = "spark://HOST:7077"
_EXAMPLES = """\b
Examples:
  sexton deploy pack
  sexton deploy pack --to /srv/sexton/pack --python /usr/bin/python3.11
"""


@app.callback()
def _noun() -> None:
    """What other machines need."""


@app.command(epilog=_EXAMPLES, short_help="pack what executors on a Spark cluster need")
def pack(
    to: Annotated[Path, typer.Option(help="folder to make; an older pack there is replaced")] = Path(
        "sexton-pack"
    ),
    python: Annotated[
        Path | None,
        typer.Option(help="where the workers have Python of this version; default: as on this machine"),
    ] = None,
    format: Annotated[Format, typer.Option(help="how to print")] = Format.TEXT,
) -> None:
    """Pack what executors on a Spark cluster need, from what is installed here.

    Made are an archive of Sexton and the packages that tasks import, Sexton alone as a zip, and the jars of
    Spark's Kafka connector. Printed are the files, and how to use them: with spark-submit, or with
    `sexton reaper run --master`. Needs no network, but for jars that `SEXTON_CACHE_DIR` lacks.
    """
    say("packing: takes a minute")
    cache = settings.load().cache_dir.expanduser()
    made = packing.make(to, python or Path(sys._base_executable).resolve(), cache)  # type: ignore[attr-defined]
    if format is Format.JSON:
        show_json(_told(made))
        return
    for path in (made.archive, made.code, *made.jars):
        print(f"{path.stat().st_size / 1e6:7.1f} MB  {path}")
    print(f"\nwith the reaper as the driver, on this machine or one with the same packages:\n\n{_run(made)}")
    print(f"\nwith spark-submit:\n\n{shlex.join(submit_command(made, _MASTER))}")


def submit_command(pack: Pack, master: str | None = None) -> list[str]:
    """Return the spark-submit command, with `--master` where one is given, without options of one's own."""
    from sexton.streaming_jobs import submit

    options = {**pack.spark_options(), "spark.pyspark.driver.python": sys.executable}
    given = [part for name, value in options.items() for part in ("--conf", f"{name}={value}")]
    named = ["--master", master] if master else []
    return ["spark-submit", *named, *given, str(submit.__file__)]


def _run(pack: Pack) -> str:
    return shlex.join(["sexton", "reaper", "run", "--master", _MASTER, "--pack", str(pack.folder)])


def _told(pack: Pack) -> dict[str, object]:
    return {
        "folder": pack.folder,
        "archive": pack.archive,
        "py_files": pack.code,
        "jars": pack.jars,
        "made_with": asdict(pack.made),
        "spark_options": pack.spark_options(),
        "environment": {"SEXTON_SPARK_PACK": pack.folder},
        "spark_submit": submit_command(pack),
    }
