"""``stop``, ``kill``, ``save``: ends a job everywhere, or saves a checkpoint."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.tables.job import state_text
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.find import reachable_nodes
from jupyter_mntrain.verbs.verb import Outcome, Verb

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job

ENDED_WITHIN_S = tunables.seconds("verbs.stop_timeout_s")

SAVED_WITHIN_S = tunables.seconds("verbs.save_timeout_s")

DEFAULT_GRACE_S = 2.0


class StopVerb(Verb):
    name = "stop"
    help = "end a job on all nodes; ranks get time to finish"

    def add_arguments(self, parser: Parser) -> None:
        _job_argument(parser)
        parser.option(
            "--grace",
            type=float,
            default=DEFAULT_GRACE_S,
            metavar="SECONDS",
            help=f"seconds until ranks are killed, default {DEFAULT_GRACE_S:g}",
        )
        parser.option(
            "--save",
            action="store_true",
            help="save a checkpoint after the current step, then end",
        )
        parser.option("--reason", default="stopped by user", help="stored with the job")

    def run(self, context: Context, args: Namespace) -> Outcome:
        if not 0 <= args.grace < float("inf"):
            raise SpecError(f"--grace {args.grace:g}: not a duration", fix="use seconds, 0 or more")
        job = _named(context, args, self.name)
        before = job.view().state
        if args.save and before not in TERMINAL:
            job.save(is_last=True, reason=f"{args.reason}, after saving")
            return _ended(context, job, SAVED_WITHIN_S, was_over=False)
        if before not in TERMINAL:
            with context.screen.progress() as progress:
                job.stop(reason=args.reason, grace_s=args.grace, progress=progress)
        return _ended(context, job, args.grace + ENDED_WITHIN_S, was_over=before in TERMINAL)


class SaveVerb(Verb):
    name = "save"
    help = "save a checkpoint after the current step; the job continues"

    def add_arguments(self, parser: Parser) -> None:
        _job_argument(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        job = _named(context, args, self.name)
        before = job.view().saved_step
        job.save()
        with context.screen.progress() as progress:
            saved = job.wait_for_save(after=before, timeout_s=SAVED_WITHIN_S, progress=progress)
        data = {"job_id": job.id, "saved_step": saved}
        text = Text.assemble((f"{job.id} ", "bold"))
        if saved is None:
            text.append(f"was asked to save; not finished after {formats.duration(SAVED_WITHIN_S)}")
            return Outcome(text, data, exit_code=1, job=job)
        return Outcome(text.append(f"saved at step {saved}"), data, job=job)


class KillVerb(Verb):
    name = "kill"
    help = "end a job on all nodes immediately"

    def add_arguments(self, parser: Parser) -> None:
        _job_argument(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        job = _named(context, args, self.name)
        before = job.view().state
        if before not in TERMINAL:
            with context.screen.progress() as progress:
                job.kill(progress=progress)
        return _ended(context, job, ENDED_WITHIN_S, was_over=before in TERMINAL)


def _job_argument(parser: Parser) -> None:
    parser.argument(
        "job", nargs="?", metavar="JOB", completes="running-job", help="its id, or the start of it"
    )


def _named(context: Context, args: Namespace, verb: str) -> Job:
    cluster = context.cluster(args)
    if args.job:
        with context.screen.progress() as progress:
            return cluster.job(args.job, progress=progress)
    # Never guess what to end.
    reachable_nodes(context, cluster)
    running = [job for job in cluster.jobs() if job.state not in TERMINAL]
    named = ", ".join(f"{job.job_id} ({job.spec.name})" for job in running)
    fix = f"name one that runs: {named}" if running else "no job is running"
    raise SpecError(f"{verb}: no job given", fix=fix)


def _ended(context: Context, job: Job, timeout_s: float, *, was_over: bool) -> Outcome:
    if was_over:
        view = job.view()
    else:
        with context.screen.progress() as progress:
            view = job.wait(timeout_s, progress=progress)
    is_over = view.state in TERMINAL
    left = [(part.node, one) for part in view.parts for one in part.leftovers]
    text = Text.assemble((f"{job.id} ", "bold"), state_text(view.state))
    text.append(" already; nothing was done" if was_over else _words(view, timeout_s, bool(left)))
    for node, one in left:
        text.append(f"\n⚠ {node}: pid {one.pid} could not be killed ({one.status}): {one.command}")
    data = {
        "job_id": job.id,
        "state": view.state,
        "leftovers": [{"node": node, **msgspec.to_builtins(one)} for node, one in left],
        "unknown_nodes": [part.node for part in view.parts if part.state == "unknown"],
    }
    return Outcome(text, data, exit_code=0 if is_over and not left else 1, job=job)


def _words(view: JobView, timeout_s: float, has_leftovers: bool) -> str:
    silent = [part.node for part in view.parts if part.state == "unknown"]
    if silent:
        return f"; {', '.join(silent)} does not answer, so it may still run there"
    if view.state not in TERMINAL:
        return f"; still running after {formats.duration(timeout_s)}"
    return "" if has_leftovers else "; no process is left"
