"""Comparison tables: jobs stand side by side in 80 columns."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console, RenderableType

from jupyter_mntrain.metrics.summary import JobSummary
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.setting import DifferentSetting, Setting
from jupyter_mntrain.show.tables.comparison import difference_table, figure_table
from tests.standin.training import sample_job

NAMES = ("llama-tiny-baseline", "qwen-25M-wider-again", f"{'long-' * 20}name", "x", "y", "z")


def jobs(number: int) -> list[JobSummary]:
    summary = sample_job({"wopr": 1, "muthur": 1}, steps=20, state="succeeded").summary
    return [
        msgspec.structs.replace(summary, job_id=JobId(f"j-0000000{at}"), name=name)
        for at, name in enumerate(NAMES[:number])
    ]


def printed(table: RenderableType, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(table, soft_wrap=True)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("number", [2, 3, 4])
def test_every_figure_of_two_to_four_jobs_is_on_one_line(number: int, width: int) -> None:
    found = jobs(number)
    lines = printed(figure_table(found), width)
    assert max(map(len, lines)) <= width
    assert lines[0].split()[1:] == [job.job_id for job in found]
    rows = {line[:12].strip(): line[12:].split() for line in lines[2:]}
    assert len(rows) == len(lines) - 2, "no row goes on in the next line"
    assert all(len(cells) >= number for cells in rows.values())
    assert rows["state"] == ["✓", "succeeded"] * number
    assert not [cell for cells in rows.values() for cell in cells if "…" in cell and len(cell) < 9]


def test_names_of_twenty_letters_are_whole_beside_each_other_and_long_ones_cut() -> None:
    lines = printed(figure_table(jobs(3)), 80)
    names = next(line for line in lines if line.startswith("name")).split()[1:]
    assert names[:2] == list(NAMES[:2])
    assert names[2].startswith("long-long-")
    assert names[2].endswith("…")


def test_more_jobs_than_fit_beside_each_other_go_on_below() -> None:
    lines = printed(figure_table(jobs(6)), 80)
    heads = [line.split()[1:] for line in lines if line.startswith("job  ")]
    assert [name for head in heads for name in head] == [job.job_id for job in jobs(6)]
    assert len(heads) == 2
    assert max(map(len, lines)) <= 80


def test_a_long_value_folds_and_the_name_of_its_setting_does_not() -> None:
    path = "/home/someone/" + "deep/" * 20
    values = tuple(
        Setting(name="data.source", value=f"{path}{at}", origin="recipe") for at in range(2)
    )
    differing = DifferentSetting(name="data_parallel.replicas", values=values)
    lines = printed(difference_table([differing], ["j-00000000", "j-00000001"]), 80)
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["setting", "j-00000000", "j-00000001"]
    assert lines[2].startswith("data_parallel.replicas   /home/")
