"""Settings table: what has no value yet says why."""

from __future__ import annotations

import io

from rich.console import Console

from jupyter_mntrain.model.records.setting import Setting
from jupyter_mntrain.show.tables.settings import settings_table

OPEN = Setting(name="train.device", value="auto", origin="auto")
UNSET = Setting(name="report.to", value=None, origin="auto")
KNOWN = Setting(name="data.packing", value="auto", origin="auto", chosen="wrapped")
GIVEN = Setting(name="train.steps", value=5, origin="recipe")


def lines(*settings: Setting) -> list[str]:
    paper = io.StringIO()
    Console(file=paper, width=80).print(settings_table(iter(settings)))
    return [line for line in paper.getvalue().splitlines()[2:] if line.strip()]


def test_only_where_a_value_is_open_there_is_a_line_below_that_says_why() -> None:
    assert len(lines(KNOWN, GIVEN)) == 2
    for one in (OPEN, UNSET):
        assert len(lines(KNOWN, one, GIVEN)) == 4
        assert lines(KNOWN, one, GIVEN)[-1].startswith("auto ")
