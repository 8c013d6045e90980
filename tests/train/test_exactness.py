"""The exactness table of docs/recipe_checkpoints.md: what was measured last, of every setting."""

from __future__ import annotations

import pytest

from tests.rows import same_rows
from tests.train.exactness_rows import (
    EQUAL,
    KINDS,
    NONE,
    OTHER,
    PAGE,
    REFUSED,
    ROWS,
    UNTRIED,
    fields,
    fields_tried,
    page_with,
    read_record,
)


def test_the_page_has_what_was_measured_last() -> None:
    measured = read_record()
    assert [*measured] == [one.shown for one in ROWS], "run it with --write"
    assert {tuple(sorted(cells)) for cells in measured.values()} == {tuple(sorted(KINDS))}
    assert page_with(measured) == PAGE.read_text(encoding="utf-8")


def test_every_setting_is_tried_or_it_is_said_why_not() -> None:
    left_out = {name for names in UNTRIED.values() for name in names.split()}
    same_rows(
        [*fields()],
        fields_tried() | left_out,
        "'{}' is in no row of tests/train/exactness_rows.py",
        "'{}' is no setting: remove it from tests/train/exactness_rows.py",
    )
    assert not fields_tried() & left_out


@pytest.mark.parametrize("kind", KINDS)
def test_most_changes_were_possible(kind: str) -> None:
    """A program whose runs all fail would find them equal, or refused."""
    cells = [cells[kind] for cells in read_record().values()]
    assert {EQUAL, OTHER, REFUSED} <= {*cells}
    assert cells.count(NONE) < len(cells) / 2
