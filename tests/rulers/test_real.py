"""Real jobs of uneven steps on real agents: what is shown is what their own accounts say."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.model.records.job import TERMINAL
from tests.cluster.conftest import *  # noqa: F403 - its agents and its driver
from tests.rulers.real import KINDS, account, launch, rows
from tests.rulers.table import Row, summarized, wrong

pytestmark = pytest.mark.slow

JOBS_S = 400.0
SOME = ("lengths", "restart")


@pytest.fixture(scope="module")
def python() -> str:
    return sys.executable


def test_what_is_shown_of_uneven_jobs_is_what_they_count(cluster: Cluster, tmp_path: Path) -> None:
    kinds = tuple(KINDS) if os.environ.get("MNTRAIN_ALL_CASES") else SOME
    jobs = {kind: launch(cluster, kind, tmp_path / kind) for kind in kinds}
    running, found, until = dict(jobs), list[Row](), time.monotonic() + JOBS_S
    while running and time.monotonic() < until:
        time.sleep(1.0)
        for kind, job in list(running.items()):
            is_over = job.view().state in TERMINAL and job.view().restart is None
            if is_over:
                job.wait_for_history(JOBS_S)
                del running[kind]
            summary = job.summary()
            if not summary.step:
                continue
            share = summary.step / KINDS[kind]
            found += rows(kind, share, summary, account(tmp_path / kind))
    print(summarized(found))
    assert {kind: job.view().state for kind, job in jobs.items()} == dict.fromkeys(
        kinds, "succeeded"
    )
    assert len(found) > 100
    assert not wrong(found)
