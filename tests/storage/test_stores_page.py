"""The page about stores shows what the code holds."""

from __future__ import annotations

from tests.support.stores_page import PAGE

from sexton.storage import ALIASINGS


def test_every_spelling_has_its_row() -> None:
    """The table of probes was made with all the aliasings that are tried now."""
    page = PAGE.read_text(encoding="utf-8")

    assert all(f"| keeps apart: {aliasing.name} |" in page for aliasing in ALIASINGS)
