"""``launch``: starts a job on all participants, or on none."""

from __future__ import annotations

import socket
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.whereabouts import user_name
from jupyter_mntrain.plan.software.versions import version_notes
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.problems import warning_texts
from jupyter_mntrain.show.tables.plans.plan import plan_line
from jupyter_mntrain.verbs.launching.allocations.launch_on import launch_on
from jupyter_mntrain.verbs.launching.allocations.on_options import chosen_options, on_option
from jupyter_mntrain.verbs.launching.allocations.remembered import remember_launch
from jupyter_mntrain.verbs.launching.dry_run import dry_run_outcome
from jupyter_mntrain.verbs.launching.foreign_job import agreement_option, ask_about_job_file
from jupyter_mntrain.verbs.launching.into_session import into_session_option
from jupyter_mntrain.verbs.launching.job_options import job_options
from jupyter_mntrain.verbs.launching.running_already import (
    running_already,
    running_already_text,
)
from jupyter_mntrain.verbs.launching.spec_builder import build_spec
from jupyter_mntrain.verbs.variables import refuse_variable, variable_option
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb
from jupyter_mntrain.verbs.watching.following import follow, timeout_option
from jupyter_mntrain.workload.built import Built, choice_text
from jupyter_mntrain.workload.hardware_notes import hardware_notes
from jupyter_mntrain.workload.memory_fit import memory_notes
from jupyter_mntrain.workload.workload import (
    Workload,
)

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job, Progress
    from jupyter_mntrain.cluster.launch.resume import BeginPlan
    from jupyter_mntrain.model.records.job import JobView


class LaunchVerb(Verb):
    takes_cell = True

    def add_arguments(self, parser: Parser) -> None:
        job_options(parser)
        into_session_option(parser)
        parser.option(
            "--from",
            dest="begin",
            metavar="PATH",
            help="start from the newest checkpoint in this directory on the nodes, or from this "
            "step-… folder, whichever run saved it; later restarts resume from the job's own",
        )
        start_options(parser)
        parser.flag(
            "--another",
            help="in a notebook: launch another one even if the same job already runs on these "
            "nodes, instead of showing that one",
        )
        agreement_option(parser)
        on_option(parser)

    def add_chosen_arguments(self, parser: Parser, words: Sequence[str]) -> None:
        if chosen_options(parser, words):
            parser.flag(
                "--no-wait",
                help="return once the nodes are requested; the job starts when they are granted, "
                "and status says until then why it waits",
            )

    def run(self, context: Context, args: Namespace) -> Outcome:
        refuse_start_options(context, args)
        if not args.dry_run and context.cell is None:
            ask_about_job_file(context, args, args.target)
        return launch_on(context, args, _launch) if args.on else _launch(context, args)


def _launch(context: Context, args: Namespace) -> Outcome:
    built = build_spec(context, args)
    begin = args.begin or built.begin
    if begin is None:
        if args.dry_run:
            return dry_run_outcome(built, context.clock(), is_examined=not args.skip_doctor)
        notes = () if built.starts_over is None else (built.starts_over,)
        return launch_built(context, args, built, notes=notes)
    plan = built.cluster.plan_launch(built.spec, begin)
    built = built.with_spec(plan.spec)
    if args.dry_run:
        return dry_run_outcome(built, context.clock(), is_examined=not args.skip_doctor)
    context.screen.say(begin_text(plan, now_s=context.clock()))
    changes = msgspec.to_builtins(plan.changes)
    more = {"from_path": plan.path, "from_step": plan.step, "changes": changes}
    return launch_built(context, args, built, notes=plan.notes, more=more)


def begin_text(plan: BeginPlan, *, now_s: float) -> Text:
    """Say with which checkpoint a job begins, and how its settings differ from those before."""
    text = Text.assemble("starting with ", (plan.path, "bold"))
    if plan.step is not None:
        text.append(f" from step {formats.count(plan.step)}")
    if plan.checkpoint is not None:
        text.append(f" (saved {formats.duration(max(0.0, now_s - plan.checkpoint.saved_s))} ago)")
    changed = [str(one) for one in plan.changes]
    before, now = plan.ranks
    if before != now:
        changed.append(f"ranks {before} → {now}")
    if changed:
        text.append(f"\n  changed: {', '.join(changed)}", "dim")
    return text


def start_options(parser: Parser) -> None:
    """Add the options for how a job starts, and what to do then."""
    parser.flag(
        "--dry-run",
        help="only show the command and environment of every node, and what the doctor finds",
    )
    parser.flag(
        "--wait",
        help="return when the job has ended; exit code 0 only if every rank succeeded",
    )
    timeout_option(parser)
    parser.flag("--detach", help="start and show nothing")
    parser.flag(
        "--queue",
        help="queue it on the nodes: it starts once every GPU and port it needs is free, even "
        "with no notebook open; until then it is pending and holds nothing",
    )
    skip_doctor_option(parser)
    variable_option(parser)


def skip_doctor_option(parser: Parser) -> None:
    """Add the option that skips the preflight checks."""
    parser.flag(
        "--skip-doctor",
        help="skip the preflight checks for what would end or hang the job",
    )


def refuse_start_options(context: Context, args: Namespace) -> None:
    """Refuse options that contradict each other, before anything is asked."""
    if args.wait and args.detach:
        raise SpecError("--wait and --detach cannot be used together", fix="use one of them")
    if args.timeout is not None and not args.wait:
        raise SpecError("--timeout only works with --wait", fix="add --wait")
    refuse_variable(context, args)


