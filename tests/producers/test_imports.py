"""What a service gets with the SDK, and what it does not."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

import sexton.producers
from sexton.producers import SextonError, testing

HEAVY = ("pyspark", "py4j", "redis", "boto3", "botocore", "pandas", "pyarrow", "fastapi", "typer")


def test_importing_the_sdk_loads_nothing_heavy() -> None:
    """No Spark, no Redis, no S3 client, no server and no console comes with the SDK."""
    imports = "import sexton.producers, sexton.producers.testing, sexton.issuer.client, sys"
    code = f"{imports}; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("module", [sexton.producers, testing])
def test_all_is_what_is_exported(module: types.ModuleType) -> None:
    """`__all__` names every public name that the module defines or passes on, and nothing else."""
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and name != "annotations"
        and (module is sexton.producers or getattr(value, "__module__", None) == module.__name__)
    }

    assert sorted(module.__all__) == sorted(set(module.__all__))
    assert set(module.__all__) == public - {"testing", "commands"}


def test_every_exported_error_has_the_one_base() -> None:
    """A service catches everything that the SDK raises on purpose with one class."""
    errors = [
        value
        for value in vars(sexton.producers).values()
        if isinstance(value, type) and issubclass(value, BaseException)
    ]

    assert errors
    assert all(issubclass(error, SextonError) for error in errors)
