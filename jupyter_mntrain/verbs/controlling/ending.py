"""Ending: finds the job to end, and reports the processes that survive."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import JobNotFoundError, SpecError
from jupyter_mntrain.model.quantities import agreeing
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.tables.ranks.rank_table import state_text
from jupyter_mntrain.show.tables.ranks.stopped_ranks import stopped_ranks
from jupyter_mntrain.verbs.verb import Context, Outcome, all_jobs, named_job, refuse_awaited

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job

ENDED_WITHIN_S = 15.0
"""Timeout of `stop` and `kill`; then processes that are left are named."""

SAVED_WITHIN_S = tunables.seconds("verbs.save_timeout_s")


def running_job_argument(parser: Parser) -> None:
    parser.argument(
        "job", nargs="?", metavar="JOB", completes="running-job", help="its id, or how it begins"
    )


def running_job(context: Context, args: Namespace, verb: str) -> Job:
    """Return the named job. Without a name the verb is refused: it never guesses what to end.

    Raises:
        JobNotFoundError: no reachable node knows it, or none was named and none is running.
        SpecError: none was named; the fix names those that are running.
    """
    if args.job:
        return named_job(context, args, args.job)
    running = [job for job in all_jobs(context, args) if job.state not in TERMINAL]
    if not running:
        refuse_awaited(context.cluster(args), "running jobs may be missing")
        raise JobNotFoundError(
            f"{verb}: no job is running on the reachable nodes",
            fix=f"see {context.program} jobs for the ended ones",
        )
    named = ", ".join(f"{job.job_id} ({job.spec.name})" for job in running)
    raise SpecError(f"{verb}: no job given", fix=f"name one of the running jobs: {named}")


def ended_outcome(
    context: Context, args: Namespace, job: Job, timeout_s: float, *, was_over: bool
) -> Outcome:
    """Return how the job ended, or what keeps it from ending."""
    if was_over:
        view = job.view()
    else:
        with context.screen.progress() as progress:
            view = job.wait(timeout_s, progress=progress)
    is_over = view.state in TERMINAL
    left = [(part.node, one) for part in view.parts for one in part.leftovers]
    text = Text.assemble((f"{job.id} ", "bold"), state_text(view.state))
    if was_over:
        text.append(" already; nothing was done")
    else:
        up = {node.name for node in context.cluster(args).nodes() if node.liveness == "up"}
        text.append(_words(view, timeout_s, up, has_leftovers=bool(left)))
    for line in () if was_over else stopped_ranks(view):
        text.append(f"\n{line}")
    for node, one in left:
        text.append(f"\n⚠ {node}: {one} could not be killed: {one.command}")
    data = {
        "job_id": job.id,
        "state": view.state,
        "leftovers": [{"node": node, **msgspec.to_builtins(one)} for node, one in left],
        "waits_for": [
            {"node": part.node, **msgspec.to_builtins(one)}
            for part in view.parts
            for one in part.waits_for
        ],
        "unknown_nodes": [part.node for part in view.parts if part.state == "unknown"],
    }
    for part in view.parts:
        if part.awaited:
            text.append(f"\n⚠ {part.awaited}")
    return Outcome(text, data, exit_code=0 if is_over and not left else 1, job=job)


def _words(view: JobView, timeout_s: float, up: Collection[str], *, has_leftovers: bool) -> str:
    unknown = [part.node for part in view.parts if part.state == "unknown"]
    silent = [node for node in unknown if node not in up]
    if unknown and not silent:
        do = agreeing(unknown, "has", "have")
        return f"; {', '.join(unknown)} {do} no record of it yet, so it may still start there"
    if silent:
        do = agreeing(silent, "does", "do")
        return f"; {', '.join(silent)} {do} not answer, so the job may still run there"
    if view.state not in TERMINAL:
        return f"; still running after {formats.duration(timeout_s)}"
    return "" if has_leftovers else "; no process is left"
