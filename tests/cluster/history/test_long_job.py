"""A long job of a real agent: attached to, zoomed into, and the same after the agent was killed."""

from __future__ import annotations

import pytest

from jupyter_mntrain.cluster import Cluster, Job
from jupyter_mntrain.metrics.downsampled.attempt_lines import most_blocks
from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import JobSpec
from tests.agent.live import LiveAgent
from tests.cluster.conftest import wait_for

pytestmark = pytest.mark.slow

STEPS, PEAK = 9000, 1234
SCRIPT = f"""
import signal, time
from jupyter_mntrain.telemetry import Recorder

now_s = time.time() - 2000
with Recorder(clock=lambda: now_s) as recorder:
    recorder.start(tokens_per_step=10, total_steps={STEPS + 1})
    for step in range(1, {STEPS + 1}):
        step_s = 5.0 if step == {PEAK} else 0.2 + step % 10 / 1000
        now_s += step_s
        recorder.step(tokens=10, loss=9.0 - step / 1000, compute_s=0.1, step_s=step_s)
    signal.pause()
"""


def whole(job: Job) -> JobSeries:
    wait_for(lambda: job.summary().step == STEPS)
    return job.series(4000)


def test_a_long_job_is_attached_to_and_zoomed_into(agents: list[LiveAgent]) -> None:
    addresses = [agent.where for agent in agents]
    with Cluster(agents[0].cluster, addresses=addresses) as cluster:
        wait_for(lambda: {node.liveness for node in cluster.nodes()} == {"up"})
        first = cluster.launch(
            JobSpec(
                entry=("long.py",),
                files={"long.py": SCRIPT},
                participants=cluster.participants(["node1:1"]),
            )
        )
        told = whole(first)
    assert most_blocks(1) < STEPS
    again = []
    for is_killed in (False, True):
        if is_killed:
            agents[0].kill()
            agents[0].start()
        with Cluster(agents[0].cluster, addresses=addresses) as cluster:
            job = cluster.job(first.id)
            again.append(whole(job))
            history = job.history().ranks[Rank(0)]
            assert history.first > 0, "it begins with blocks"
            assert [s.step for s in history.steps] == list(range(history.first + 1, STEPS + 1))
            zoom = job.zoom(PEAK - 1, PEAK + 1)
            assert zoom.job.step == (PEAK - 1, PEAK, PEAK + 1)
            assert zoom.job.step_s[1] == pytest.approx(5.0)
            assert zoom.summary.step == STEPS
            wide = job.zoom(1000, 3000, points=50)
            assert len(wide.job.step) <= 50
            assert max(map(float, wide.job.high["step_s"])) == pytest.approx(5.0)  # type: ignore[arg-type]
    with Cluster(agents[0].cluster, addresses=addresses) as cluster:
        cluster.job(first.id).kill()
    for series in (told, *again):
        drawn = series.job
        assert drawn.step[-1] == STEPS
        assert len(drawn.step) >= 2000
        longest = max(float(one or 0) for one in (*drawn.high["step_s"], *drawn.step_s))
        assert longest == pytest.approx(5.0)
        assert (series.summary.loss, series.summary.first_loss) == (0.0, 8.999)
        assert series.summary.tokens_per_s == pytest.approx(told.summary.tokens_per_s, rel=1e-3)
