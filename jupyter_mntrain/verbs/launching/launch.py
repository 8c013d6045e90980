"""``launch`` and ``dry-run``: the same spec, started or only shown."""

from __future__ import annotations

import getpass
import socket
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.model.spelling import closest
from jupyter_mntrain.plan.members import parse_member
from jupyter_mntrain.recipe.builtin import built_in
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.launching.dry_run import dry_run_outcome
from jupyter_mntrain.verbs.launching.job_options import job_options
from jupyter_mntrain.verbs.launching.stored_job import StoredJob, find_saved, refuse_gone
from jupyter_mntrain.verbs.variables import refuse_variable, variable_option
from jupyter_mntrain.verbs.verb import Outcome, Verb
from jupyter_mntrain.verbs.watching.following import follow
from jupyter_mntrain.workload.built import Built
from jupyter_mntrain.workload.memory_fit import memory_note
from jupyter_mntrain.workload.slow_links import slow_link_note
from jupyter_mntrain.workload.workload import (
    Workload,
    from_built_in,
    from_cell,
    from_path,
    from_spec,
    read_files,
)

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job, Progress


class LaunchVerb(Verb):
    name = "launch"
    help = "start a recipe, a script or an exported job on all participants, or on none"
    takes_cell = True

    def add_arguments(self, parser: Parser) -> None:
        job_options(parser)
        parser.option(
            "--dry-run", action="store_true", help="only show the command and environment per node"
        )
        parser.option(
            "--wait",
            action="store_true",
            help="return when the job has ended; exit code 0 only if every rank succeeded",
        )
        parser.option("--detach", action="store_true", help="start and show nothing")
        parser.option(
            "--queue",
            action="store_true",
            help="queue it on the nodes: it starts once every GPU and port it needs is free, even "
            "with no notebook open; until then it is pending and holds nothing",
        )
        variable_option(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        if args.wait and args.detach:
            raise SpecError("--wait and --detach: one waits, the other does not", fix="keep one")
        refuse_variable(context, args)
        built = build_spec(context, args)
        if args.dry_run:
            return dry_run_outcome(built)
        memory = built.memory()
        with context.screen.progress() as progress:
            job = start(context, built, progress, waits=args.queue)
        workload = built.workload
        context.screen.say(started_line(job, workload))
        infos = [view.info for view in built.cluster.nodes() if view.info]
        told = (slow_link_note(infos, job.view().attempt.placements), memory_note(memory or ()))
        notes = [note for note in told if note is not None]
        for note in notes:
            context.screen.say(problem_text(note, mark="⚠", style="yellow"))
        if args.wait:
            return follow(context, args, job)
        if not args.detach and context.screen.in_background:
            context.screen.show(job)
            return Outcome(data=started_data(job, notes), job=job)
        hint = Text(f"follow: {context.program} attach {job.id}", style="dim")
        return Outcome(hint, started_data(job, notes), job=job)


class DryRunVerb(Verb):
    name = "dry-run"
    help = "the exact command and environment of every node, nothing is started"
    takes_cell = True

    def add_arguments(self, parser: Parser) -> None:
        job_options(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        built = build_spec(context, args)
        return dry_run_outcome(built)


def start(context: Context, built: Built, progress: Progress, *, waits: bool = False) -> Job:
    """Start it on all of its participants or on none; or leave it with them until that is possible.

    Args:
        waits: whether it may wait for its turn.
    """
    how = built.cluster.queue if waits else built.cluster.launch
    return how(built.spec, submitted_by=submitter(context), progress=progress)


def build_spec(context: Context, args: Namespace) -> Built:
    """Check all that can be checked without starting anything.

    Raises:
        SpecError: and RecipeError, NodeError: what was asked for is wrong or not there.
    """
    saved = find_saved(context, args)
    before = saved.spec if saved else JobSpec(entry=(), participants=())
    extra = read_files([context.directory / path for path in args.file])
    workload = _workload(context, args, saved, extra)
    for member in args.member:
        parse_member(member)
    cluster = context.cluster(args)
    chosen = () if args.member else before.participants
    if chosen:
        refuse_gone(context, cluster, chosen)
    else:
        with context.screen.progress() as progress:
            chosen = cluster.participants(
                args.member, even_busy=getattr(args, "queue", False), progress=progress
            )
    participants = _with_head(chosen, args.head)
    spec = JobSpec(
        entry=workload.entry,
        participants=participants,
        name=args.name or workload.name,
        files={**extra, **workload.files},
        environment=before.environment | dict(args.env),
        torchrun_arguments=(*before.torchrun_arguments, *args.torchrun),
        port=args.port or before.port,
        link_capacity_bytes_per_s=args.link_capacity or before.link_capacity_bytes_per_s,
        max_restarts=before.max_restarts if args.restarts is None else args.restarts,
        on_stall=args.on_stall or before.on_stall,
        min_nodes=args.min_nodes or before.min_nodes,
        mixed_versions=args.mixed_versions or before.mixed_versions,
        priority=before.priority if args.priority is None else args.priority,
    )
    workload.check(spec.world_size)
    return Built(cluster, spec, workload)


def started_line(job: Job, workload: Workload) -> Text:
    view = job.view()
    nodes = ", ".join(f"{p.node}:{p.nproc}:{p.interface}" for p in view.attempt.placements)
    done = "started" if view.attempt.number else "waits for its turn"
    return Text.assemble(("▶ ", "green"), (job.id, "bold"), f" {done}, {workload.took}, on {nodes}")


def started_data(job: Job, notes: Sequence[Problem] = ()) -> dict[str, object]:
    view = job.view()
    nodes = [placement.node for placement in view.attempt.placements]
    data: dict[str, object] = {"job_id": job.id, "state": view.state, "nodes": nodes}
    data["name"] = view.spec.name
    return data | ({"warnings": msgspec.to_builtins(notes)} if notes else {})


def submitter(context: Context) -> str:
    """Who asks, for the job's record."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's uid without a name
        user = "?"
    return f"{user}@{socket.gethostname()} {context.program}"


def _workload(
    context: Context, args: Namespace, saved: StoredJob | None, extra: dict[str, str]
) -> Workload:
    if saved is not None:
        return from_spec(
            msgspec.structs.replace(saved.spec, files=saved.spec.files | extra),
            took=saved.took,
            directory=saved.directory,
            arguments=context.arguments,
            overrides=args.set,
        )
    if context.cell is not None:
        if args.target:
            raise SpecError(
                f"{args.target!r} and a cell: launch takes one of them",
                fix=f"use %mntrain launch {args.target} without a cell, or omit the name",
            )
        return from_cell(
            context.cell,
            directory=context.directory,
            arguments=context.arguments,
            overrides=args.set,
        )
    if not args.target:
        raise SpecError(
            "nothing to launch", fix="name a recipe (.toml), a script (.py), a job file or a job"
        )
    path = context.directory / Path(args.target).expanduser()
    ours = built_in(args.target)
    if ours is not None and not path.exists():
        return from_built_in(ours, arguments=context.arguments, overrides=args.set)
    return from_path(path, arguments=context.arguments, overrides=args.set)


def _with_head(participants: tuple[Participant, ...], head: str | None) -> tuple[Participant, ...]:
    if head is None:
        return participants
    first = [one for one in participants if one.node == head]
    if not first:
        names = [one.node for one in participants]
        near = closest(head, names) or names
        raise SpecError(
            f"--head {head}: is not a participant",
            fix=f"use {' or '.join(near)}, or add it as --member",
        )
    return (*first, *(one for one in participants if one.node != head))
