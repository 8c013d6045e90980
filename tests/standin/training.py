"""Jobs as they could be, for tables and pictures: real records, made-up numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import msgspec

from jupyter_mntrain.cluster import JobHistory, JobSummary, RankSeries
from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    Attempt,
    JobSpec,
    JobState,
    JobView,
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
from jupyter_mntrain.model.records.node import Capacity
from tests.standin.jobs import taken

BEGIN_S = 1_795_200_000.0
GIGABIT = Capacity(bytes_per_s=941e6 / 8, source="measured", time_s=BEGIN_S - 180)


@dataclass(frozen=True)
class Sample:
    history: JobHistory
    now_s: float

    @property
    def series(self) -> JobSeries:
        return taken(self.history, self.now_s).whole()

    @property
    def summary(self) -> JobSummary:
        return taken(self.history, self.now_s).summary


def sample_job(
    layout: dict[str, int],
    *,
    steps: int = 60,
    step_s: float = 1.2,
    state: JobState = "running",
    capacity: Capacity | None = GIGABIT,
    problem: Problem | None = None,
    peak: float | None = 7.1e13,
    total_steps: int = 80,
    loopback: bool = False,
    microbatches: int | None = 8,
    started: bool = True,
    replicas: int = 1,
    evaluated: int = 0,
    wrote: dict[str, str] = {},  # noqa: B006 - never changed
) -> Sample:
    """A pipeline with one stage per rank, ranks in node order.

    Args:
        evaluated: every so many steps, and before the first one.
        wrote: prompts, and what the model went on with before the first step and after the last.
    """
    view = _view(layout, steps, steps * step_s, state, problem, loopback=loopback)
    placements, world = view.attempt.placements, view.spec.world_size
    ranks = {
        Rank(r): _series(r, world, steps, step_s, peak, total_steps, microbatches, replicas)
        for r in range(world)
    }
    if evaluated:
        told = [_evaluation(step, step_s) for step in range(0, steps + 1, evaluated)]
        ranks = {r: replace(one, evaluations=told) for r, one in ranks.items()}
    if wrote:
        first = ranks[Rank(0)]
        texts = [_text(step, step_s, *one) for step in (0, steps) for one in wrote.items()]
        ranks[Rank(0)] = replace(first, texts=texts)
    history = JobHistory(
        view=view,
        ranks=ranks if started else {},
        links={p.node: _link(p, int(steps * step_s), capacity) for p in placements}
        if steps
        else {},
        is_complete=state in TERMINAL,
    )
    return Sample(history, BEGIN_S + (steps * step_s + 0.4 if steps else -5))


def _view(
    layout: dict[str, int],
    steps: int,
    lasts_s: float,
    state: JobState,
    problem: Problem | None,
    *,
    loopback: bool,
) -> JobView:
    spec = JobSpec(
        entry=("-m", "jupyter_mntrain.train", "recipe.toml"),
        participants=tuple(Participant(node=name, nproc=n) for name, n in layout.items()),
        name="samantha-7b",
        files={"recipe.toml": ""},
    )
    attempt = Attempt(
        number=1,
        placements=_placements(layout, loopback=loopback),
        master_address="10.0.0.1",
        master_port=29500,
        submitted_s=BEGIN_S - 9,
    )
    parts = tuple(
        PartStatus(
            node_id=p.node_id,
            node=p.node,
            state=state if not problem or p.node == problem.node else "canceled",
            ranks=tuple(
                RankStatus(rank=Rank(r), state=state, step=steps or None, pid=1000 + r)
                for r in p.ranks
            ),
            started_s=BEGIN_S - 8,
            ended_s=BEGIN_S + lasts_s + 1 if state in TERMINAL else None,
            problem=problem if problem and p.node == problem.node else None,
        )
        for p in attempt.placements
    )
    return JobView(
        job_id=JobId("j-7f3a9c21"),
        spec=spec,
        attempt=attempt,
        state=state,
        parts=parts,
        problem=problem,
    )


def _placements(layout: dict[str, int], *, loopback: bool) -> tuple[Placement, ...]:
    placements, first = [], 0
    for number, (name, nproc) in enumerate(layout.items()):
        address = f"127.0.0.{number + 2}" if loopback else f"10.0.0.{number + 1}"
        placements.append(
            Placement(
                node_id=NodeId(f"{number:032x}"),
                node=name,
                node_rank=number,
                first_rank=Rank(first),
                nproc=nproc,
                gpus=(),
                interface="lo" if loopback else "eno1",
                address=address,
                agent=(f"{address}:8765",),
            )
        )
        first += nproc
    return tuple(placements)


def _series(
    rank: int,
    world: int,
    steps: int,
    step_s: float,
    peak: float | None,
    total_steps: int,
    microbatches: int | None,
    replicas: int,
) -> RankSeries:
    stage = rank // replicas
    start = RankStart(
        time_s=BEGIN_S - 2,
        rank=Rank(rank),
        local_rank=0,
        world_size=world,
        pid=1000 + rank,
        host="host",
        device="cuda:0" if peak else "cpu",
        peak_flops_per_s=peak,
        peak_source="table" if peak else None,
        stages=(stage,),
        layers=tuple(range(stage * 4, stage * 4 + 4)),
        tokens_per_step=65536,
        total_steps=total_steps,
        schedule="1f1b",
        microbatches=microbatches,
    )
    share = 0.84 + 0.02 * math.sin(rank * 1.7)
    slow = 0.9 if rank == 37 else 1.0
    return RankSeries(
        start=start,
        steps=[
            _step(rank, number, step_s, share / slow, peak, replicas, world)
            for number in range(1, steps + 1)
        ],
        end=None,
    )


def _step(
    rank: int,
    number: int,
    step_s: float,
    share: float,
    peak: float | None,
    replicas: int,
    world: int,
) -> RankStep:
    wobble = 1 + 0.02 * math.sin(number * 0.9 + rank) + (0.15 if 20 <= number < 28 else 0)
    seconds = step_s * wobble * (3 if number == 1 else 1)
    boundary = 16 * 33_550_000 * step_s / 35.3
    peers = [p for p in (rank - replicas, rank + replicas) if 0 <= p < world]
    return RankStep(
        time_s=BEGIN_S + number * step_s,
        rank=Rank(rank),
        step=number,
        step_s=seconds,
        tokens=round(1857 * step_s),
        loss=0.7 + 2.2 * math.exp(-number / 25) + 0.03 * math.sin(number * 2.1),
        compute_s=min(share, 0.97) * step_s * (1 + 0.01 * math.sin(number + rank * 2)),
        flops=None if peak is None else 0.41 * peak * step_s * (1 - 0.02 * (rank % 5)),
        sent_bytes=dict.fromkeys(peers, int(boundary)),
        received_bytes=dict.fromkeys(peers, int(boundary)),
        memory_bytes=18 * 2**30,
    )


def _evaluation(step: int, step_s: float) -> RankEvaluation:
    loss = 0.9 + 2.2 * math.exp(-step / 25)
    return RankEvaluation(time_s=BEGIN_S + step * step_s - 0.1, rank=Rank(0), step=step, loss=loss)


def _text(step: int, step_s: float, prompt: str, text: str) -> RankText:
    said = text if step else "the the the"
    return RankText(
        time_s=BEGIN_S + step * step_s, rank=Rank(0), step=step, prompt=prompt, text=said
    )


def _link(placement: Placement, seconds: int, capacity: Capacity | None) -> list[LinkSample]:
    rate = 122e6 / 8
    return [
        LinkSample(
            time_s=BEGIN_S + second,
            interface=placement.interface,
            interval_s=1.0,
            sent_bytes=int(rate * (1 + 0.3 * math.sin(second + placement.node_rank))),
            received_bytes=int(rate * (1 + 0.3 * math.cos(second))),
            capacity=capacity,
        )
        for second in range(1, seconds + 1)
    ]


NOMINAL = msgspec.structs.replace(GIGABIT, bytes_per_s=1.25e9, source="nominal")

LOST_LINK = Problem(
    kind=Kind.LINK_DOWN,
    cause="eno1 lost its link at 14:40:52",
    fix="plug the cable back in, then launch again",
    node="muthur",
    time_s=BEGIN_S + 73,
    rank=Rank(2),
    detail='Traceback (most recent call last):\n  File "loop.py", line 88, in step\n'
    "RuntimeError: Connection closed by peer",
)

SAID = {
    "Who are you?": "I am Samantha, a helpful assistant.\nHow can I help you today?",
    "Write a function that adds two numbers, and say in a sentence of your own what it does and "
    "why nobody would ever want to call it from anywhere at all, not even from its own tests.": (
        "def add(a, b):\n    return a + b  # $5 is not math, nor is a^2\n" * 12
    ),
    "你好": "\U0001f9e0 你好! \x1b[31mred\x07 \u202eleft \ud800 " + "W" * 400,
    "": "",
}
"""Longer than there is room for, and what no font has."""

SCENES = {
    "two": lambda: sample_job({"wopr": 1, "muthur": 1}, loopback=True),
    "three": lambda: sample_job({"wopr": 2, "muthur": 1}, state="succeeded", total_steps=60),
    "six": lambda: sample_job({"wopr": 2, "muthur": 2, "a-node-with-a-very-long-name": 2}),
    "evaluated": lambda: sample_job({"wopr": 1, "muthur": 1}, evaluated=10),
    "samples": lambda: sample_job({"wopr": 1, "muthur": 1}, evaluated=10, wrote=SAID),
    "many": lambda: sample_job({f"n{i:02}": 8 for i in range(1, 9)}, replicas=8),
    "failed": lambda: sample_job({"wopr": 2, "muthur": 1}, state="failed", problem=LOST_LINK),
    "starting": lambda: sample_job(
        {"wopr": 2, "muthur": 1}, steps=0, state="starting", started=False
    ),
    "no-capacity": lambda: sample_job({"wopr": 1, "muthur": 1}, capacity=NOMINAL, peak=None),
    "one-step": lambda: sample_job({"wopr": 1, "muthur": 1}, steps=1),
    "one-node": lambda: sample_job({"wopr": 8}, microbatches=None),
}
