"""What the replayed job's ranks write: the same for the same seed, whoever asks."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.records.job import (
    Attempt,
    JobRecord,
    JobSpec,
    Participant,
    PartStatus,
    Placement,
    RankStatus,
)
from jupyter_mntrain.model.records.metrics import LinkSample, RankStart, RankStep, RankText
from jupyter_mntrain.model.records.node import Beat, Capacity, Gpu, GpuProcess, InterfaceRate

JOB = JobId("j-64000000")
SLOW_RANK, SLOWDOWN = 37, 1.08
HISTORY_STEPS = 300
TOTAL_STEPS = 20_000
SAMPLE_STEPS = 50
"""Between two samples of what the model writes."""

CAPACITY = Capacity(bytes_per_s=9.41e9 / 8, source="measured")
OVERHEAD = 1.05
"""What headers add to the payload on the wire."""

MICROBATCHES = 32
PARAMETERS = 8_030_000_000
LAYERS = 32
TOKENS = 16_384
"""Per replica and step."""

COMPUTE, OPTIMIZER = 0.60, 0.04
"""Shares of a step."""

ACTIVATIONS = 40_000_000
"""Bytes between two neighboring stages of one replica in one second, in each direction."""

PEAK_FLOPS_PER_S = 165.2e12
GPU_MEMORY = 24 << 30


@dataclass(frozen=True)
class Story:
    """One job: as many stages as nodes, each node's ranks are the replicas of its stage.

    Args:
        began_s: Unix time of the job's first step.
        base_port: the first node's agent listens there, the others on the next ones.
    """

    nodes: int
    ranks: int
    steps_per_s: float
    began_s: float
    base_port: int
    seed: int = 1

    @property
    def replicas(self) -> int:
        return self.ranks // self.nodes

    @property
    def step_s(self) -> float:
        return 1.0 / self.steps_per_s

    def name(self, node: int) -> str:
        return f"n{node + 1:02d}"

    def time_s(self, step: int) -> float:
        """When a step ends; steps are numbered from 1."""
        return self.began_s + step * self.step_s

    def gpus(self, node: int, at_s: float) -> tuple[Gpu, ...]:
        chance = self._chance("gpu", node, int(at_s))
        return tuple(
            Gpu(
                index=index,
                uuid=f"GPU-{self.name(node)}-{index}",
                name="NVIDIA GeForce RTX 4090",
                memory_total_bytes=GPU_MEMORY,
                memory_used_bytes=int(GPU_MEMORY * (0.82 + 0.01 * chance.random())),
                utilization=round(0.9 + 0.09 * chance.random(), 2),
                power_w=round(360 + 60 * chance.random(), 1),
                temperature_c=float(58 + chance.randrange(12)),
                processes=(GpuProcess(pid=self._pid(node * self.replicas + index)),),
            )
            for index in range(self.replicas)
        )

    def record(self, node: int) -> JobRecord:
        placements = tuple(self._placement(one) for one in range(self.nodes))
        own = placements[node]
        return JobRecord(
            job_id=JOB,
            spec=JobSpec(
                entry=("-m", "jupyter_mntrain.train", "recipe.toml"),
                participants=tuple(
                    Participant(node=p.node, nproc=p.nproc, gpus=p.gpus) for p in placements
                ),
                name="llama3-8b",
            ),
            attempt=Attempt(
                number=1,
                placements=placements,
                master_address=placements[0].address,
                master_port=29400,
                submitted_s=self.began_s - 30.0,
            ),
            part=PartStatus(
                node_id=own.node_id,
                node=own.node,
                state="running",
                ranks=tuple(
                    RankStatus(rank=Rank(rank), state="running", pid=self._pid(rank))
                    for rank in own.ranks
                ),
                started_s=self.began_s - 25.0,
            ),
            submitted_by="the replay",
        )

    def start(self, rank: int) -> RankStart:
        stage = rank // self.replicas
        per_stage = LAYERS // self.nodes
        flops = 6.0 * PARAMETERS / self.nodes
        return RankStart(
            time_s=self.began_s,
            rank=Rank(rank),
            local_rank=rank % self.replicas,
            world_size=self.ranks,
            pid=self._pid(rank),
            host=self.name(stage),
            device="NVIDIA GeForce RTX 4090",
            peak_flops_per_s=PEAK_FLOPS_PER_S,
            peak_source="the data sheet",
            stages=(stage,),
            layers=tuple(range(stage * per_stage, (stage + 1) * per_stage)),
            parameters=PARAMETERS // self.nodes,
            flops_per_token=flops,
            tokens_per_step=TOKENS,
            total_steps=TOTAL_STEPS,
            schedule="1f1b",
            microbatches=MICROBATCHES,
            neighbors=tuple(self._neighbors(rank)),
        )

    def step(self, rank: int, step: int) -> RankStep:
        chance = self._chance("step", rank, step)
        is_last = rank // self.replicas == self.nodes - 1
        compute_s = self.step_s * COMPUTE * (1 + 0.01 * chance.uniform(-1, 1))
        if rank == SLOW_RANK:
            compute_s *= SLOWDOWN
        sizes = {peer: int(ACTIVATIONS * self.step_s) for peer in self._neighbors(rank)}
        step_s = self.step_s * (1 + 0.004 * chance.uniform(-1, 1))
        optimizer_s = self.step_s * OPTIMIZER
        return RankStep(
            time_s=self.time_s(step),
            rank=Rank(rank),
            step=step,
            step_s=step_s,
            tokens=TOKENS,
            loss=self._loss(step, chance) if is_last else None,
            compute_s=compute_s,
            wait_s=max(0.0, step_s - compute_s - optimizer_s),
            optimizer_s=optimizer_s,
            flops=6.0 * PARAMETERS / self.nodes * TOKENS,
            sent_bytes=sizes,
            received_bytes=sizes,
            memory_bytes=int(GPU_MEMORY * 0.81),
        )

    def texts(self, step: int) -> tuple[RankText, ...]:
        """What the first rank writes after a step: two samples now and then."""
        if step % SAMPLE_STEPS:
            return ()
        words = f"I am a model of {step} steps. " * min(12, step // SAMPLE_STEPS)
        said = {"Who are you?": words, "Add two numbers.": "def add(a, b):\n    return a + b"}
        return tuple(
            RankText(time_s=self.time_s(step), rank=Rank(0), step=step, prompt=prompt, text=text)
            for prompt, text in said.items()
        )

    def rate(self, node: int, second: int) -> float:
        """Bytes per second on the node's interface, the same in each direction."""
        neighbors = sum(len(self._neighbors(node * self.replicas + r)) for r in self._each())
        wobble = 1 + 0.02 * self._chance("link", node, second).uniform(-1, 1)
        return neighbors * ACTIVATIONS * OVERHEAD * wobble

    def link(self, node: int, time_s: float) -> LinkSample:
        size = int(self.rate(node, int(time_s)))
        return LinkSample(
            time_s=time_s,
            interface="eno1",
            interval_s=1.0,
            sent_bytes=size,
            received_bytes=size,
            capacity=CAPACITY,
        )

    def beat(self, node: int, time_s: float) -> Beat:
        rate = self.rate(node, int(time_s))
        total = int(rate * (time_s - self.began_s))
        return Beat(
            time_s=time_s,
            interfaces=(InterfaceRate("eno1", rate, rate, total, total),),
            gpus=self.gpus(node, time_s),
            cpu_share=0.12,
            memory_available_bytes=200 << 30,
        )

    def log(self, node: int, steps: int) -> bytes:
        """The ranks' lines of the last steps."""
        lines = [
            f"[{self.name(node)} rank {node * self.replicas + local}] step {step} done\n"
            for step in range(max(1, steps - 20), steps + 1)
            for local in self._each()
        ]
        return "".join(lines).encode()

    def _each(self) -> range:
        return range(self.replicas)

    def _neighbors(self, rank: int) -> list[int]:
        both = (rank - self.replicas, rank + self.replicas)
        return [peer for peer in both if 0 <= peer < self.ranks]

    def _placement(self, node: int) -> Placement:
        return Placement(
            node_id=NodeId(f"id-of-{self.name(node)}"),
            node=self.name(node),
            node_rank=node,
            first_rank=Rank(node * self.replicas),
            nproc=self.replicas,
            gpus=tuple(self._each()),
            interface="eno1",
            address=f"10.0.0.{node + 1}",
            agent=(f"127.0.0.1:{self.base_port + node}",),
        )

    def _pid(self, rank: int) -> int:
        return 4000 + rank

    def _chance(self, *what: object) -> random.Random:
        return random.Random(f"{self.seed} {what}")

    @staticmethod
    def _loss(step: int, chance: random.Random) -> float:
        return 2.1 + 9.0 * math.exp(-step / 400) + 0.03 * chance.uniform(-1, 1)
