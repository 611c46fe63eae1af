"""The page about what was tried shows what the code holds and does."""

from __future__ import annotations

import pytest
from tests.support.stores_page import PAGE, stores_table

from sexton.storage import ALIASINGS


def test_every_spelling_has_its_row() -> None:
    """The table of probes was made with all the aliasings that are tried now."""
    page = PAGE.read_text(encoding="utf-8")

    assert all(f"| keeps apart: {aliasing.name} |" in page for aliasing in ALIASINGS)


@pytest.mark.slow
def test_every_named_store_is_told_as_it_is() -> None:
    """The table of stores is what happens now: `python -m tests.support.stores_page` writes it."""
    assert stores_table() in PAGE.read_text(encoding="utf-8")
