"""A process that has imported what the tests need, nothing of the product, and forks for each run of pytest.

Importing it anew took longer than most runs. Each line that it reads is a JSON list: the file that takes what
is printed, and pytest's arguments; it answers with the exit code.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from contextlib import suppress

_IMPORTED = (
    "pytest", "hypothesis", "httpx", "fastapi", "confluent_kafka.admin", "fastavro", "pyarrow", "pyspark.sql",
    "botocore.session", "boto3", "redis", "pydantic_settings", "typer", "rich.table",
    "msgspec", "prometheus_client", "uvicorn", "psutil", "h11",
)  # fmt: skip


def main() -> None:
    """Serve until standard input ends."""
    for name in _IMPORTED:
        with suppress(ImportError):  # what is not there is not missed: it would only have been faster
            importlib.import_module(name)
    assert not [name for name in sys.modules if name.startswith("sexton")]
    for line in sys.stdin:
        printed, *arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(printed, arguments)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(printed: str, arguments: list[str]) -> None:
    """Be a process of its own that runs pytest, and end."""
    os.setsid()
    out = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(out, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    code = 70
    try:
        code = int(importlib.import_module("pytest").main(arguments))
    except BaseException:  # noqa: BLE001  told where all is reported, and nothing runs on in the child
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
