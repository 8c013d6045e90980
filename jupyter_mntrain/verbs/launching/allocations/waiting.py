"""Waiting launches: shows, follows and cancels launches that wait for nodes."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec
from rich.console import Group
from rich.text import Text

from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError, SpecError
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.model.sources.source import Allocation
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.show.screen import Awaited
from jupyter_mntrain.sources.allocation_book import follow_remembered
from jupyter_mntrain.sources.awaited_launch import AwaitedLaunch
from jupyter_mntrain.sources.registry import title_of
from jupyter_mntrain.verbs.controlling.ending import ENDED_WITHIN_S
from jupyter_mntrain.verbs.launching.allocations.progress import AllocationProgress
from jupyter_mntrain.verbs.launching.allocations.words import called, granted_line, waiting_line
from jupyter_mntrain.verbs.verb import Context, Outcome
from jupyter_mntrain.verbs.watching.following import DETACHED, TIMED_OUT

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job


class _TimeUp(Exception):  # noqa: N818 - it is no error
    """The time that the user wanted to wait is up."""


def awaited_launch(args: Namespace) -> AwaitedLaunch | None:
    """Return the launch that a command means, unless it is a job already."""
    launch = AwaitedLaunch.named(args.cluster) if args.cluster else None
    return None if launch is None or launch.note.jobs else launch


def waiting_outcome(context: Context, args: Namespace) -> Outcome | None:
    """Return the state of the launch that a command means, unless it is a job already."""
    launch = awaited_launch(args)
    if launch is None:
        return None
    now = launch.look()
    return Outcome(_shown(context, launch, now), _data(launch, now))


def looking_at(context: Context, args: Namespace, launch: AwaitedLaunch) -> Callable[[], Awaited]:
    """Return a function that reports what a launch waits for, and then its job.

    It raises :class:`RefusedError` once there will never be one.
    """

    def look() -> Awaited:
        now = launch.look()
        job = launch.job_unless_over(now)
        if job is None:
            return Awaited(_shown(context, launch, now), _data(launch, now))
        return Awaited(job=_job_there(context, args, job))

    return look


def waited_for(context: Context, args: Namespace, launch: AwaitedLaunch) -> Job | Outcome:
    """Wait until a launch is a job, and print why it waits.

    Ctrl-C and ``--timeout`` leave it waiting, and say so.

    Raises:
        RefusedError: it will never be one.
    """
    begun_s = context.clock()

    def sleep(seconds: float) -> None:
        if args.timeout is not None and context.clock() - begun_s >= args.timeout:
            raise _TimeUp
        context.sleep(seconds)

    try:
        job = launch.wait(AllocationProgress(context).look, sleep)
        return _job_there(context, args, job)
    except KeyboardInterrupt:
        return _left(context, launch, "Detached", DETACHED)
    except _TimeUp:
        why = f"Not started after {formats.duration(args.timeout)}"
        return _left(context, launch, why, TIMED_OUT)


def stopped_waiting(context: Context, args: Namespace) -> Outcome | None:
    """Give back the allocation of the named job if it holds no nodes.

    ``None`` if there is a job whose end is still to be recorded.
    """
    launch = AwaitedLaunch.named(args.cluster) if args.cluster and args.job else None
    before = launch.give_back() if launch is not None else None
    if launch is None or before is None:
        return None
    line = Text(f"{launch.cluster}: {called(before)} of {title_of(before.source)} was canceled")
    if launch.note.jobs:
        context.screen.say(line)
        return None
    return Outcome(line, {"cluster": launch.cluster, "state": "canceled"})


def refuse_own_nodes(args: Namespace) -> None:
    """Refuse to give back nodes that no scheduler has granted.

    Raises:
        SpecError: as told.
    """
    if not args.job:
        fix = "name the job, or the allocation: mntrain jobs shows them"
        raise SpecError("--give-back needs a job or an allocation", fix=fix)
    if not args.cluster or AwaitedLaunch.named(args.cluster) is None:
        cause = f"--give-back: {args.job} is not on nodes that were requested from here"
        raise SpecError(cause, fix="leave it out")


def given_back(context: Context, args: Namespace, end: Callable[[], Outcome]) -> Outcome:
    """End the named job and the others on its nodes, and give the nodes back.

    That also works if no job can be reached, but not before a requested checkpoint is saved.

    Args:
        end: ends the named job, and tells how.

    Raises:
        MntrainError: no such job is known to be theirs, or it could not be told to save.
    """
    launch = AwaitedLaunch.named(args.cluster)
    try:
        ended = end()
    except MntrainError as error:
        if args.save or not _may_be_there(error, args.job, launch):
            raise
        problem = msgspec.to_builtins(error.problem)
        ended = Outcome(_warned(error), {"problem": problem}, exit_code=1)
    if args.save and ended.exit_code:
        line = Text(
            f"Its nodes are kept. To give them back without a checkpoint: {context.program} stop "
        )
        line.append(f"{args.job} --give-back")
        data = {**ended.data, "given_back": False}
        return Outcome(Group(ended.renderable, line), data, exit_code=1, job=ended.job)
    unreached = [_warned(error) for error in _end_others(context, args)]
    before = launch.give_back(with_jobs=True) if launch is not None else None
    if launch is None or before is None:
        line = Text(f"{args.cluster}: its nodes had been given back already")
    else:
        line = Text(f"{launch.cluster}: {called(before)} of {title_of(before.source)} was ended")
    data = {**ended.data, "given_back": before is not None}
    code = max(ended.exit_code, int(bool(unreached)))
    shown = Group(ended.renderable, *unreached, line)
    return Outcome(shown, data, exit_code=code, job=ended.job)


def _may_be_there(error: MntrainError, job: str, launch: AwaitedLaunch | None) -> bool:
    """Whether nodes that could not end a job may still run it.

    An unknown id was misspelled, and ends no allocation.
    """
    if not isinstance(error, JobNotFoundError):
        return not isinstance(error, SpecError)
    return launch is not None and any(known.startswith(job) for known in launch.note.jobs)


def _end_others(context: Context, args: Namespace) -> Iterator[MntrainError]:
    """End the jobs that still run on the nodes; yield errors of those that cannot be reached."""
    ending = []
    try:
        cluster = context.cluster(args)
        running = [one.job_id for one in cluster.jobs() if one.state not in TERMINAL]
    except MntrainError as error:
        yield error
        return
    for job_id in running:
        try:
            job = cluster.job(job_id)
            job.stop(reason=f"{args.reason}, with its nodes", grace_s=args.grace)
        except MntrainError as error:
            yield error
        else:
            ending.append(job)
    for job in ending:
        try:
            job.wait(args.grace + ENDED_WITHIN_S)
        except MntrainError as error:
            yield error


def _warned(error: MntrainError) -> Text:
    return problem_text(error.problem, mark="⚠", style="yellow")


def _job_there(context: Context, args: Namespace, job: str) -> Job:
    """Return the job that a launch has become."""
    cluster = context.cluster(args)
    # In a notebook it may be open since before the allocation was remembered.
    follow_remembered(cluster)
    return cluster.job(job)


def _shown(context: Context, launch: AwaitedLaunch, now: Allocation) -> Group:
    nodes, source = formats.plural(launch.note.request.nodes, "node"), title_of(now.source)
    lines = [Text(f"{launch.cluster}: {nodes} of {source}, {called(now)}, {now.state}")]
    if now.waiting is not None:
        lines.append(waiting_line(now.waiting, context.clock()))
    elif now.problem is not None:
        lines.append(problem_text(now.problem, mark="⚠", style="yellow"))
    elif now.state == "running":
        lines.append(granted_line(now))
    if not now.is_over and (gone := launch.problem) is not None:
        lines.append(problem_text(gone, mark="⚠", style="yellow"))
    elif not now.is_over:
        lines.append(Text(f"cancel: {context.program} stop {launch.cluster}", "dim"))
    return Group(*lines)


def _data(launch: AwaitedLaunch, now: Allocation) -> dict[str, object]:
    allocation = msgspec.to_builtins(now)
    gone = launch.problem if not now.is_over else None
    return {
        "cluster": launch.cluster,
        "allocation": allocation,
        "state": now.state,
        "problem": None if gone is None else msgspec.to_builtins(gone),
    }


def _left(context: Context, launch: AwaitedLaunch, why: str, code: int) -> Outcome:
    name, program = launch.cluster, context.program
    text = Text(
        f"{why}: {name} still waits for its nodes. Watch it again: {program} attach {name}. "
        f"Cancel it: {program} stop {name}"
    )
    return Outcome(text, {"cluster": name, "detached": True}, exit_code=code)
