"""Example notebooks, run on two real agents: they do what they say.

The quickstart is executed by the demo's own tests, and the longest by ``test_finetuning.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import nbformat
import pytest

from tests.agent.live import LiveAgent, two_agents
from tests.notebook.test_books import BOOKS, FOLDER
from tests.wording import says

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore::RuntimeWarning:zmq"),
]


@pytest.mark.parametrize("name", BOOKS)
def test_it_is_a_valid_notebook(name):
    nbformat.validate(nbformat.read(FOLDER / f"{name}.ipynb", as_version=4))


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LiveAgent]]:
    state = tmp_path_factory.mktemp("state")
    with two_agents("127.96.0", state, "lessons") as agents:
        yield agents


def test_your_own_script_runs_on_both_nodes_with_plots(executed, agents):
    cells = executed("your_own_script", agents)
    assert "image/png" in cells["%mntrain attach --wait"]
    assert "succeeded" in cells["%mntrain status"]
    assert "rank 1 of 2 on node2" in cells["%mntrain logs --rank 1 --tail 3"]
    told = cells["%mntrain logs --tail 20"]
    assert "RANK=0" in told
    assert "RANK=1" in told
    assert "NCCL_SOCKET_IFNAME==lo" in told


def test_a_job_is_watched_stopped_repeated_and_one_fails_with_its_cause(executed, agents):
    cells = executed("watch_and_steer", agents)
    assert "is at step" in cells["import time"]
    assert "long" in cells["%mntrain jobs"]
    assert "canceled" in cells["%mntrain stop {job.id}"]
    shorter = (
        "%mntrain launch long.toml --name unbroken --set train.steps=40 --wait --variable unbroken"
    )
    assert "succeeded" in cells[shorter]
    resumed = cells["%mntrain resume {first.id} --wait --variable second"]
    assert "succeeded" in resumed
    assert says("resumed after step", resumed)
    assert says("whole", cells["%mntrain checkpoints {first.id}"])
    compared = cells["%mntrain compare {second.id} {unbroken.id}"]
    assert says("All settings are the same", compared)
    assert "equal: True" in cells["def losses(job):"]
    panel = cells["%mntrain panel llama-tiny"]
    assert "%%mntrain launch --member node1 --member node2" in panel
    assert 'preset = "llama-tiny"' in panel
    failed = cells["%%mntrain launch --name broken --wait"]
    for text in (failed, cells["%mntrain status"]):
        assert "no shard 7 in /data" in text
        assert says("node2: rank 1: FileNotFoundError: no shard 7 in /data", text)


def test_cells_run_on_ranks_that_stay_up_to_a_pipeline(executed, agents):
    cells = executed("on_the_cluster", agents)
    started = cells["%mntrain session start --env OMP_NUM_THREADS=1 --variable session"]
    assert says("2 ranks ready", started)
    first = cells['print(f"rank {rank} of {world_size} on {node}")']
    lines = [line for line in first.split("\n") if line]
    assert {"rank 0 of 2 on node1", "[rank 1] rank 1 of 2 on node2"} < {*lines}
    assert lines.count("tensor([3.])") == 1
    # The same on both, and so printed once.
    assert cells["torch.manual_seed(rank)"].count("weights sum to") == 1
    assert "[rank 1]" not in cells["torch.manual_seed(rank)"]
    sizes = cells["torch.manual_seed(7)"]
    assert "1088" in sizes
    assert "[rank 1] 65" in sizes
    trained = cells["data = torch.Generator().manual_seed(1)"]
    losses = [float(line.split()[-1]) for line in trained.split("\n") if "loss" in line]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    assert "True" in cells["%%mntrain cell --rank 1"]
    assert "r1" in cells["%mntrain attach {session.id}"]
    assert "succeeded" in cells["%%mntrain launch --session auto --wait"]
    assert says("to ranks 0, 1", cells["scale = 0.5"])
    fetched = cells["%mntrain session pull checksum --rank 0,1"]
    assert re.search(r"\[(-?[\d.]+), \1\]", fetched), fetched
    plain = cells['print(f"plain cell on rank {rank}")']
    assert "[rank 1] plain cell on rank 1" in plain
    assert "canceled" in cells["%mntrain stop {session.id}"]