def launch_built(
    context: Context,
    args: Namespace,
    built: Built,
    *,
    notes: Sequence[Problem] = (),
    more: Mapping[str, object] = MappingProxyType({}),
) -> Outcome:
    """Print notes before the start, then start the job and show it.

    Args:
        notes: to say first.
        more: data of the outcome.
    """
    if not getattr(args, "another", True):
        running = running_already(context, built, submitter(context))
        if running is not None:
            return shown_running(context, args, running)
    built = built.on_its_nodes()
    memory = memory_notes(built.memory(built.expected()) or ())
    sent = built.project.notes if built.project else ()
    hardware = hardware_notes(built, context.clock())
    told = (*notes, *built.said, *built.left_out, *sent, *_version_notes(built), *hardware, *memory)
    said = [note for note in told if note is not None]
    for text in warning_texts(said):
        context.screen.say(text)
    if built.sent_line:
        context.screen.say(Text(f"sending {built.sent_line}", style="dim"))
    with context.screen.starting(built.cluster.name) as on_begin:
        job, notes = started_job(context, args, built, on_begin)
        said += notes
        context.screen.say(started_line(job, built.workload))
        view = job.view()
        fit, plan = built.fit(view.spec.chosen), view.attempt.plan
        if (line := choice_text(fit)) is not None:
            context.screen.say(line)
        if fit is not None and plan is not None:
            context.screen.say(plan_line(plan, fit.recipe.schedule))
        data = {**started_data(job, said), **built.project_data, **more}
        data |= {"auto": fit.said} if fit is not None and fit.said else {}
        data |= {} if plan is None else {"plan": msgspec.to_builtins(plan)}
        return _shown(context, args, job, data)


def shown_running(
    context: Context, args: Namespace, job: Job, *, is_resumed: bool = False
) -> Outcome:
    """Show a job that runs already, instead of starting the same again."""
    now_s = context.clock()
    context.screen.say(running_already_text(job, now_s=now_s, is_resumed=is_resumed))
    data = {**started_data(job, ()), "already_running": True}
    return _shown(context, args, job, data)


def started_job(
    context: Context, args: Namespace, built: Built, on_begin: Callable[[JobView], object]
) -> tuple[Job, list[Problem]]:
    """Start a job or queue it, and say what the doctor found, whether it starts or not."""
    found: list[Problem] = []
    try:
        with context.screen.progress() as progress:
            job = start(
                context,
                built,
                progress,
                waits=args.queue,
                is_checked=not args.skip_doctor,
                on_note=found.append,
                on_begin=on_begin,
            )
    finally:
        for text in warning_texts(found):
            context.screen.say(text)
    return job, found


def _shown(context: Context, args: Namespace, job: Job, data: Mapping[str, object]) -> Outcome:
    """Wait for a launched job, show it live or name it, as the options say."""
    if args.wait:
        outcome = follow(context, args, job)
        kept = {name: data[name] for name in ("already_running",) if name in data}
        return msgspec.structs.replace(outcome, data={**outcome.data, **kept})
    if not args.detach and context.screen.in_background:
        context.screen.show(job)
        return Outcome(data=data, job=job)
    hint = Text(f"follow: {context.program} attach {job.id}", style="dim")
    return Outcome(hint, data, job=job)


def _version_notes(built: Built) -> tuple[Problem, ...]:
    """Return harmless or acknowledged differences between the nodes' versions."""
    try:
        chosen = built.resolved().nodes
    except SpecError:
        return ()  # the launch says so itself
    return version_notes(
        chosen,
        is_acknowledged=built.spec.mixed_versions,
        taken_over=built.is_mixed_before,
    )


def start(
    context: Context,
    built: Built,
    progress: Progress,
    *,
    waits: bool = False,
    is_checked: bool = True,
    on_note: Callable[[Problem], object] = bool,
    on_begin: Callable[[JobView], object] = bool,
) -> Job:
    """Start a job on all of its participants or on none, or queue it there.

    Args:
        waits: whether to queue it if it cannot start now.
        is_checked: whether the doctor looks at the nodes first.
        on_note: receives what it says that does not stop the launch.
        on_begin: as for :meth:`Cluster.launch`.
    """
    job = built.cluster.launch(
        built.spec,
        project=built.project,
        is_queued=waits,
        submitted_by=submitter(context),
        is_checked=is_checked,
        on_note=on_note,
        on_begin=on_begin,
        progress=progress,
    )
    remember_launch(built.cluster.name, job.id)
    return job


def started_line(job: Job, workload: Workload) -> Text:
    view = job.view()
    nodes = ", ".join(f"{p.node}:{p.nproc}:{p.interface}" for p in view.attempt.placements)
    done = "started" if view.attempt.number else "waits for its turn"
    return Text.assemble(
        ("▶ ", "green"), (job.id, "bold"), f" {done} on {nodes} with {workload.took}"
    )


def started_data(job: Job, notes: Sequence[Problem]) -> dict[str, object]:
    view = job.view()
    nodes = [placement.node for placement in view.attempt.placements]
    data = {"job_id": job.id, "state": view.state, "nodes": nodes, "name": view.spec.name}
    return data | ({"warnings": msgspec.to_builtins(notes)} if notes else {})


def submitter(context: Context) -> str:
    """Return the user and host that submit the job, for its record."""
    return f"{user_name()}@{socket.gethostname()} {context.program}"
