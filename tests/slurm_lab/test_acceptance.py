"""An acceptance run on nodes of SLURM: asked for, judged and given back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.searches import runs_all
from tests.slurm_lab import SlurmLab
from tests.waiting import until

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not runs_all(), reason="it takes minutes: set MNTRAIN_ALL_CASES"),
]


def test_nothing_fails_and_the_nodes_are_given_back(slurm: SlurmLab, tmp_path: Path) -> None:
    program = f"cd {tmp_path}; exec {sys.executable} -m jupyter_mntrain.cli"
    words = ("accept", "--on", "slurm", "--nodes", "1,2", "--time", "30m")
    done = slurm.login.run(
        ["bash", "-c", f'{program} "$@"', "mntrain", *words],
        timeout_s=1200,
        environment=slurm.environment | {"PWD": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    until(lambda: slurm.queue() == {}, "SLURM completes the job")
