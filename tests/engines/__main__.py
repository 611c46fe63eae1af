"""The published engine beside Sexton: `make test-engines ROUNDS=200 SEED=1`. Exits 1 for a broken promise."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from tests.engines.run import run


def main() -> int:
    """Run on servers of its own and print what was found, then the same as a JSON line; return the code."""
    seed, rounds = int(os.environ.get("SEED", "1")), int(os.environ.get("ROUNDS", "200"))
    store = os.environ.get("STORE", "versitygw")
    with tempfile.TemporaryDirectory(prefix="sexton-engines-") as folder:
        report = run(store, seed, rounds, Path(folder))
    print(report)
    for violation in report.violations[:50]:
        print(" ", violation)
    print(json.dumps(report.figures))
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
