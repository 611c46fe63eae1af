"""The page about stores shows what the code holds."""

from __future__ import annotations

from tests.support.stores_page import PAGE, with_table

from sexton.storage import SPELLINGS, table_markdown


def test_the_table_of_error_classes_is_that_of_the_code() -> None:
    """`python -m tests.support.stores_page` was run after the last change of the table."""
    page = PAGE.read_text(encoding="utf-8")

    assert page == with_table(page, "error classes", table_markdown())


def test_every_spelling_has_its_row() -> None:
    """The table of probes was made with all the spellings that are tried now."""
    page = PAGE.read_text(encoding="utf-8")

    assert all(f"| keeps apart: {spelling.name} |" in page for spelling in SPELLINGS)
