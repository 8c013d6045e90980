"""Picture header: cause of a failure, state, and headline figures. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_mntrain.metrics.summary import JobSummary, RankSummary
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.headline import Told, what_hurts
from jupyter_mntrain.model.quantities import agreeing
from jupyter_mntrain.model.records.job import TERMINAL, JobView, PartStatus, RankStatus
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.problems import when_words
from jupyter_mntrain.show.tables.job import headline, step_words
from jupyter_mntrain.show.tables.ranks.rank_progress import progress_words, under_way

MOST_ROWS = 12
"""Maximum number of ranks whose progress is listed while a job starts."""


class Header(Record, frozen=True):
    """The texts and numbers of the header.

    Args:
        cause: node and cause, if the job failed.
        warnings: why it makes no progress, or its numbers are doubtful.
        hint: where to read more about the failure.
        progress: 0..1, if the number of steps is known.
        numbers: label, value, and whether it is NaN or infinite; left to right.
        waiting: rank, and what it waits for; before the first step only.
        footer: text below ``waiting``.
    """

    icon: str
    state: str
    name: str
    identity: str
    facts: tuple[str, ...]
    cause: str | None = None
    hint: str | None = None
    warnings: tuple[str, ...] = ()
    progress: float | None = None
    numbers: tuple[tuple[str, str, bool], ...] = ()
    waiting: tuple[tuple[str, str], ...] = ()
    footer: str = ""


def make_header(
    summary: JobSummary, view: JobView, *, now_s: float, program: str, has_steps: bool
) -> Header:
    """Make the header from a job's summary.

    Args:
        now_s: Unix time.
        has_steps: whether any rank has made a step.
    """
    cause = hint = None
    problem = summary.problem
    if problem is not None:
        cause = str(problem)
        rank = "" if problem.rank is None else f" --rank {problem.rank}"
        at = f"{when}; " if (when := when_words(problem)) else ""
        hint = f"{at}log: {program} logs {view.job_id}{rank}"
    total = summary.total_steps
    return Header(
        icon=formats.STATE_ICONS[view.state],
        state=view.state,
        name=view.spec.name,
        identity=_identity(view),
        facts=tuple(_facts(view, summary)),
        cause=cause,
        hint=hint,
        warnings=tuple(_warning(one) for one in what_hurts(summary) if one.hurt != "failed"),
        progress=min(1.0, (summary.step or 0) / total) if total and has_steps else None,
        numbers=tuple(headline(summary)) if has_steps else (),
        waiting=() if has_steps else tuple(_waiting(summary, view, now_s)),
        footer="" if has_steps else _footer(view),
    )


def _warning(told: Told) -> str:
    before = "stalled: " if told.hurt == "stalled" else ""
    when = when_words(told.problem)
    return f"{before}{told.problem}{f' ({when})' if when else ''}"


def _identity(view: JobView) -> str:
    words = f"{view.job_id}, attempt {view.attempt.number}"
    size = view.attempt.world_size
    nodes = len(view.attempt.placements)
    return f"{words}, {formats.plural(size, 'rank')} on {formats.plural(nodes, 'node')}"


def _facts(view: JobView, summary: JobSummary) -> Iterator[str]:
    if summary.step:
        yield step_words(summary)
    ended = [part.ended_s for part in view.parts if part.ended_s is not None]
    if view.state in TERMINAL:
        if summary.elapsed_s is not None:
            yield f"ran {formats.duration(summary.elapsed_s)}"
        if ended:
            yield f"ended {formats.clock(max(ended))}"
    elif summary.elapsed_s is not None:
        # Without the time left: a picture is kept, and may be read long after.
        yield f"elapsed {formats.duration(summary.elapsed_s)}"
    silent = [part.node for part in view.parts if part.state == "unknown"]
    if silent:
        yield f"{', '.join(silent)} {agreeing(silent, 'does', 'do')} not answer"
    reasons = sorted({part.stop_reason for part in view.parts if part.stop_reason})
    if reasons and view.state in ("stopping", "canceled"):
        yield "; ".join(reasons)


def _waiting(summary: JobSummary, view: JobView, now_s: float) -> Iterator[tuple[str, str]]:
    known = {one.rank: one for one in summary.ranks}
    rows = [(part, rank) for part in view.parts for rank in part.ranks]
    for part, rank in rows[:MOST_ROWS]:
        icon = formats.STATE_ICONS[rank.state]
        since = ""
        if part.started_s is not None and rank.state in ("pending", "starting", "running"):
            since = f", for {formats.duration(now_s - part.started_s)}"
        yield (
            f"{part.node}, r{rank.rank}",
            f"{icon} {_stage_of(known.get(rank.rank), part, rank)}{since}",
        )
    if len(rows) > MOST_ROWS:
        yield f"{len(rows) - MOST_ROWS} more ranks", ""


def _stage_of(known: RankSummary | None, part: PartStatus, rank: RankStatus) -> str:
    """Return what this rank computes, or what it waits for."""
    if rank.state == "failed" or part.state == "failed":
        if rank.problem is not None:
            return rank.problem.cause
        return f"exit code {rank.exit_code}" if rank.exit_code is not None else rank.state
    if rank.state == "unknown":
        return "its node is not answering"
    if rank.state in TERMINAL or part.state == "stopping":
        return rank.state
    if part.state == "pending":
        return "waiting for its agent to start it"
    progress = under_way(known.progress) if known else None
    if progress is not None:
        return progress_words(progress)
    if known is not None and known.is_ready:
        return "ready, waiting for the first step"
    if rank.pid is not None:
        return f"loading (pid {rank.pid})"
    return "starting torchrun"


def _footer(view: JobView) -> str:
    if view.state in TERMINAL:
        return "It ended before the first step, so there is nothing to chart."
    return "Charts begin with the first step."
