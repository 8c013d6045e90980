"""A pipeline job: the records that its nodes keep and the samples that its ranks write.

The same for the same arguments, so that pictures and figures of it are always the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address

from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.job import (
    Attempt,
    JobSpec,
    JobState,
    Participant,
    PartStatus,
    Placement,
    RankStatus,
)
from jupyter_mntrain.model.records.metrics import (
    LinkSample,
    RankEvaluation,
    RankStart,
    RankStep,
    RankText,
)
from jupyter_mntrain.model.records.node import Capacity, LinkMeasurement
from jupyter_mntrain.model.records.plan import Plan
from jupyter_mntrain.model.records.sequences import DataPreview
from tests.standin.jobs import measured_links

BEGIN_S = 1_795_200_000.0
GIGABIT = Capacity(bytes_per_s=941e6 / 8, source="measured", time_s=BEGIN_S - 180)
SLOW_RANK = 37
TRAINED_ON = "text that is trained on"


@dataclass(frozen=True)
class PipelineJob:
    """Stages in the order of nodes, replicas of a stage side by side.

    Args:
        layout: ranks of each node.
        began_s: Unix time of the first step's begin.
        computing: share of a step; a little more or less on each rank.
        boundary_bytes_per_s: between two neighboring stages, in each direction.
        link_bytes_per_s: on each node's interface, in each direction.
        peak: FLOP/s of each rank's device; ``None`` for a CPU whose peak is unknown.
    """

    layout: Mapping[str, int]
    name: str = "samantha-7b"
    began_s: float = BEGIN_S
    step_s: float = 1.2
    total_steps: int = 80
    tokens_per_s: float = 1857.0
    microbatches: int | None = 8
    replicas: int = 1
    computing: float = 0.84
    boundary_bytes_per_s: float = 16 * 33_550_000 / 35.3
    link_bytes_per_s: float = 122e6 / 8
    capacity: Capacity | None = GIGABIT
    peak: float | None = 7.1e13
    loopback: bool = False
    plan: Plan | None = None

    @property
    def world(self) -> int:
        return sum(self.layout.values())

    def address(self, number: int) -> str:
        return str(ip_address("127.0.0.2" if self.loopback else "10.0.0.1") + number)

    def agent(self, number: int) -> str:
        return f"{self.address(number)}:8765"

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        made, first = [], 0
        for number, (name, nproc) in enumerate(self.layout.items()):
            made.append(
                Placement(
                    node_id=NodeId(f"{number:032x}"),
                    node=name,
                    node_rank=number,
                    first_rank=Rank(first),
                    nproc=nproc,
                    gpus=(),
                    interface="lo" if self.loopback else "eno1",
                    address=self.address(number),
                    agent=(self.agent(number),),
                )
            )
            first += nproc
        return tuple(made)

    def spec(self) -> JobSpec:
        return JobSpec(
            entry=("-m", "jupyter_mntrain.train", "recipe.toml"),
            participants=tuple(
                Participant(node=p.node, nproc=p.nproc, gpus=p.gpus) for p in self.placements
            ),
            name=self.name,
            files={"recipe.toml": ""},
        )

    def attempt(self) -> Attempt:
        return Attempt(
            number=1,
            placements=self.placements,
            master_address=self.placements[0].address,
            master_port=29500,
            submitted_s=self.began_s - 9,
            plan=self.plan,
        )

    def part(self, place: Placement, state: JobState = "running", step: int = 0) -> PartStatus:
        return PartStatus(
            node_id=place.node_id,
            node=place.node,
            state=state,
            ranks=tuple(
                RankStatus(rank=Rank(rank), state=state, step=step or None, pid=1000 + rank)
                for rank in place.ranks
            ),
            started_s=self.began_s - 8,
        )

    def neighbors(self, rank: int) -> tuple[int, ...]:
        both = (rank - self.replicas, rank + self.replicas)
        return tuple(peer for peer in both if 0 <= peer < self.world)

    def time_s(self, step: int) -> float:
        """When a step ends; steps are numbered from 1."""
        return self.began_s + step * self.step_s

    def start(self, rank: int) -> RankStart:
        stage = rank // self.replicas
        return RankStart(
            time_s=self.began_s - 2,
            rank=Rank(rank),
            local_rank=0,
            world_size=self.world,
            pid=1000 + rank,
            host="host",
            device="cuda:0" if self.peak else "cpu",
            peak_flops_per_s=self.peak,
            peak_source="table" if self.peak else None,
            stages=(stage,),
            layers=tuple(range(stage * 4, stage * 4 + 4)),
            tokens_per_step=65536,
            total_steps=self.total_steps,
            schedule="1f1b",
            microbatches=self.microbatches,
            data=DataPreview((TRAINED_ON,)) if rank == 0 else None,
        )

    def step(self, rank: int, number: int) -> RankStep:
        slow = 0.9 if rank == SLOW_RANK else 1.0
        share = (self.computing + 0.02 * math.sin(rank * 1.7)) / slow
        wobble = 1 + 0.02 * math.sin(number * 0.9 + rank) + (0.15 if 20 <= number < 28 else 0)
        sizes = dict.fromkeys(self.neighbors(rank), int(self.boundary_bytes_per_s * self.step_s))
        flops = None
        if self.peak is not None:
            flops = 0.41 * self.peak * self.step_s * (1 - 0.02 * (rank % 5))
        return RankStep(
            time_s=self.time_s(number),
            rank=Rank(rank),
            step=number,
            step_s=self.step_s * wobble * (3 if number == 1 else 1),
            tokens=round(self.tokens_per_s * self.step_s),
            loss=0.7 + 2.2 * math.exp(-number / 25) + 0.03 * math.sin(number * 2.1),
            compute_s=min(share, 0.97) * self.step_s * (1 + 0.01 * math.sin(number + rank * 2)),
            flops=flops,
            sent_bytes=sizes,
            received_bytes=sizes,
            memory_bytes=18 * 2**30,
            reserved_bytes=19 * 2**30 if self.peak else None,
        )

    def evaluation(self, step: int) -> RankEvaluation:
        loss = 0.9 + 2.2 * math.exp(-step / 25)
        return RankEvaluation(time_s=self.time_s(step) - 0.1, rank=Rank(0), step=step, loss=loss)

    def text(self, step: int, prompt: str, text: str) -> RankText:
        """What the first rank went on with after a step."""
        said = text if step else "the the the"
        return RankText(time_s=self.time_s(step), rank=Rank(0), step=step, prompt=prompt, text=said)

    def link(self, place: Placement, second: float) -> LinkSample:
        rate = self.link_bytes_per_s
        return LinkSample(
            time_s=self.began_s + second,
            interface=place.interface,
            interval_s=1.0,
            sent_bytes=int(rate * (1 + 0.3 * math.sin(second + place.node_rank))),
            received_bytes=int(rate * (1 + 0.3 * math.cos(second))),
            links=self.links(place.node),
        )

    def links(self, node: str) -> tuple[LinkMeasurement, ...]:
        return measured_links(node, self.layout, self.capacity) if self.capacity else ()
