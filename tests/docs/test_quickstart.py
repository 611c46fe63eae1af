"""The README's commands and examples, run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import pages
from tests.support.pages import ROOT

from sexton.consumers import topics
from sexton.deploy import java
from sexton.deploy.local import Installation
from sexton.schemas import records
from sexton.schemas.codec import Codec
from sexton.schemas.events import DeleteObjects, DeletionIntent

pytestmark = pytest.mark.real

README = ROOT / "README.md"
# What is another one each time: times, places in Kafka and intent ids.
_VARIES = re.compile(r"\d{4}-\d\d-\d\dT\S+Z|\b\d/\d+ +|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{24}(-[0-9a-f]{8})?")


def environment(installation: Installation) -> dict[str, str]:
    """The environment of a shell in which the virtual environment is active and the stack is up."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    home = str(java.find(installation.settings.cache_dir.expanduser()).home)
    return {**installation.environment, "PATH": path, "JAVA_HOME": home}


def steady(text: str) -> list[str]:
    """Lines without what varies; sorted, as partitions come in no order."""
    return sorted(_VARIES.sub("*", line).rstrip() for line in text.splitlines())


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.slow
def test_the_quickstart_prints_what_it_shows(installation: Installation) -> None:
    """J-1: every command of the README succeeds with the output there; the stale intent is refused."""
    demo, by_hand = [block for block in pages.blocks(README, "sh") if "make lint" not in block]
    commands = by_hand.splitlines()
    assert demo == "make demo\n"
    # The stack of this run stands in for those two.
    assert commands[:2] == [". .venv/bin/activate", 'eval "$(sexton local up)"']
    shown = next(block for block in pages.blocks(README, "text") if block.startswith("$ "))

    printed = []
    for command in commands[2:]:
        done = subprocess.run(
            command, shell=True, cwd=ROOT, env=environment(installation), capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        printed.append(f"$ {command}\n{done.stdout}" if done.stdout else "")

    assert steady("".join(printed)) == steady(shown)


def test_the_readmes_example_asks_for_a_deletion(installation: Installation) -> None:
    """The README's service attaches, writes an index and asks for what it no longer names."""
    (example,) = pages.blocks(README, "python")

    done = subprocess.run(
        [sys.executable, "-c", example], env=environment(installation), capture_output=True, text=True,
        timeout=150, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    found = topics.read(installation.settings, records.INTENTS)
    (intent,) = [Codec().decode(record.value, DeletionIntent) for record in found]
    assert isinstance(intent.action, DeleteObjects)
    assert [list(phase) for phase in intent.action.phases] == [["tenants/tenant-42/layer-1-00000001"]]
