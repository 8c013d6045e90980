"""``session``: starts ranks that stay, attaches to them, and interrupts their cell."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser, typed
from jupyter_mntrain.model.api import STOP_GRACE_S
from jupyter_mntrain.model.errors import NodeError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.quantities import agreeing, duration_text, numbered, parse_duration
from jupyter_mntrain.model.records.job import SHOWS_VIEWERS, TERMINAL
from jupyter_mntrain.model.records.session import IDLE_S, Silent, State
from jupyter_mntrain.show.problems import warning_texts
from jupyter_mntrain.verbs.controlling.ending import ENDED_WITHIN_S
from jupyter_mntrain.verbs.launching.job_options import session_options
from jupyter_mntrain.verbs.launching.launch import (
    skip_doctor_option,
    started_data,
    started_job,
    submitter,
)
from jupyter_mntrain.verbs.launching.spec_builder import build_spec
from jupyter_mntrain.verbs.sessions.cell import (
    cell_outcome,
    find_session,
    goes_on_text,
    print_events,
)
from jupyter_mntrain.verbs.sessions.variables import PullVariable, PushVariable
from jupyter_mntrain.verbs.variables import refuse_variable, variable_option
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, VerbGroup, job_argument

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job


class StartSession(Verb):
    name = "start"
    help = "start ranks that stay and run cells; on all nodes or none"

    def add_arguments(self, parser: Parser) -> None:
        session_options(parser)
        parser.option(
            "--idle",
            type=typed(parse_duration),
            default=IDLE_S,
            metavar="DURATION",
            help="end the session once no cell has run for this time; 0s = never; default: 8h",
        )
        parser.flag(
            SHOWS_VIEWERS, help="let read-only drivers read what cells print, as of any other job"
        )
        skip_doctor_option(parser)
        variable_option(parser)
        parser.set_defaults(queue=False)

    def run(self, context: Context, args: Namespace) -> Outcome:
        refuse_variable(context, args)
        args.no_project = args.project is None  # what is run is no file of this folder
        shows = (SHOWS_VIEWERS,) if args.viewers else ()
        context = _with_arguments(context, ("--idle-s", f"{args.idle:g}", *shows))
        built = build_spec(context, args).on_its_nodes()
        notes = [*built.said, *built.left_out, *(built.project.notes if built.project else ())]
        for text in warning_texts(notes):
            context.screen.say(text)
        with context.screen.starting(built.cluster.name) as on_begin:
            job, found = started_job(context, args, built, on_begin)
        return _ready(context, job, [*notes, *found])


class AttachSession(Verb):
    name = "attach"
    help = "say how it is, and show the output of its newest cell"

    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        job = find_session(context, args, args.job)
        session = job.session()
        found = session.states().values()
        states = [one for one in found if isinstance(one, State)]
        running = [one.rank for one in states if one.is_running]
        silent = [f"rank {one.rank}: {one.cause}" for one in found if isinstance(one, Silent)]
        ready = [] if silent else ["ready for cells"]
        now = [f"a cell runs on {numbered('rank', running)}"] if running else ready
        context.screen.say(Text.assemble(_where(job), f": {'; '.join([*now, *silent])}"))
        newest = max((one.cell for one in states), default=0)
        ranks = [one.rank for one in states if one.cell == newest]
        if not newest or not ranks:
            return Outcome(data={"job_id": job.id, "cells": []}, job=job)
        return cell_outcome(job, print_events(context, session, session.follow(), ranks))


class InterruptSession(Verb):
    name = "interrupt"
    help = "interrupt the running cell; the session goes on"

    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        job = find_session(context, args, args.job)
        left = job.session().interrupt()
        text = Text(f"interrupted the cell of {job.id}")
        if left:
            text.append(f"; {goes_on_text(context, left)}")
        return Outcome(text, {"job_id": job.id, "running_ranks": list(left)})


class RestartSession(Verb):
    name = "restart"
    help = "start the ranks again as they were, without their variables"

    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        variable_option(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        refuse_variable(context, args)
        job = find_session(context, args, args.job, may_be_over=True)
        job.session()  # refuses any other job
        with context.screen.progress() as progress:
            if job.state not in TERMINAL:
                _refuse_silent(job)
                job.stop()
                job.wait(STOP_GRACE_S + ENDED_WITHIN_S, progress=progress)
                _refuse_silent(job)
            again = context.cluster(args).launch(
                job.spec(), submitted_by=submitter(context), progress=progress
            )
        return _ready(context, again, ())


class AutomaticCells(Verb):
    name = "auto"
    help = "run every cell of this notebook on a session; --off: here again"

    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        parser.flag("--off", help="run cells without a magic in the notebook's own kernel again")

    def run(self, context: Context, args: Namespace) -> Outcome:
        target = context.screen.cell_target
        if target is None:
            raise SpecError(
                "only a notebook has cells",
                fix=f"run code on the ranks with {context.program} cell < FILE",
            )
        if args.off:
            target.session = ""
            return Outcome(Text("cells run in this kernel again"), {"is_on": False})
        job = find_session(context, args, args.job)
        job.session()  # refuses any other job
        target.session = job.id
        text = Text.assemble(
            "every cell runs on ",
            _where(job),
            f" from now on, but for those that begin with {context.program}. "
            f"Here again: {context.program} session auto --off",
        )
        return Outcome(text, {"is_on": True, "job_id": job.id})


class SessionVerb(VerbGroup):
    actions = {
        verb.name: verb
        for verb in (
            StartSession(),
            AttachSession(),
            InterruptSession(),
            RestartSession(),
            AutomaticCells(),
            PullVariable(),
            PushVariable(),
        )
    }


def _with_arguments(context: Context, arguments: tuple[str, ...]) -> Context:
    import dataclasses

    return dataclasses.replace(context, arguments=arguments)


def _refuse_silent(job: Job) -> None:
    """Refuse to start ranks again on nodes that do not answer.

    Raises:
        NodeError: one does not.
    """
    silent = [part.node for part in job.view().parts if part.state == "unknown"]
    if silent:
        raise NodeError(
            f"{agreeing(silent, 'does', 'do')} not answer",
            kind=Kind.NO_ANSWER,
            node=", ".join(silent),
            fix="see mntrain nodes for the reason; then try again, or start a session on other "
            "nodes: mntrain session start --member NODE",
        )


def _where(job: Job) -> Text:
    placements = job.view().attempt.placements
    nodes = ", ".join(f"{one.node}:{one.nproc}:{one.interface}" for one in placements)
    return Text.assemble((job.id, "bold"), f" on {nodes}")


def _ready(context: Context, job: Job, notes: Sequence[Problem]) -> Outcome:
    """Wait until the ranks of a session that has been launched are ready, and say so."""
    context.screen.say(Text.assemble(("▶ ", "green"), _where(job), " starts its ranks"))
    with context.screen.progress() as progress:
        job.session().wait(progress)
    return Outcome(_ready_text(context, job), started_data(job, notes), job=job)


def _ready_text(context: Context, job: Job) -> Text:
    entry = job.view().spec.entry
    idle_s = float(entry[entry.index("--idle-s") + 1]) if "--idle-s" in entry else IDLE_S
    size = job.view().attempt.world_size
    cell = "%%mntrain cell" if context.program.startswith("%") else "mntrain cell < FILE"
    idle = f"It ends after {duration_text(idle_s)} without a cell" if idle_s else "It stays"
    return Text.assemble(
        f"{size} rank{'' if size == 1 else 's'} ready: run code on them with ",
        (cell, "bold"),
        f". {idle}, or with {context.program} stop {job.id}",
    )
