"""Spec builder: makes a checked job spec from the options of a launch."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from jupyter_mntrain.launch.driver_values import with_values
from jupyter_mntrain.launch.files.hub_names import hub_id
from jupyter_mntrain.launch.project.stage import StagedProject
from jupyter_mntrain.launch.settings import OPTIONS
from jupyter_mntrain.model.environment import TIMEOUT_VARIABLE
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import SILENCES, Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import JobSpec, Participant, SetIn
from jupyter_mntrain.model.text.spelling import closest
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.plan.members import parse_member
from jupyter_mntrain.recipe.builtin import built_in
from jupyter_mntrain.recipe.parse import refuse_both_durations
from jupyter_mntrain.recipe.stored import written_recipe
from jupyter_mntrain.verbs.launching.debugging import SETTINGS, with_debugging
from jupyter_mntrain.verbs.launching.into_session import into_session
from jupyter_mntrain.verbs.launching.job_files import (
    choose_project,
    in_project,
    in_workdir,
    module_workload,
    program_here,
    program_workload,
    read_here,
    refuse_contradictions,
    runs_program,
    stage_files,
)
from jupyter_mntrain.verbs.launching.stored_job import StoredJob, find_saved, refuse_gone
from jupyter_mntrain.verbs.verb import Context, joined_cluster
from jupyter_mntrain.workload.built import Built
from jupyter_mntrain.workload.given_files import GivenFiles, given_files, with_reads
from jupyter_mntrain.workload.workload import (
    Workload,
    from_built_in,
    from_cell,
    from_path,
    from_spec,
)

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster, NodeView


_OPEN = Workload(entry=(), files={}, name="", took="no script")


def build_spec(
    context: Context,
    args: Namespace,
    saved: StoredJob | None = None,
    *,
    needs_target: bool = True,
    asks_hub: bool = True,
) -> Built:
    """Build the spec, and check what can be checked without starting anything.

    Args:
        saved: the job to run again; default: what the options name.
        needs_target: otherwise they may leave open what is run.
        asks_hub: for the config of a model of the Hugging Face hub, which takes seconds.

    Raises:
        SpecError, RecipeError, NodeError: the request is invalid, or names something missing.
    """
    joined_cluster(context, args).refuse_read_only()
    saved = saved or find_saved(context, args)
    before = saved.spec if saved else JobSpec(entry=(), participants=())
    before = into_session(context, args, msgspec.structs.replace(before, session=None))
    refuse_contradictions(context, args)
    sent = given_files([*args.file, *program_here(context, args)], context.directory)
    workload = _workload(context, args, saved, sent, needs_target=needs_target)
    if args.debug and workload.recipe is not None:
        args.set = [*SETTINGS, *args.set]  # what is set by hand wins
        workload = _workload(context, args, saved, sent, needs_target=needs_target)
    folder = choose_project(context, args, is_stored=saved is not None)
    if saved is None:
        sent = with_reads(sent, read_here(context, args, folder))
    project = stage_files(context, args, folder, sent, before.project)
    if folder is not None and project is not None and saved is None:
        workload = in_project(context, args, workload, folder, project)
    cluster = joined_cluster(context, args)
    participants = _participants(context, args, cluster, before)
    spec = _spec(args, before, workload, project)
    spec = msgspec.structs.replace(
        spec,
        participants=participants,
        files={**sent.texts, **workload.files},
        set_in=_set_in(workload, before, spec),
    )
    if args.debug:
        spec = with_debugging(spec, workload.recipe)
    spec = with_values(spec, context.environment)
    spec, workload, said = _with_hub_commit(context, cluster, spec, workload, asks=asks_hub)
    workload.check(spec.world_size)
    is_everywhere = not args.member and not before.participants
    built = Built(
        cluster,
        spec,
        workload,
        _left_out(cluster, participants) if is_everywhere else (),
        saved.starts_over if saved else None,
        is_mixed_before=before.mixed_versions and not args.mixed_versions,
        project=project,
        project_because=folder.because if folder else "",
        begin=before.origin.place if before.origin else None,
        said=said,
    )
    return built.in_best_order() if is_everywhere and args.head is None else built


def _with_hub_commit(
    context: Context, cluster: Cluster, spec: JobSpec, workload: Workload, *, asks: bool
) -> tuple[JobSpec, Workload, tuple[Problem, ...]]:
    """Pin a Hugging Face model to its current commit, so that all checks use it.

    Also returns what to say about that.
    """
    recipe, said = workload.recipe, list[Problem]()
    if not asks or recipe is None or hub_id(recipe.model.path) is None:
        return spec, workload, ()
    with context.screen.progress() as progress:
        spec = cluster.with_hub_commit(spec, on_note=said.append, progress=progress)
    recipe = written_recipe(spec)
    return spec, msgspec.structs.replace(workload, entry=spec.entry, recipe=recipe), tuple(said)


def refuse_unlaunchable(context: Context, args: Namespace) -> None:
    """Check what can be checked without contacting any node.

    Raises:
        SpecError, RecipeError: the job is invalid, or names something missing.
    """
    refuse_contradictions(context, args)
    sent = given_files([*args.file, *program_here(context, args)], context.directory)
    _workload(context, args, find_saved(context, args), sent, needs_target=True)


def _spec(
    args: Namespace, before: JobSpec, workload: Workload, project: StagedProject | None
) -> JobSpec:
    """Build the spec from the options, else from a stored job, without nodes and files."""
    given, taken = _variables(before, args, workload)
    return JobSpec(
        entry=workload.entry,
        participants=(),
        name=args.name or workload.name,
        project=project.sha256 if project else None if args.workdir else before.project,
        workdir=args.workdir or (None if project else before.workdir),
        python=args.python or before.python,
        session=before.session,
        environment=given,
        from_environment=taken,
        torchrun_arguments=(*before.torchrun_arguments, *args.torchrun),
        port=args.port or before.port,
        link_capacity_bytes_per_s=args.link_capacity or before.link_capacity_bytes_per_s,
        max_restarts=before.max_restarts if args.restarts is None else args.restarts,
        on_nan=args.on_nan or before.on_nan,
        on_stall=args.on_stall or before.on_stall,
        min_nodes=args.min_nodes or before.min_nodes,
        queue_limit_s=args.queue_limit or before.queue_limit_s,
        lost_limit_s=args.lost_limit or before.lost_limit_s,
        mixed_versions=args.mixed_versions or before.mixed_versions,
        priority=before.priority if args.priority is None else args.priority,
    )


def _set_in(workload: Workload, before: JobSpec, spec: JobSpec) -> dict[str, SetIn]:
    """Return where settings were set; those that an option now changes are left out."""
    fields = {f"launch.{option}": field for option, field in OPTIONS.items()}
    return {
        name: where
        for name, where in workload.set_in.items()
        if name not in fields or getattr(before, fields[name]) == getattr(spec, fields[name])
    }


def _participants(
    context: Context, args: Namespace, cluster: Cluster, before: JobSpec
) -> tuple[Participant, ...]:
    """Return the nodes that the options name, else those of a stored job, else all."""
    for member in args.member:
        parse_member(member)
    chosen = () if args.member else before.participants
    if chosen:
        refuse_gone(context, cluster, chosen)
    else:
        with context.screen.progress() as progress:
            chosen = cluster.participants(
                args.member, even_busy=getattr(args, "queue", False), progress=progress
            )
    return _with_head(chosen, args.head)


def _variables(
    before: JobSpec, args: Namespace, workload: Workload
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return variables with values, and those taken from this environment; a later option wins."""
    given = dict(before.environment)
    taken = dict.fromkeys(before.from_environment)
    if (timeout := args.collective_timeout) is not None:
        if workload.recipe is not None:
            raise SpecError(
                "--collective-timeout is for scripts; a recipe sets its own",
                fix=f"--set train.timeout_s={timeout:g}",
            )
        given[TIMEOUT_VARIABLE] = f"{timeout:g}"
    for name, value in args.env:
        if value is None:
            given.pop(name, None)
            taken[name] = None
        else:
            given[name] = value
            taken.pop(name, None)
    return given, tuple(taken)


