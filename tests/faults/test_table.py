"""Page of faults: its sentences and its table of places match the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import table
from tests.faults.table import PAGE, Outcome, note, page, report, rows_of, sections_of


@pytest.mark.wording
def test_the_page_is_current() -> None:
    text = PAGE.read_text()
    assert len(rows_of(text)) >= 25
    assert page(rows_of(text), sections_of(text)) == text, "Fix: python -m tests.faults.table"


def test_a_row_that_is_late_fails_and_is_not_written(monkeypatch):
    measured: list[Outcome] = []
    monkeypatch.setattr(table, "measured", measured)
    report(Outcome("in time", 2.0, "", "", ""), 2.0, busy=1.0)
    with pytest.raises(AssertionError, match=r"known after 2\.1 s, not 2\.0 s"):
        report(Outcome("late", 2.1, "", "", ""), 2.0, busy=1.0)
    with pytest.raises(AssertionError):
        report(Outcome("never", None, "", "", ""), 2.0)
    note(Outcome("nothing to know", None, "", "", ""))
    with pytest.raises(AssertionError):
        note(Outcome("without a limit", 60.0, "", "", ""))
    assert [one.fault for one in measured] == ["in time", "nothing to know"]


def test_no_test_writes_a_row_past_its_limit():
    tests = {path.name: path.read_text() for path in Path(__file__).parent.glob("test_*.py")}
    del tests[Path(__file__).name]
    assert not [name for name, text in tests.items() if "measured" + ".append" in text]


def test_sections_are_kept():
    rows = rows_of(PAGE.read_text())
    sections = {"Faults in sequence": "\nall\n", "Faults drawn at random": "\nSeeds 1 to 3.\n"}
    text = page(rows, sections)
    assert sections_of(text) == sections
    assert list(sections_of(text)) == ["Faults drawn at random", "Faults in sequence"]
    assert rows_of(text) == rows
