"""The notebook that people see first. It is executed by the demo; here it is only looked at."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from jupyter_mntrain.verbs import parse, split_line
from jupyter_mntrain.verbs.workload import from_cell

QUICKSTART = Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"


@pytest.fixture(scope="module")
def cells():
    book = nbformat.read(QUICKSTART, as_version=4)
    nbformat.validate(book)
    return [cell for cell in book.cells if cell.cell_type == "code"]


def test_it_is_kept_without_outputs(cells):
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)


def test_every_line_parses_and_every_recipe_fits_two_ranks(cells):
    for cell in cells:
        head, _, body = cell.source.partition("\n")
        if head.startswith("%load_ext"):
            continue
        parse(split_line(head.lstrip("%").removeprefix("mntrain")), program="%mntrain")
        if head.startswith("%%"):
            from_cell(body, directory=Path()).check(2)


def test_the_dry_run_shows_what_is_launched(cells):
    bodies = [cell.source.partition("\n")[2] for cell in cells if cell.source.startswith("%%")]
    assert len(bodies) == 2
    assert bodies[0] == bodies[1]
