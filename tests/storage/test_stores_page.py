"""The page about stores shows what the code holds."""

from __future__ import annotations

from tests.support.stores_page import PAGE

from sexton.storage import SPELLINGS


def test_every_spelling_has_its_row() -> None:
    """The table of probes was made with all the spellings that are tried now."""
    page = PAGE.read_text(encoding="utf-8")

    assert all(f"| keeps apart: {spelling.name} |" in page for spelling in SPELLINGS)
