"""Job list: the jobs of all reachable nodes, newest first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.tables._plain import plain_table
from jupyter_mntrain.show.tables.job import state_text


def job_table(
    jobs: Sequence[JobView], *, now_s: float, program: str, awaited: str = ""
) -> RenderableType:
    """One row per job; below, whose jobs may be missing.

    Args:
        awaited: which nodes have not answered yet.
    """
    if awaited:
        missing = Text(f"⚠ {awaited}, so jobs may be missing", style="yellow")
        rows = job_table(jobs, now_s=now_s, program=program) if jobs else Text()
        return Group(rows, missing)
    if not jobs:
        return Text(f"No jobs on the reachable nodes. Start one: {program} launch RECIPE")
    table = plain_table(
        "job", "name", "state", "nodes", "ranks", "step", "started", right=("ranks",)
    )
    for job in jobs:
        table.add_row(
            job.job_id,
            job.spec.name,
            _state(job),
            ", ".join(placement.node for placement in job.attempt.placements),
            str(job.attempt.world_size),
            formats.count(job_step(job)),
            _since(job, now_s),
        )
    return table


def _state(job: JobView) -> Text:
    text = state_text(job.state)
    return text.append(" ⚠", style="yellow") if job.warnings else text


def job_step(job: JobView) -> int | None:
    """The step that every rank has finished."""
    steps = [rank.step for part in job.parts for rank in part.ranks]
    return None if not steps or None in steps else min(step for step in steps if step is not None)


def _since(job: JobView, now_s: float) -> str:
    since = f"{formats.duration(now_s - job.attempt.submitted_s)} ago"
    ended = [part.ended_s for part in job.parts if part.ended_s is not None]
    if job.state not in TERMINAL or not ended:
        return since
    return f"{since}, ran {formats.duration(max(ended) - job.attempt.submitted_s)}"
