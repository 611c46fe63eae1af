"""A randomised run against faults: `SEED=1 FAULTS=1000 make chaos`. Exits 1 when a promise was broken."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.chaos.run import run

from sexton.deploy.local import LocalStack


def main() -> int:
    """Run on servers of its own and print what was found; return the exit code."""
    seed, count = int(os.environ.get("SEED", "1")), int(os.environ.get("FAULTS", "1000"))
    most_s = float(os.environ.get("SECONDS_MOST", "7200"))
    with tempfile.TemporaryDirectory(prefix="sexton-chaos-") as folder:
        stack = LocalStack.start(Path(folder), without={"s3", "bucket", "issuer", "topics"})
        try:
            report = run(stack, seed, count, plant=os.environ.get("PLANT"), most_s=most_s)
        finally:
            stack.stop()
    print(report)
    for violation in report.violations[:50]:
        print(" ", violation)
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
