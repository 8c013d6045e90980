"""NCCL's network: InfiniBand that falls back to TCP is told, from lines as NCCL prints them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.agent.warnings.nccl_network import INTERVAL_S, NcclNetwork
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from tests.standin.jobs import place
from tests.wording import says

OWN = place("node1", 0, 0, gpus=(0,), rdma_devices=("mlx5_0:1", "mlx5_1:1"))

BEGINS = """hal:11:11 [0] NCCL INFO cudaDriverVersion 12080
hal:11:11 [0] NCCL INFO Bootstrap: Using eth1:10.77.2.1<0>
"""
FELL_BACK = """hal:11:11 [0] NCCL INFO Failed to initialize NET plugin IB
hal:11:11 [0] NCCL INFO NET/Socket : Using [0]eth1:10.77.2.1<0>
hal:11:11 [0] NCCL INFO Initialized NET plugin Socket
hal:11:11 [0] NCCL INFO Using network Socket
"""
ON_INFINIBAND = """hal:11:11 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]
hal:11:11 [0] NCCL INFO Using network IB
"""


class Job:
    """A job's part on one node, and a clock."""

    def __init__(self, directory: Path, rdma_devices: tuple[str, ...] = OWN.rdma_devices) -> None:
        self.folder = directory / "nccl"
        self.folder.mkdir()
        self.now_s = 0.0
        own = place("node1", 0, 0, gpus=(0,), rdma_devices=rdma_devices)
        self.network = NcclNetwork(directory, own, clock=lambda: self.now_s)

    def look(self) -> list[Problem]:
        self.now_s += INTERVAL_S
        return list(self.network.look())

    def says(self, text: str) -> None:
        with (self.folder / "hal.11.log").open("a") as file:
            file.write(text)


@pytest.mark.parametrize(
    ("line", "reason", "fix"),
    [
        ("NCCL INFO NET/IB : No device found.", "no adapter it can open", "--cap-add IPC_LOCK"),
        ("NCCL INFO Failed to open libibverbs.so[.1]", "no libibverbs", "rdma-core"),
        (
            "NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory errno 12",
            "may not lock memory",
            "LimitMEMLOCK",
        ),
        ("NCCL INFO something else", "does not say why", "hal.11.log"),
    ],
)
def test_a_fall_back_to_tcp_is_told_once_with_its_reason(
    tmp_path: Path, line: str, reason: str, fix: str
) -> None:
    job = Job(tmp_path)
    assert job.look() == []
    job.says(BEGINS)
    assert job.look() == []
    job.says(f"hal:11:11 [0] {line}\n{FELL_BACK}")
    (found,) = job.look()
    assert (found.kind, found.node) == (Kind.SLOW_LINK, "node1")
    assert says("mlx5_0:1, mlx5_1:1", found.cause)
    assert says(reason, found.cause)
    assert says(fix, found.fix)
    assert says("node1", found.fix)
    assert job.look() == []


def test_nothing_is_said_while_nccl_uses_it(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.says(BEGINS + ON_INFINIBAND)
    assert job.look() == []


def test_nothing_is_said_where_tcp_was_chosen(tmp_path: Path) -> None:
    job = Job(tmp_path, rdma_devices=())
    job.says(BEGINS + FELL_BACK)
    assert job.look() == []
