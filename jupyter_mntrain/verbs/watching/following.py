"""Following: waits for a job to end; the exit code tells how it ended."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.command_line.needed_packages import INTERRUPTED
from jupyter_mntrain.command_line.parser import Parser, bounded_duration
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.failures import ended_alike
from jupyter_mntrain.show.tables.job import status_view
from jupyter_mntrain.show.tables.kept.files import written_data, written_text
from jupyter_mntrain.verbs.verb import Context, Outcome, caught_up_history

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job

LEAST_S, LONGEST_S = 0.1, 1e8

TIMED_OUT = 124
"""The exit code of ``timeout``. The job continues."""

DETACHED = INTERRUPTED
"""The job continues."""


def follow(context: Context, args: Namespace, job: Job, waited_s: float = 0.0) -> Outcome:
    """Show the job until it has ended; Ctrl-C leaves it running and says so.

    Exit code 0 only when every rank succeeded.

    Args:
        waited_s: how much of ``--timeout`` is over already.
    """
    left_s = None if args.timeout is None else max(LEAST_S, args.timeout - waited_s)
    try:
        context.screen.follow(job, left_s)
    except KeyboardInterrupt:
        return detached_outcome(context, job)
    if job.state not in TERMINAL:
        return detached_outcome(context, job, waited_s=args.timeout)
    if alike := ended_alike(job.view()):
        context.screen.say(Text(alike))
    # A live view already shows the picture and these numbers.
    outcome = status_outcome(context, args, job, is_drawn=context.screen.in_background)
    code = 0 if job.view().state == "succeeded" else 1
    return msgspec.structs.replace(outcome, exit_code=code)


def status_outcome(
    context: Context, args: Namespace, job: Job, *, is_drawn: bool = False
) -> Outcome:
    """The job's table as it is now; with ``--traceback`` also the ranks' traceback.

    Args:
        is_drawn: whether the screen shows the table already.
    """
    history = caught_up_history(context, job)
    summary = job.summary()
    silences = {
        one.name: msgspec.structs.replace(one.problem, node=one.name)
        for one in context.cluster(args).nodes()
        if one.problem is not None
    }
    report: RenderableType = status_view(
        summary,
        history.view,
        program=context.program,
        with_detail=args.traceback,
        every_rank=getattr(args, "ranks", False),
        silences=silences,
    )
    # Never left out: programs compare it with what a plan predicts.
    data = {"step_s": None, **msgspec.to_builtins(summary), "files": None}
    if history.view.state in TERMINAL:  # of one that runs it changes, and costs its nodes a look
        written = context.cluster(args).files.of_job(history.view)
        if line := written_text(job.id, written, context.program):
            report = line if is_drawn else Group(report, line)
            is_drawn = False
        data["files"] = written_data(written)
    return Outcome("" if is_drawn else report, data, job=job)


def timeout_option(parser: Parser) -> None:
    parser.option(
        "--timeout",
        metavar="DURATION",
        type=bounded_duration(LEAST_S, LONGEST_S),
        help="stop waiting after this time, like 90s or 2h, with exit code 124; the job continues",
    )


def detached_outcome(context: Context, job: Job, waited_s: float | None = None) -> Outcome:
    why = "Detached" if waited_s is None else f"Not over after {formats.duration(waited_s)}"
    text = Text(
        f"{why}: {job.id} continues. Watch it again: {context.program} attach {job.id}. "
        f"End it: {context.program} stop {job.id}"
    )
    data = {"job_id": job.id, "state": job.view().state, "detached": True}
    code = DETACHED if waited_s is None else TIMED_OUT
    return Outcome(text, data, exit_code=code, job=job)
