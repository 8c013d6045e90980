"""Two real agents on this machine, found by real multicast, running real torchrun jobs."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from jupyter_mntrain.cluster import Cluster, Job, StaticDiscovery
from jupyter_mntrain.model.environment import WEBHOOK_VARIABLE
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec
from jupyter_mntrain.trust.authority import Authority
from jupyter_mntrain.trust.driver_membership import clusters_directory
from tests import trusted
from tests.agent.live import LiveAgent
from tests.cluster.conftest import wait_for
from tests.standin.web_page import Listener
from tests.wording import says, wording

pytestmark = pytest.mark.slow

JOB_S = 240.0
"""For a small job from launch to end, with torch imported again by five processes."""


@pytest.fixture(scope="module")
def python() -> str:
    return sys.executable


SCRIPT = """
import sys, time
import torch
import torch.distributed as dist
from jupyter_mntrain.telemetry import Recorder

dist.init_process_group("gloo")
rank, peer = dist.get_rank(), 1 - dist.get_rank()
payload = torch.zeros(1000)
with Recorder() as recorder:
    step = 0
    while step < int(sys.argv[1]):
        step += 1
        if rank == 0:
            dist.send(payload, peer)
        else:
            dist.recv(payload, peer)
        time.sleep(0.05)
        sent = {peer: 4000} if rank == 0 else {}
        received = {} if rank == 0 else {peer: 4000}
        recorder.step(tokens=100, loss=1 / step, compute_s=0.01,
                      sent_bytes=sent, received_bytes=received)
    print("done at", step, flush=True)
dist.destroy_process_group()
"""


ALONE = """
import os, sys, time
from jupyter_mntrain.telemetry import Recorder

rank = int(os.environ["RANK"])
with Recorder() as recorder:
    for step in range(1, int(sys.argv[1]) + 1):
        time.sleep(0.05)
        recorder.step(step=step, tokens=100, loss=1 / step)
    assert rank == 0, "boom"
    time.sleep(600)
"""
"""Ranks that need no torch: what is tested is what happens to them."""

DRIVER = """
import sys
from jupyter_mntrain.cluster import Cluster

name, job_id, *addresses = sys.argv[1:]
with Cluster(name, addresses=addresses) as cluster, cluster.job(job_id).ending_with_driver():
    print("waits", flush=True)
    sys.stdin.read()
"""

LOADING = """
import os, signal, sys, time
from jupyter_mntrain.telemetry import Recorder

with Recorder() as recorder:
    for shard in recorder.track(range(5), "loading the model", unit="shards"):
        while shard == int(os.environ["RANK"]) + 2 and not os.path.exists(sys.argv[1]):
            time.sleep(0.05)
    recorder.step(tokens=1)
    signal.pause()
"""


def processes_of(job_id: str) -> list[psutil.Process]:
    """Every process that carries the job in its environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("MNTRAIN_JOB") == job_id:
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.status() != psutil.STATUS_ZOMBIE]


def launch(cluster: Cluster, steps: int, script: str = ALONE, **fields: object) -> Job:
    participants = cluster.participants(["node1:1", "node2:1"])
    spec = JobSpec(
        entry=("train.py", str(steps)),
        files={"train.py": script},
        participants=participants,
        **fields,  # type: ignore[arg-type]
    )
    return cluster.launch(spec)


def leases(cluster: Cluster) -> list[int]:
    return [len(node.info.leases) for node in cluster.nodes() if node.info]


def test_agents_are_found_by_multicast_alone(agents: list[LiveAgent]) -> None:
    with Cluster(agents[0].cluster) as cluster:
        wait_for(lambda: [node.liveness for node in cluster.nodes()] == ["up", "up"])
        assert [node.found_by for node in cluster.nodes()] == ["mdns", "mdns"]
        assert [node.address for node in cluster.nodes()] == [agent.where for agent in agents]
    trusted.become_driver(clusters_directory() / "mine", of=Authority.make("mine"))
    ours = {f"{agent.name} of {agent.cluster}" for agent in agents}
    with Cluster("mine") as other:
        # Next to agents of tests that run now.
        wait_for(lambda: ours <= set(other.discovery.strangers))
        assert other.nodes() == ()


