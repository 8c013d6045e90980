"""Page of faults: its sentences and its table of places match the program."""

from __future__ import annotations

import pytest

from tests.faults.table import PAGE, page, rows_of


@pytest.mark.wording
def test_the_page_is_current() -> None:
    text = PAGE.read_text()
    assert len(rows_of(text)) >= 25
    assert page(rows_of(text)) == text, "Fix: python -m tests.faults.table"
