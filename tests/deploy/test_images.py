"""What the images are made of, and how their health is asked, as far as no engine is needed for it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HEALTHCHECK = ROOT / "deploy" / "images" / "healthcheck.py"
EXTRAS = {
    "issuer": ("issuer", "registry"),
    "reaper": ("streaming", "registry", "java"),
    "tools": ("local", "java", "slatedb"),
}


def _needed(lines: list[str]) -> Iterator[str]:
    for line in lines:
        requirement = Requirement(line)
        if requirement.name == PROJECT["name"]:
            for extra in requirement.extras:
                yield from _needed(PROJECT["optional-dependencies"][extra])
        else:
            yield canonicalize_name(requirement.name)


def _locked(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    found = re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==(\S+)", text, re.MULTILINE)
    return {canonicalize_name(package): version for package, version in found}


@pytest.mark.parametrize("image", EXTRAS)
def test_an_image_holds_what_its_extras_need(image: str) -> None:
    """What pyproject.toml asks for is in the image's lock file, in the version that is tested."""
    wanted = list(PROJECT["dependencies"])
    for extra in EXTRAS[image]:
        wanted += PROJECT["optional-dependencies"][extra]
    locked, tested = _locked(f"image-{image}"), _locked("dev")

    assert set(_needed(wanted)) - locked.keys() == set()
    assert {name: version for name, version in locked.items() if tested[name] != version} == {}


def test_the_tools_add_to_the_reaper() -> None:
    """The tools' image stands on the reaper's: no package of it is there in another version."""
    reaper, tools = _locked("image-reaper"), _locked("image-tools")

    assert reaper.items() - tools.items() == set()


def test_health_is_asked_where_the_service_was_told_to_listen() -> None:
    """The issuer's port and TLS, and the reaper's port, are taken from the variables that set them."""
    spec = importlib.util.spec_from_file_location("healthcheck", HEALTHCHECK)
    assert spec is not None
    assert spec.loader is not None
    healthcheck = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(healthcheck)

    plain = {"SEXTON_ISSUER_BIND": "0.0.0.0:9999"}
    assert healthcheck.url("issuer", plain) == "http://127.0.0.1:9999/readyz"
    assert healthcheck.url("issuer", {**plain, "SEXTON_ISSUER_TLS_CERT": "/c.pem"}).startswith("https://")
    assert healthcheck.url("reaper", {"SEXTON_METRICS_PORT": "9350"}) == "http://127.0.0.1:9350/metrics"


def test_nobody_answers_is_not_healthy() -> None:
    """Where nothing listens the check ends with 1 and one line, through no proxy."""
    environment = {**os.environ, "SEXTON_METRICS_PORT": "1", "http_proxy": "http://127.0.0.1:1"}
    done = subprocess.run(
        [sys.executable, str(HEALTHCHECK), "reaper"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )

    assert done.returncode == 1
    assert "refused" in done.stderr
    assert done.stderr.count("\n") == 1
