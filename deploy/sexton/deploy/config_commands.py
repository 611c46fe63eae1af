"""`sexton config`: the settings in force."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from sexton.deploy.output import Format, show_json, show_table
from sexton.schemas import settings

__all__ = ["app"]

app = typer.Typer(
    help="The settings in force.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)
_EXAMPLES = """\b
Examples:
  sexton config show
  sexton config show --format json | jq '.[] | select(.source != "default")'
"""


@app.command(epilog=_EXAMPLES, short_help="print every setting with its source")
def show(
    format: Annotated[Format, typer.Option(help="how to print")] = Format.TEXT,
) -> None:
    """Print every setting with its value and its source; secrets are masked."""
    rows = [asdict(row) for row in settings.explain()]
    if format is Format.JSON:
        show_json(rows)
    else:
        show_table(rows, ("variable", "value", "source", "description"))