def test_a_job_from_launch_to_its_last_line_seen_by_two_kernels(
    cluster: Cluster, agents: list[LiveAgent], request: pytest.FixtureRequest
) -> None:
    cluster.measure()
    page = Listener()
    request.addfinalizer(page.close)
    job = launch(cluster, 40, SCRIPT, name="small", environment={WEBHOOK_VARIABLE: page.url})
    assert wait_for(lambda: len(job.history().ranks) == 2)
    assert job.wait(JOB_S).state == "succeeded", job.logs()
    history = job.wait_for_history(JOB_S)
    assert history.is_complete
    for rank in (Rank(0), Rank(1)):
        series = history.ranks[rank]
        assert [step.step for step in series.steps] == list(range(1, 41))
        assert series.start
        assert series.end
        assert series.end.ok
    assert set(history.links) == {"node1", "node2"}

    summary = job.summary()
    assert (summary.step, summary.state, summary.name) == (40, "succeeded", "small")
    assert summary.first_loss == 1.0
    assert summary.loss == pytest.approx(1 / 40)
    assert summary.elapsed_s
    by_link = {(link.node, link.direction): link for link in summary.links}
    sent = by_link["node1", "sent"]
    assert sent.basis == "ranks"
    assert sent.capacity
    assert sent.capacity.source == "measured"
    assert sent.utilization
    assert 4000 / 0.05 > (sent.bytes_per_s or 0) > 100
    assert by_link["node2", "sent"].bytes_per_s == 0.0

    assert [line.text for line in job.logs(rank=1, tail=3) if "done" in line.text] == ["done at 40"]
    assert processes_of(job.id) == []
    (told,) = wait_for(lambda: page.taken)
    assert (told["job"], told["event"], told["state"]) == (job.id, "ended", "succeeded")

    with Cluster(
        cluster.name, addresses=[agents[1].where, agents[0].where], discovery=StaticDiscovery()
    ) as second:
        seen = second.job(job.id[:7])
        again = seen.wait_for_history(JOB_S)
        assert again.is_complete
        assert again.ranks == history.ranks
        assert seen.view().spec == job.view().spec


def test_a_job_whose_script_fails_names_rank_node_and_cause(cluster: Cluster) -> None:
    job = launch(cluster, 3)
    view = job.wait(JOB_S)
    assert view.state == "failed"
    assert view.problem is not None
    assert view.problem.node == "node2"
    assert "boom" in view.problem.cause + view.problem.detail
    wait_for(lambda: leases(cluster) == [0, 0])


def test_a_refused_launch_leaves_nothing_leased_and_nothing_running(cluster: Cluster) -> None:
    """The head's port is taken, so node1 refuses; node2 has already promised."""
    before = {view.job_id for view in cluster.jobs()}
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RefusedError, match=rf"node1: \w+ {port}") as caught:
            launch(cluster, 3, port=port)
    assert caught.value.kind is Kind.PORT_TAKEN
    assert caught.value.fix
    assert {view.job_id for view in cluster.jobs()} == before
    wait_for(lambda: leases(cluster) == [0, 0])


def test_bad_input_is_refused_before_anything_is_leased(cluster: Cluster) -> None:
    with pytest.raises(SpecError, match=wording("use node")):
        cluster.participants(["node3:1"])
    with pytest.raises(SpecError, match=r"node1: .*'eth99'"):
        cluster.launch(
            JobSpec(entry=("-m", "this"), participants=cluster.participants(["node1:1:eth99"]))
        )
    assert leases(cluster) == [0, 0]


def test_a_dry_run_is_the_command_that_then_runs_and_a_stop_leaves_nothing(
    cluster: Cluster,
) -> None:
    participants = cluster.participants(["node1:1", "node2:1"])
    spec = JobSpec(
        entry=("train.py", "100000"), files={"train.py": ALONE}, participants=participants
    )
    shown = cluster.dry_run(spec)
    assert leases(cluster) == [0, 0]
    job = cluster.launch(spec)

    def command(node: str) -> list[str] | None:
        for process in processes_of(job.id):
            try:
                line = process.cmdline()
                if "torch.distributed.run" in line and process.environ()["MNTRAIN_NODE"] == node:
                    return line
            except psutil.Error:
                continue
        return None

    for dry in shown:
        ran = wait_for(lambda dry=dry: command(dry.node))
        decided = re.compile(r"j-[0-9a-f]{8}|(?<=--master-port=)\d+")
        assert [decided.sub("*", word) for word in ran] == [
            decided.sub("*", word) for word in dry.argv
        ]
    wait_for(lambda: len(job.history().ranks) == 2)
    assert len(processes_of(job.id)) >= 4
    job.stop()
    assert_nothing_is_left(cluster, job)


