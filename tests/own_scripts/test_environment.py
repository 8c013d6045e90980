"""Environment of ranks, as scripts for other launchers expect it: two on one node, one on another.

Accelerate is the real one. DeepSpeed and Megatron need CUDA to be of use: of them it is tested that
the variables are there that their documentation and sources read, and that a group can be formed
from them in their way: both in one job, which knows nothing of us and runs until it is looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jupyter_mntrain.cluster import Job
from jupyter_mntrain.model.records.job import TERMINAL, RankStatus
from tests.agent.live import LiveAgent
from tests.own_scripts.conftest import JOB_S, Launch, launching, said
from tests.trusted import install_drivers
from tests.waiting import until

pytestmark = pytest.mark.slow

MEMBERS = ("node1:2", "node2:1")


@pytest.fixture(scope="module")
def python() -> str:
    return sys.executable


RANKS = [  # rank, local rank, local size, node rank
    (0, 0, 2, 0),
    (1, 1, 2, 0),
    (2, 0, 1, 1),
]

# DeepSpeed's init_distributed wants the first five and looks for MPI if one is missing. Its own
# launcher sets the others, too.
MPI_STYLE_VARIABLES = """
import json, os, time
import torch
import torch.distributed as dist

wanted = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"]
wanted += ["CROSS_RANK", "CROSS_SIZE", "LOCAL_SIZE"]
missing = [name for name in wanted if name not in os.environ]
assert not missing, missing
dist.init_process_group("gloo", init_method="env://")
ranks = [None] * dist.get_world_size()
dist.all_gather_object(ranks, dist.get_rank())
deepspeed = {**{name: os.environ[name] for name in wanted}, "ranks": ranks}
dist.destroy_process_group()
"""

# Megatron reads RANK, WORLD_SIZE and LOCAL_RANK as its arguments and hands them to torch itself.
STORE_OF_ITS_OWN = """
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
local_rank, local_size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, False)
dist.init_process_group("gloo", store=store, world_size=size, rank=rank)
total = torch.tensor([float(rank + 1)])
dist.all_reduce(total)
megatron = {
    "rank": rank,
    "local_rank": local_rank,
    "size": size,
    "local_size": local_size,
    "node": int(os.environ["GROUP_RANK"]),
    "node_rank": int(os.environ["NODE_RANK"]),
    "nodes": int(os.environ["NNODES"]),
    "groups": int(os.environ["GROUP_WORLD_SIZE"]),
    "interface": os.environ["GLOO_SOCKET_IFNAME"],
    "nccl": os.environ["NCCL_SOCKET_IFNAME"],
    "address": os.environ["MASTER_ADDR"],
    "total": total.item(),
}
print("found " + json.dumps({"deepspeed": deepspeed, "megatron": megatron}), flush=True)
payload = torch.zeros(1000)
while True:
    dist.all_reduce(payload)
    time.sleep(0.02)
"""

ACCELERATE = """
import json, os
import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import gather_object

Accelerator()
state = PartialState()
told = {
    "process_index": state.process_index,
    "local_process_index": state.local_process_index,
    "num_processes": state.num_processes,
    "device": state.device.type,
    "backend": state.backend,
    "is_main": state.is_main_process,
    "is_local_main": state.is_local_main_process,
    "gathered": gather_object([state.process_index]),
    "address": os.environ["MASTER_ADDR"],
}
print("found " + json.dumps(told), flush=True)
state.destroy_process_group()
"""


@contextmanager
def home_at(home: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        yield


@pytest.fixture(scope="module")
def job(agents: list[LiveAgent], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A job that has told of all its ranks, and goes on."""
    home = tmp_path_factory.mktemp("home")
    install_drivers(home / ".config")
    with home_at(home), launching(agents) as launch:
        made = launch(MPI_STYLE_VARIABLES + STORE_OF_ITS_OWN, MEMBERS)

        def has_told() -> bool:
            return len(said(made)) == len(RANKS) or made.state in TERMINAL

        until(has_told, "all ranks", JOB_S)
        assert made.state == "running", made.logs()
        yield made
        made.kill()


def test_deepspeed_would_find_its_variables(job: Job, agents: list[LiveAgent]) -> None:
    attempt = job.view().attempt
    assert attempt.master_address == agents[0].address
    assert [one["deepspeed"] for one in said(job)] == [
        {
            "RANK": str(rank),
            "WORLD_SIZE": "3",
            "MASTER_ADDR": attempt.master_address,
            "MASTER_PORT": str(attempt.master_port),
            "LOCAL_RANK": str(local_rank),
            "CROSS_RANK": str(node),
            "CROSS_SIZE": "2",
            "LOCAL_SIZE": str(local_size),
            "ranks": [0, 1, 2],
        }
        for rank, local_rank, local_size, node in RANKS
    ]


def test_a_store_is_opened_as_megatron_does(job: Job, agents: list[LiveAgent]) -> None:
    told = [one["megatron"] for one in said(job)]
    for (rank, local_rank, local_size, node), one in zip(RANKS, told, strict=True):
        assert (one["rank"], one["local_rank"], one["size"]) == (rank, local_rank, 3)
        assert (one["local_size"], one["node"], one["groups"]) == (local_size, node, 2)
        assert (one["node_rank"], one["nodes"]) == (node, 2)
        assert one["address"] == agents[0].address
        assert one["nccl"] == f"={one['interface']}"
        assert one["total"] == 6.0


def test_a_script_that_knows_nothing_of_us_shows_its_links_and_processes(job: Job) -> None:
    def shows() -> bool:
        links = job.history().links
        return set(links) == {"node1", "node2"} and all(
            any(one.sent_bytes for one in samples) for samples in links.values()
        )

    def ranks() -> list[RankStatus]:
        return [rank for part in job.view().parts for rank in part.ranks]

    until(shows, "links", JOB_S)
    until(lambda: [rank.state for rank in ranks()] == ["running"] * 3, "ranks", JOB_S)
    assert all(rank.pid for rank in ranks())
    assert job.history().ranks == {}
    job.kill()
    assert job.wait(30).state == "canceled"


def test_accelerate_finds_its_place(launch: Launch, agents: list[LiveAgent]) -> None:
    job = launch(ACCELERATE, MEMBERS)
    assert job.wait(JOB_S).state == "succeeded", job.logs()
    assert said(job) == [
        {
            "process_index": rank,
            "local_process_index": local_rank,
            "num_processes": 3,
            "device": "cpu",
            "backend": "gloo",
            "is_main": rank == 0,
            "is_local_main": local_rank == 0,
            "gathered": [0, 1, 2],
            "address": agents[0].address,
        }
        for rank, local_rank, _, _ in RANKS
    ]
