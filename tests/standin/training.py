"""Plausible jobs for tables and pictures: real records, invented numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec

from jupyter_mntrain.cluster import JobHistory, JobSummary, RankSeries
from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.records.job import TERMINAL, JobState, JobView, PartStatus, Placement
from tests.standin.jobs import taken
from tests.standin.pipeline import BEGIN_S, PipelineJob
from tests.standin.traces import traces_of, walked


@dataclass(frozen=True)
class Sample:
    history: JobHistory
    now_s: float

    @cached_property
    def series(self) -> JobSeries:
        return taken(self.history, self.now_s).whole()

    @cached_property
    def summary(self) -> JobSummary:
        return taken(self.history, self.now_s).summary


def sample_job(
    layout: dict[str, int],
    *,
    steps: int = 60,
    state: JobState = "running",
    problem: Problem | None = None,
    started: bool = True,
    evaluated: int = 0,
    traced: Sequence[int] = (),
    wrote: dict[str, str] = {},  # noqa: B006 - never changed
    **fields: Any,
) -> Sample:
    """A pipeline with one stage per rank, ranks in node order.

    Args:
        evaluated: every so many steps, and before the first one.
        traced: steps that were recorded action by action.
        wrote: prompts, and what the model went on with before the first step and after the last.
        fields: of :class:`PipelineJob`.
    """
    job = PipelineJob(layout, **fields)
    view = _view(job, steps, state, problem)
    ranks: dict[Rank, RankSeries] = {}
    for number in range(job.world) if started else ():
        done = [job.step(number, step) for step in range(1, steps + 1)]
        ranks[Rank(number)] = RankSeries(start=job.start(number), steps=done, end=None)
    if evaluated:
        told = [job.evaluation(step) for step in range(0, steps + 1, evaluated)]
        ranks = {r: replace(one, evaluations=told) for r, one in ranks.items()}
    for step in traced:
        told_of = traces_of(walked(ranks=job.world), number=step, begin_s=job.time_s(step - 1))
        ranks = {r: replace(one, traces=(*one.traces, told_of[r])) for r, one in ranks.items()}
    if wrote:
        texts = [job.text(step, *one) for step in (0, steps) for one in wrote.items()]
        ranks[Rank(0)] = replace(ranks[Rank(0)], texts=texts)
    seconds = range(1, int(steps * job.step_s) + 1)
    links = {p.node: [job.link(p, second) for second in seconds] for p in job.placements}
    history = JobHistory(
        view=view,
        ranks=ranks,
        links=links if steps else {},
        is_complete=state in TERMINAL,
    )
    return Sample(history, job.time_s(steps) + 0.4 if steps else BEGIN_S - 5)


def _view(job: PipelineJob, steps: int, state: JobState, problem: Problem | None) -> JobView:
    ended_s = job.time_s(steps) + 1 if state in TERMINAL else None

    def part(place: Placement) -> PartStatus:
        is_guilty = problem is not None and place.node == problem.node
        own = job.part(place, state, steps)
        return msgspec.structs.replace(
            own,
            state=state if problem is None or is_guilty else "canceled",
            ended_s=ended_s,
            problem=problem if is_guilty else None,
        )

    return JobView(
        job_id=JobId("j-7f3a9c21"),
        spec=job.spec(),
        attempt=job.attempt(),
        state=state,
        parts=tuple(map(part, job.placements)),
        problem=problem,
    )


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
    "no-capacity": lambda: sample_job({"wopr": 1, "muthur": 1}, capacity=None, peak=None),
    "one-step": lambda: sample_job({"wopr": 1, "muthur": 1}, steps=1),
    "one-node": lambda: sample_job({"wopr": 8}, microbatches=None),
}