def assert_nothing_is_left(cluster: Cluster, job: Job) -> None:
    view = job.wait(JOB_S)
    assert view.state == "canceled"
    assert processes_of(job.id) == []
    assert {part.problem for part in view.parts} == {None}
    wait_for(lambda: leases(cluster) == [0, 0])


def test_a_single_node_job_needs_no_other(cluster: Cluster) -> None:
    spec = JobSpec(
        entry=("t.py",),
        files={
            "t.py": "import torch.distributed as d; d.init_process_group('gloo'); print('alone')"
        },
        participants=cluster.participants(["node2:2"]),
    )
    job = cluster.launch(spec)
    assert job.wait(JOB_S).state == "succeeded", job.logs()
    assert sorted(line.rank for line in job.logs() if line.text == "alone") == [0, 1]


def test_an_agent_that_is_killed_makes_its_part_unknown_and_a_rank_that_is_killed_is_the_cause(
    cluster: Cluster, agents: list[LiveAgent]
) -> None:
    job = launch(cluster, 100_000)
    wait_for(lambda: len(job.history().ranks) == 2)
    agents[1].kill()
    wait_for(lambda: job.view().parts[1].state == "unknown")
    assert job.state == "running"
    assert len(processes_of(job.id)) >= 4, "nobody was killed because an agent was silent"
    read = len(job.history().ranks[Rank(1)].steps)
    agents[1].start()
    wait_for(lambda: job.view().parts[1].state == "running")
    wait_for(lambda: len(job.history().ranks[Rank(1)].steps) > read)
    steps = [step.step for step in job.history().ranks[Rank(1)].steps]
    assert steps == list(range(1, len(steps) + 1)), "nothing lost, nothing doubled"

    wait_for(lambda: all(rank.pid for rank in job.summary().ranks))
    with pytest.raises(SpecError):
        job.kill_rank(2)
    job.kill_rank(1)
    view = job.wait(JOB_S)
    assert view.state == "failed"
    assert view.problem is not None
    assert (view.problem.kind, view.problem.node, view.problem.rank) == (Kind.KILLED, "node2", 1)
    assert says("killed by user", view.problem.cause)
    assert {rank.pid for rank in job.summary().ranks} == {None}, "they are gone"
    wait_for(lambda: leases(cluster) == [0, 0])
    assert processes_of(job.id) == []


def test_what_ranks_do_before_their_first_step_is_seen_from_afar_and_a_kill_leaves_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    spec = JobSpec(
        entry=("load.py", str(go)),
        files={"load.py": LOADING},
        participants=cluster.participants(["node1:1", "node2:1"]),
    )
    job = cluster.launch(spec)
    wait_for(lambda: len(job.history().ranks) == 2)
    zero, one = (rank.progress for rank in job.summary().ranks)
    assert zero is not None
    assert one is not None
    assert (zero.what, zero.total, zero.unit) == ("loading the model", 5, "shards")
    assert zero.done <= 2
    assert job.summary().step is None
    go.touch()
    wait_for(lambda: job.summary().step == 1)
    assert [rank.progress for rank in job.summary().ranks] == [None, None]
    job.kill()
    assert_nothing_is_left(cluster, job)


def test_a_job_whose_driver_is_killed_ends_if_it_must_not_outlive_it(
    agents: list[LiveAgent], cluster: Cluster
) -> None:
    job = launch(cluster, 0, script="import time; time.sleep(600)")
    words = [sys.executable, "-c", DRIVER, cluster.name, job.id, *(one.where for one in agents)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"waits\n"
        assert job.state not in TERMINAL
        driver.kill()
    assert job.wait(JOB_S).state == "canceled"
    assert_nothing_is_left(cluster, job)
