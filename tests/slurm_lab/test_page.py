"""docs/slurm.md, executed as it stands on a login node: from nothing to a live plot."""

from __future__ import annotations

import pytest

from tests.searches import runs_all
from tests.slurm_lab import SlurmLab
from tests.test_house import ROOT
from tests.typed_pages import live_views, steps, typed

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not runs_all(), reason="it takes minutes: set MNTRAIN_ALL_CASES"),
]

PAGE = ROOT / "docs" / "slurm.md"


def test_the_page_is_executed_as_it_stands(slurm: SlurmLab) -> None:
    login, environment, shown = slurm.login, slurm.environment, 0
    said = []
    for step in steps(PAGE):
        if step.language == "python":
            shown += live_views(login, step.lines, environment)
        elif not step.language:
            said += [typed(login, line, environment) for line in step.lines]
    assert any("#SBATCH" in one for one in said), "a script to read, before anything is queued"
    assert (login.home / "first-run.png").read_bytes().startswith(b"\x89PNG")
    assert shown == 1, "the cell that launches has a live view"
