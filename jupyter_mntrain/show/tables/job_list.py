"""Job list: the jobs of all reachable nodes, newest first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.model.failure.headline import headline_of
from jupyter_mntrain.model.lifecycle.listing import duration_s, ended_s, job_step
from jupyter_mntrain.model.records.job import JobView
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.tables._plain import plain_table
from jupyter_mntrain.show.tables.ranks.rank_table import state_text


def job_table(
    jobs: Sequence[JobView],
    *,
    now_s: float,
    program: str,
    awaited: str = "",
    search: str = "",
    may_have_more: bool = False,
) -> RenderableType:
    """Return one row per job, and below which nodes' jobs may be missing.

    Args:
        awaited: which nodes have not answered yet.
        search: what was searched for.
        may_have_more: older jobs are not listed.
    """
    rows = _rows(jobs, now_s, program, search) if jobs or not awaited else Text()
    more = [Text(f"older ones: {program} jobs --all", style="dim")] if may_have_more else []
    if awaited:
        more.append(Text(f"⚠ {awaited}, so jobs may be missing", style="yellow"))
    return Group(rows, *more) if more else rows


def _rows(jobs: Sequence[JobView], now_s: float, program: str, search: str) -> RenderableType:
    if not jobs and search:
        return Text(f"No job on the reachable nodes has {search!r}. All: {program} jobs --all")
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
    text, first = state_text(job.state), headline_of(job)
    if first is None or first.hurt == "failed":
        return text
    return text.append(" ⚠ stalled" if first.hurt == "stalled" else " ⚠", style="yellow")


def _since(job: JobView, now_s: float) -> str:
    since = f"{formats.duration(now_s - job.attempt.submitted_s)} ago"
    if ended_s(job) is None:
        return since
    return f"{since}, ran {formats.duration(duration_s(job, now_s))}"