def _left_out(cluster: Cluster, chosen: Sequence[Participant]) -> tuple[Problem, ...]:
    taken = {participant.node for participant in chosen}
    awaited = Problem(kind=Kind.NO_ANSWER, cause="it has not answered yet")
    found = (
        (view, view.problem or (awaited if view.is_awaited else None))
        for view in cluster.nodes()
        if not (view.info and taken & {*view.info.names})
    )
    return tuple(
        msgspec.structs.replace(
            problem, node=view.name, cause=f"left out of this job: {problem.cause}"
        )
        for view, problem in found
        if problem is not None and _is_unfit(view, problem)
    )


def _is_unfit(view: NodeView, problem: Problem) -> bool:
    """Whether a node takes no jobs, or does not answer for a known reason."""
    if view.liveness in ("up", "suspect"):
        return view.info is not None and view.info.problem == problem
    return problem.kind in SILENCES or view.is_conflict


def _workload(
    context: Context,
    args: Namespace,
    saved: StoredJob | None,
    sent: GivenFiles,
    *,
    needs_target: bool,
) -> Workload:
    refuse_both_durations(args.set)
    if args.module:
        return module_workload(args.module, context.arguments)
    if saved is not None:
        return from_spec(
            msgspec.structs.replace(saved.spec, files=saved.spec.files | sent.texts),
            took=saved.took,
            directory=saved.directory,
            arguments=context.arguments,
            overrides=args.set,
        )
    if context.cell is not None:
        if args.target:
            raise SpecError(
                f"launch takes either {args.target!r} or a cell, not both",
                fix=f"use %mntrain launch {args.target} without a cell, or omit the name",
            )
        return from_cell(
            context.cell,
            directory=context.directory,
            arguments=context.arguments,
            overrides=args.set,
        )
    if not args.target and not needs_target:
        return _OPEN
    if not args.target:
        raise SpecError(
            "nothing to launch", fix="name a recipe (.toml), a script (.py), a job file or a job"
        )
    if runs_program(args):
        return program_workload(context, args, sent)
    path = context.directory / in_home(args.target)
    ours = built_in(args.target)
    if ours is not None and not path.exists():
        return from_built_in(ours, arguments=context.arguments, overrides=args.set)
    if args.workdir and path.suffix != ".toml" and not path.exists():
        return in_workdir(context, args, None)
    made = from_path(path, arguments=context.arguments, overrides=args.set)
    return in_workdir(context, args, made) if args.workdir else made


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
