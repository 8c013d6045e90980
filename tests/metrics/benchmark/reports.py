"""Reports of benchmarks that tests judge and draw."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jupyter_mntrain.metrics.benchmark.reporting import make_report
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.records.doctor.benchmark import (
    OPERATIONS,
    BenchedLine,
    BenchedPair,
    BenchedRank,
    BenchedSize,
    BenchReport,
    Transport,
)
from jupyter_mntrain.model.records.job import Placement
from jupyter_mntrain.model.records.node import Capacity, NodeInfo, RdmaPort
from tests.standin.cluster import node

GIGABIT = Capacity(1e9 / 8, "measured", time_s=5.0, condition="alone", payload_share=0.95)
PAYLOAD = GIGABIT.payload_bytes_per_s
NAMES = ("a", "b", "hal", "wopr")
SIZES = (1024, 65_536, 1 << 20, 64 << 20)


def nodes(count: int = 2, *, ports: int = 0, capacity: Capacity | None = GIGABIT) -> list[NodeInfo]:
    """Nodes whose links carry a gigabit, with active InfiniBand ports."""
    made = []
    for number, name in enumerate(NAMES[:count], start=1):
        info = node(name, number, capacity=capacity).info
        assert info is not None
        rdma = tuple(
            RdmaPort(device=f"mlx5_{at}", number=1, link="InfiniBand", state="ACTIVE")
            for at in range(ports)
        )
        inventory = msgspec.structs.replace(info.inventory, rdma_ports=rdma)
        made.append(msgspec.structs.replace(info, inventory=inventory))
    return made


def placements(infos: Sequence[NodeInfo], nproc: int = 1) -> list[Placement]:
    return [
        Placement(
            node_id=NodeId(info.node_id),
            node=info.name,
            node_rank=number,
            first_rank=Rank(number * nproc),
            nproc=nproc,
            gpus=(),
            interface="eno1",
            address=f"10.0.0.{number + 1}",
            agent=(),
        )
        for number, info in enumerate(infos)
    ]


def lines(
    count: int = 2,
    nproc: int = 1,
    *,
    transport: Transport | None = None,
    slow: dict[tuple[int, int], float] | None = None,
    share: float = 0.98,
) -> list[BenchedLine]:
    """What rank 0 prints if links reach this share of what they carry, but not the slow pairs."""
    ranks = count * nproc
    told: list[BenchedLine] = []
    for operation in OPERATIONS:
        for size in SIZES:
            taken = 1e-4 + size / (share * PAYLOAD)
            told.append(BenchedSize(operation, size, taken, 3, 2 if operation == "send" else ranks))
    ends = [number * nproc for number in range(count)]
    for sender in ends:
        for receiver in ends:
            if sender != receiver:
                rate = PAYLOAD * (slow or {}).get((sender, receiver), share)
                told.append(
                    BenchedPair(sender, receiver, 64 << 20, (64 << 20) / rate, 8e-5, 2e-4, 100)
                )
    told += [
        BenchedRank(
            rank=rank,
            node=NAMES[rank // nproc],
            device="cpu" if transport is None else "NVIDIA H200",
            backend="gloo" if transport is None else "nccl",
            transport=transport or Transport(),
        )
        for rank in range(ranks)
    ]
    return told


def report(told: Sequence[BenchedLine], infos: Sequence[NodeInfo], nproc: int = 1) -> BenchReport:
    return make_report(JobId("j-1"), told, placements(infos, nproc), infos, time_s=100.0)
