"""The page about the executor: its table is the code's, its commands do what it shows."""

from __future__ import annotations

import subprocess

import docs.generate
import pytest
from tests.docs.test_quickstart import environment, steady
from tests.support import pages

from sexton.deploy.local import Installation
from sexton.schemas.events import DeleteMode, OutcomeKind
from sexton.storage.states import ErrorClass, Kind

PAGE = docs.generate.EXECUTOR
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_table_of_error_classes_is_that_of_the_code() -> None:
    """`python -m docs.generate` was run after the last change of the table."""
    assert docs.generate.executor_page() == TEXT


def test_every_state_class_and_mode_is_told() -> None:
    """No state of a key, no class of errors and no delete mode is missing on the page."""
    life = TEXT.partition("## The life of a key")[2].partition("\n## ")[0]
    classes = TEXT.partition("## Error classes")[2].partition("<!--")[0]

    assert [kind for kind in Kind if kind.value not in life] == []
    assert [each for each in ErrorClass if f"**{each.value.partition(':')[0]}: " not in classes] == []
    assert [mode for mode in DeleteMode if f"| `{mode.value.lower()}`" not in TEXT] == []
    assert OutcomeKind.CHANGED in life


@pytest.mark.real
@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.slow
def test_a_missing_bucket_waits_as_the_page_shows(installation: Installation) -> None:
    """X-13: what stands in a bucket that is there is done, the other intent waits and says why."""
    (block,) = [text for text in pages.blocks(PAGE, "sh") if "two-buckets" in text]
    (shown,) = [text for text in pages.blocks(PAGE, "text") if text.startswith("$ ")]

    printed = []
    for command in block.splitlines():
        done = subprocess.run(
            command, shell=True, cwd=pages.ROOT, env=environment(installation), capture_output=True,
            text=True, timeout=250, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        printed.append(f"$ {command}\n{done.stdout}" if done.stdout else "")

    assert steady("".join(printed)) == steady(shown)
