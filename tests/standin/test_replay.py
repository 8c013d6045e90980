"""Replay: the product sees it as a real cluster."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.metrics.series_builder import SeriesBuilder
from tests.agent.live import free_range
from tests.cluster.conftest import wait_for
from tests.standin.pipeline import SLOW_RANK
from tests.standin.story import CAPACITY, HISTORY_STEPS, JOB, SAMPLE_STEPS

ROOT = Path(__file__).resolve().parents[2]


def test_the_product_sees_eight_nodes_and_a_running_job() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.standin.replay",
        "--base-port",
        str(free_range("127.0.0.1", 8)),
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline().decode().strip()
        addresses = line.removeprefix("MNTRAIN_AGENTS=").split()
        assert len(addresses) == 8
        try:
            with Cluster("replay", addresses=addresses) as cluster:
                check(cluster)
        finally:
            process.terminate()
        assert process.wait(20) == 0


def check(cluster: Cluster) -> None:
    wait_for(lambda: [node.liveness for node in cluster.nodes()] == ["up"] * 8)
    job = cluster.job(JOB)

    def all_steps() -> bool:
        ranks = job.history().ranks
        return len(ranks) == 64 and all(one.count > HISTORY_STEPS for one in ranks.values())

    wait_for(all_steps)  # the history, and at least one step written live
    history = job.history()
    builder = SeriesBuilder(JOB, "test")
    builder.extend(history, time.time())
    numbers = builder.summary
    assert job.state == "running"
    assert numbers.slowest_rank == SLOW_RANK
    assert numbers.mfu is not None
    series = builder.whole()
    assert [link.basis for link in numbers.links] == ["interface"] * 16
    assert {link.capacity for link in numbers.links} == {CAPACITY}
    assert (series.texts[0].step, series.texts[0].prompt) == (SAMPLE_STEPS, "Who are you?")
    wait_for(lambda: all(v.heartbeat and len(v.heartbeat.gpus) == 8 for v in cluster.nodes()))
    assert {line.rank for line in job.logs(rank=9, tail=2)} == {9}
