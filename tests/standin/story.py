"""Content of the replayed job: a pipeline of many GPUs on a fast network."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property

import msgspec

from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.records.job import JobRecord, Placement
from jupyter_mntrain.model.records.metrics import RankStart, RankStep, RankText
from jupyter_mntrain.model.records.node import Capacity, Gpu, GpuProcess, Heartbeat, InterfaceRate
from tests.standin.pipeline import PipelineJob

JOB = JobId("j-64000000")
HISTORY_STEPS = 300
SAMPLE_STEPS = 50
"""Between two samples of what the model writes."""

CAPACITY = Capacity(bytes_per_s=9.41e9 / 8, source="measured")
BOUNDARY_BYTES_PER_S = 40e6
PARAMETERS, LAYERS = 8_030_000_000, 32
GPU_MEMORY = 24 << 30


@dataclass(frozen=True, kw_only=True)
class Story(PipelineJob):
    """As many stages as nodes; each node's ranks are the replicas of its stage.

    Args:
        base_port: the first node's agent listens there, the others on the next ones.
    """

    base_port: int
    seed: int = 1

    @classmethod
    def of(
        cls, nodes: int, ranks: int, steps_per_s: float, *, base_port: int, seed: int, now_s: float
    ) -> Story:
        """A job that has made its first :data:`HISTORY_STEPS` steps by ``now_s``."""
        replicas, step_s = ranks // nodes, 1.0 / steps_per_s
        return cls(
            {f"n{number + 1:02d}": replicas for number in range(nodes)},
            name="llama3-8b",
            began_s=now_s - HISTORY_STEPS * step_s,
            step_s=step_s,
            total_steps=20_000,
            tokens_per_s=16_384 * steps_per_s,
            microbatches=32,
            replicas=replicas,
            computing=0.60,
            boundary_bytes_per_s=BOUNDARY_BYTES_PER_S,
            link_bytes_per_s=1.5 * replicas * BOUNDARY_BYTES_PER_S,
            capacity=CAPACITY,
            peak=165.2e12,
            base_port=base_port,
            seed=seed,
        )

    def agent(self, number: int) -> str:
        return f"127.0.0.1:{self.base_port + number}"

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        return tuple(
            msgspec.structs.replace(
                place, node_id=NodeId(f"id-of-{place.node}"), gpus=tuple(range(place.nproc))
            )
            for place in super().placements
        )

    def record(self, node: int) -> JobRecord:
        return JobRecord(
            job_id=JOB,
            spec=self.spec(),
            attempt=self.attempt(),
            part=self.part(self.placements[node]),
            submitted_by="the replay",
        )

    def start(self, rank: int) -> RankStart:
        place = self.placements[rank // self.replicas]
        per_stage = LAYERS // len(self.layout)
        first = place.node_rank * per_stage
        return msgspec.structs.replace(
            super().start(rank),
            local_rank=rank % self.replicas,
            host=place.node,
            device="NVIDIA GeForce RTX 4090",
            layers=tuple(range(first, first + per_stage)),
            parameters=PARAMETERS // len(self.layout),
            flops_per_token=6.0 * PARAMETERS / len(self.layout),
            neighbors=self.neighbors(rank),
        )

    def step(self, rank: int, number: int) -> RankStep:
        made = super().step(rank, number)
        optimizer_s = 0.04 * self.step_s
        is_last = rank >= self.world - self.replicas
        return msgspec.structs.replace(
            made,
            loss=made.loss if is_last else None,
            wait_s=max(0.0, made.step_s - (made.compute_s or 0.0) - optimizer_s),
            optimizer_s=optimizer_s,
        )

    def texts(self, step: int) -> tuple[RankText, ...]:
        """What the first rank writes after a step: two samples now and then."""
        if step % SAMPLE_STEPS:
            return ()
        words = f"I am a model of {step} steps. " * min(12, step // SAMPLE_STEPS)
        said = {"Who are you?": words, "Add two numbers.": "def add(a, b):\n    return a + b"}
        return tuple(self.text(step, *one) for one in said.items())

    def gpus(self, node: int, at_s: float) -> tuple[Gpu, ...]:
        chance = random.Random(f"{self.seed} {node} {int(at_s)}")
        place = self.placements[node]
        return tuple(
            Gpu(
                index=index,
                uuid=f"GPU-{place.node}-{index}",
                name="NVIDIA GeForce RTX 4090",
                memory_total_bytes=GPU_MEMORY,
                memory_used_bytes=int(GPU_MEMORY * (0.82 + 0.01 * chance.random())),
                utilization=round(0.9 + 0.09 * chance.random(), 2),
                power_w=round(360 + 60 * chance.random(), 1),
                temperature_c=float(58 + chance.randrange(12)),
                processes=(GpuProcess(pid=1000 + rank),),
            )
            for index, rank in enumerate(place.ranks)
        )

    def heartbeat(self, node: int, time_s: float) -> Heartbeat:
        second = time_s - self.began_s
        sent = self.link(self.placements[node], second)
        rates = (float(sent.sent_bytes), float(sent.received_bytes))
        total = int(self.link_bytes_per_s * second)
        return Heartbeat(
            time_s=time_s,
            interfaces=(InterfaceRate("eno1", *rates, total, total),),
            gpus=self.gpus(node, time_s),
            cpu_share=0.12,
            memory_available_bytes=200 << 30,
        )

    def log(self, node: int, steps: int) -> bytes:
        """The ranks' lines of the last steps."""
        place = self.placements[node]
        lines = [
            f"[{place.node} rank {rank}] step {step} done\n"
            for step in range(max(1, steps - 20), steps + 1)
            for rank in place.ranks
        ]
        return "".join(lines).encode()
