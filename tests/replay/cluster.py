"""A cluster of many nodes and one job of many ranks that exists only as numbers.

Real sockets and the agents' own protocol, so that drivers, the Jupyter server and the page are the
real ones: 64 ranks on eight nodes do not fit into a test machine. The same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field

import msgspec

from jupyter_mntrain.model.api import NodeChanged
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.job import Attempt, JobRecord, JobSpec, Participant, Placement
from jupyter_mntrain.model.metrics import LinkSample, RankStart, RankStep, Sample
from jupyter_mntrain.model.node import (
    Beat,
    Capacity,
    Gpu,
    GpuProcess,
    Interface,
    InterfaceRate,
    LeaseInfo,
    NodeInfo,
)
from jupyter_mntrain.model.state import Launched, RankUp, apply, new_part
from tests.cluster.fake_agent import FakeAgent

JOB = JobId("j-64000000")
CLUSTER = "replay"
SLOW_RANK = 37
SLOWER = 1.08
HISTORY_STEPS = 300
TOTAL_STEPS = 100_000
TOKENS = 8192
STEP_S = 1.0
MICROBATCHES = 32
PEAK = 165e12
MFU = 0.41
HOP_BYTES = 180_000_000
CAPACITY = Capacity(bytes_per_s=1.176e9, source="measured", time_s=1.0, peer="the next")
GIB = 1 << 30


@dataclass
class ReplayAgent(FakeAgent):
    """One node with GPUs, all of them leased to the job."""

    gpu_count: int = 8
    random: random.Random = field(default_factory=random.Random)

    @property
    def info(self) -> NodeInfo:
        basis = super().info
        inventory = msgspec.structs.replace(basis.inventory, gpus=self.gpus())
        lease = LeaseInfo(
            job_id=JOB, attempt=1, gpus=tuple(range(self.gpu_count)), port=None, expires_s=None
        )
        return msgspec.structs.replace(basis, inventory=inventory, leases=(lease,))

    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(
            Gpu(
                index=index,
                uuid=f"GPU-{self.name}-{index}",
                name="RTX 4090",
                memory_total_bytes=24 * GIB,
                memory_used_bytes=int((17 + index / 8) * GIB),
                utilisation=0.9 + 0.08 * self.random.random(),
                power_w=380.0,
                temperature_c=62.0 + index,
                processes=(GpuProcess(pid=4000 + index, user="ada", command="python"),),
            )
            for index in range(self.gpu_count)
        )

    def beat(self) -> None:
        rate = HOP_BYTES / STEP_S
        interface = InterfaceRate(
            name="eno1",
            sent_bytes_per_s=rate,
            received_bytes_per_s=rate,
            sent_bytes=0,
            received_bytes=0,
        )
        self.say(Beat(time_s=time.time(), interfaces=(interface,), gpus=self.gpus(), cpu_share=0.1))


class Replay:
    """All nodes and their job.

    Args:
        nodes: also the pipeline's stages.
        ranks: a multiple of ``nodes``; those of one node are replicas of one stage.
        base_port: of the first node; 0 = any for each.
    """

    def __init__(self, nodes: int, ranks: int, *, base_port: int = 0, seed: int = 64) -> None:
        self._random = random.Random(seed)
        self._per_node = ranks // nodes
        self._step = 0
        self.agents = [
            ReplayAgent(
                name=f"n{number + 1:02}",
                cluster=CLUSTER,
                port=base_port + number if base_port else 0,
                beat_every_s=1.0,
                interfaces=(
                    Interface(
                        name="eno1",
                        kind="ethernet",
                        is_up=True,
                        addresses=(f"10.0.0.{number + 1}/24",),
                        speed_mbit_per_s=10_000,
                        capacity=CAPACITY,
                    ),
                ),
                gpu_count=self._per_node,
                random=random.Random(seed + number),
            )
            for number in range(nodes)
        ]

    async def start(self) -> None:
        """Listen, with the history of :data:`HISTORY_STEPS` steps already there."""
        for agent in self.agents:
            await agent.start()
        self._begin_job()
        now = time.time()
        for number in range(HISTORY_STEPS):
            self.advance(now - (HISTORY_STEPS - number) * STEP_S)

    async def run(self, steps_per_s: float) -> None:
        """Go on, until cancelled."""
        begun, number = time.monotonic(), 0
        while True:
            number += 1
            await asyncio.sleep(max(0.0, begun + number / steps_per_s - time.monotonic()))
            self.advance(time.time())

    async def stop(self) -> None:
        for agent in self.agents:
            await agent.die()

    def advance(self, time_s: float) -> None:
        """One step of every rank, and one sample of every link."""
        self._step += 1
        for stage, agent in enumerate(self.agents):
            samples: list[Sample] = [
                self._rank_step(Rank(stage * self._per_node + local), stage, time_s)
                for local in range(self._per_node)
            ]
            samples.append(self._link(stage, time_s))
            agent.write(JOB, *samples)

    def _begin_job(self) -> None:
        placements = tuple(
            Placement(
                node_id=NodeId(agent.node_id),
                node=agent.name,
                node_rank=number,
                first_rank=Rank(number * self._per_node),
                nproc=self._per_node,
                gpus=tuple(range(self._per_node)),
                interface="eno1",
                address=f"10.0.0.{number + 1}",
                agent=(agent.where,),
            )
            for number, agent in enumerate(self.agents)
        )
        spec = JobSpec(
            name="llama3-8b",
            entry=("-m", "jupyter_mntrain.train", "recipe.toml"),
            participants=tuple(Participant(node=p.node, nproc=p.nproc) for p in placements),
        )
        now = time.time()
        attempt = Attempt(
            number=1,
            placements=placements,
            master_address="10.0.0.1",
            master_port=29500,
            submitted_s=now - HISTORY_STEPS * STEP_S,
        )
        for stage, (agent, place) in enumerate(zip(self.agents, placements, strict=True)):
            part = new_part(place.node_id, place.node, place.ranks)
            part = apply(part, Launched(time_s=attempt.submitted_s))
            for rank in place.ranks:
                part = apply(part, RankUp(rank=Rank(rank), pid=4000 + rank))
            agent.jobs[JOB] = JobRecord(
                job_id=JOB, spec=spec, attempt=attempt, part=part, submitted_by="ada@n01"
            )
            agent.logs[JOB] = b"".join(
                f"[{place.node} rank {rank}] step 1 loss 2.4\n".encode() for rank in place.ranks
            )
            starts = [self._rank_start(rank, stage) for rank in place.ranks]
            agent.write(JOB, *starts)
            agent.say(NodeChanged(node=agent.info))

    def _rank_start(self, rank: int, stage: int) -> RankStart:
        beside = (rank - self._per_node, rank + self._per_node)
        return RankStart(
            time_s=time.time(),
            rank=Rank(rank),
            local_rank=rank % self._per_node,
            world_size=self._per_node * len(self.agents),
            pid=4000 + rank,
            host=self.agents[stage].name,
            device="RTX 4090",
            peak_flops_per_s=PEAK,
            stages=(stage,),
            layers=(4 * stage, 4 * stage + 3),
            tokens_per_step=TOKENS,
            total_steps=TOTAL_STEPS,
            schedule="1f1b",
            microbatches=MICROBATCHES,
            neighbours=tuple(p for p in beside if 0 <= p < self._per_node * len(self.agents)),
        )

    def _rank_step(self, rank: Rank, stage: int, time_s: float) -> RankStep:
        noise = 1.0 + 0.01 * (self._random.random() - 0.5)
        compute_s = 0.74 * STEP_S * noise * (SLOWER if rank == SLOW_RANK else 1.0)
        ahead, behind = rank + self._per_node, rank - self._per_node
        share = HOP_BYTES // self._per_node
        peers = {
            peer: share for peer in (ahead, behind) if 0 <= peer < self._per_node * len(self.agents)
        }
        is_last = stage == len(self.agents) - 1
        return RankStep(
            time_s=time_s,
            rank=rank,
            step=self._step,
            step_s=STEP_S * noise,
            tokens=TOKENS,
            loss=1.5 + 3.0 / (1.0 + self._step / 200) + 0.02 * noise if is_last else None,
            compute_s=compute_s,
            optimiser_s=0.01,
            flops=MFU * PEAK * STEP_S,
            sent_bytes=peers,
            received_bytes=peers,
            memory_bytes=18 * GIB,
        )

    def _link(self, stage: int, time_s: float) -> LinkSample:
        hops = (stage > 0) + (stage < len(self.agents) - 1)
        size = int(hops * HOP_BYTES * 1.05)
        return LinkSample(
            time_s=time_s,
            interface="eno1",
            interval_s=STEP_S,
            sent_bytes=size,
            received_bytes=size,
            capacity=CAPACITY,
        )
