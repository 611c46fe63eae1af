"""The reaper as a script for spark-submit: the same entry point as `sexton reaper run`.

`sexton deploy pack` makes what executors need, and prints the command.
"""

from __future__ import annotations

import sys

from sexton.schemas.errors import SextonError
from sexton.schemas.reporting import report_error
from sexton.streaming_jobs.commands import app
from sexton.streaming_jobs.submitted import gateway, take_stderr


def main() -> None:
    """Run `reaper run` with this script's arguments; stdout and stderr are the JVM's."""
    take_stderr(gateway())
    try:
        app(["run", *sys.argv[1:]])
    except SextonError as error:
        sys.exit(report_error(error))


if __name__ == "__main__":
    main()
