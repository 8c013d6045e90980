"""Example notebooks: saved without outputs, and every line parses. test_lessons.py runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.verbs.command import parse, split_line
from jupyter_mntrain.workload.workload import from_cell

FOLDER = Path(__file__).parents[2] / "notebooks"
BOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def code(name: str) -> list[dict[str, Any]]:
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def sources(name: str) -> list[str]:
    return ["".join(cell["source"]) for cell in code(name)]


def test_there_are_the_promised_ones():
    promised = "finetune on_the_cluster quickstart watch_and_steer your_own_script"
    assert promised.split() == BOOKS


@pytest.mark.parametrize("name", BOOKS)
def test_it_is_kept_without_outputs(name):
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code(name))


@pytest.mark.parametrize("name", BOOKS)
def test_every_line_parses_and_every_recipe_fits_two_ranks(name):
    for source in sources(name):
        head, _, body = source.partition("\n")
        if not re.match(r"%{1,2}mntrain ", head):
            continue
        words = re.sub(r"\{\w+\.id\}", "j-00000000", head).lstrip("%").removeprefix("mntrain")
        parse(split_line(words), program="%mntrain")
        if head.startswith("%%") and not head.startswith("%%mntrain cell"):
            from_cell(body, directory=Path()).check(2)


def test_the_quickstart_plans_and_shows_what_it_launches():
    cells = [one.partition("\n") for one in sources("quickstart") if one.startswith("%%")]
    assert [head.split()[1] for head, _, _ in cells] == ["plan", "launch", "launch"]
    assert len({body for _, _, body in cells}) == 1
