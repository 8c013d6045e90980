"""Job list: one row per job."""

from __future__ import annotations

import io

import msgspec
from rich.console import Console

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.show.tables.job_list import job_table
from tests.standin.jobs import view


def test_a_job_whose_numbers_are_doubtful_is_marked() -> None:
    good = view("succeeded", "succeeded")
    warning = Problem(kind=Kind.LOSS_NAN, cause="the loss became NaN")
    doubtful = msgspec.structs.replace(good, warnings=(warning,))
    paper = io.StringIO()
    table = job_table([good, doubtful], now_s=1000.0, program="mntrain")
    Console(file=paper, width=120).print(table)
    rows = [line for line in paper.getvalue().splitlines() if "succeeded" in line]
    assert ["✓ succeeded ⚠" in row for row in rows] == [False, True]
