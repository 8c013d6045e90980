"""Resuming: finds the checkpoint that a run resumes from, and lists what its next job changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from jupyter_mntrain.cluster.agents.client import AgentClient, ask_each
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.cluster.view.ended_jobs import jobs_of_run, whole_spec
from jupyter_mntrain.launch.checkpoints.directory import step_in
from jupyter_mntrain.launch.settings import exactness_notes, refuse_unfit
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import CheckpointAction, CheckpointChange
from jupyter_mntrain.model.errors import (
    JobNotFoundError,
    MntrainError,
    NodeError,
    RefusedError,
    SpecError,
    TrustError,
    bad_argument,
)
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.program import Program, program_of
from jupyter_mntrain.model.records.checkpoint import (
    BEST,
    NodeCheckpoints,
    RunCheckpoint,
    RunCheckpoints,
)
from jupyter_mntrain.model.records.job import JobSpec, JobView, Origin, Placement
from jupyter_mntrain.model.records.setting import SettingChange
from jupyter_mntrain.plan.resolved import resolve
from jupyter_mntrain.plan.resume import (
    choose_checkpoint,
    choose_in_directory,
    last_reached,
    origin_of,
    refuse_finished,
    refuse_running,
    reported_step,
    step_of,
    still_running,
    told_steps,
    use_steps,
)
from jupyter_mntrain.plan.run_checkpoints import merge_checkpoints
from jupyter_mntrain.plan.software.versions import unacknowledged

# Begin: what a launch begins with, if a person named a directory of checkpoints on the nodes.
#
# No job of the run that saved them needs to be known any more.


class BeginPlan(Record, frozen=True):
    """A planned launch that starts from a checkpoint.

    Args:
        spec: to launch.
        path: directory that has the checkpoint.
        step: finished steps of it; of a script, which reads the directory itself, only if its
            name says so.
        checkpoint: ``None`` for a script.
        changes: what the recipe changes against the settings that it was saved with.
        notes: what to tell before the start.
    """

    spec: JobSpec
    path: str
    step: int | None
    checkpoint: RunCheckpoint | None = None
    changes: tuple[SettingChange, ...] = ()
    notes: tuple[Problem, ...] = ()

    @property
    def ranks(self) -> tuple[int, int]:
        """The number of ranks that saved the checkpoint, and that of the launch."""
        now = self.spec.world_size
        return (now if self.checkpoint is None else self.checkpoint.world_size), now


async def plan_beginning(live: ClusterView, spec: JobSpec, begin: str) -> BeginPlan:
    """Ask the nodes what is in a directory, and check that the job can start from it.

    Args:
        begin: the directory of a run's checkpoints, or one of them, on the nodes.

    Raises:
        RefusedError: there is no checkpoint, or the job's nodes do not have all of it.
        SpecError: no steps are left, or a setting does not fit the checkpoint.
    """
    path, step = _place_of(begin)
    job = resolve(spec, [view.info for view in live.nodes])
    program, names = job.program, job.names
    by_node = await _look(live, path, names)
    if program.is_script:
        return _by_script(spec, path, step, {name: by_node[name] for name in names})
    listed = RunCheckpoints(
        run=JobId(""),
        checkpoints=merge_checkpoints(by_node),
        directories={name: one.directory for name, one in by_node.items()},
    )
    found = choose_in_directory(path, listed, step, names)
    before = _saved_by(program, by_node, found)
    _refuse_finished(path, program.total_steps(before), found.step)
    changes: tuple[SettingChange, ...] = ()
    notes: tuple[Problem, ...] = (_SETTINGS_UNKNOWN,)
    if before is not None:
        program, before = program.going_on_from(before)
        changes = program.changes_since(before, step=found.step)
        refuse_unfit(changes, path)
        notes = exactness_notes(changes)
    origin = Origin(
        is_branch=True,
        step=found.step,
        path=path,
        world_size=found.world_size,
        reached=found.step,
    )
    return BeginPlan(
        spec=msgspec.structs.replace(program.spec, origin=origin),
        path=path,
        step=found.step,
        checkpoint=found,
        changes=changes,
        notes=notes,
    )


def _refuse_finished(path: str, steps: int | None, step: int) -> None:
    """Refuse a recipe that has no steps left after a checkpoint."""
    if steps is not None and step >= steps:
        raise SpecError(
            f"the recipe makes {steps} steps, and the checkpoint in {path} has made {step}",
            fix=f"set the total number of steps: --set train.steps={2 * step}",
        )


def _place_of(begin: str) -> tuple[str, int | None]:
    """Split what a person gave, a directory of checkpoints or one checkpoint in it, into directory
    and step.

    Raises:
        SpecError: it is not an absolute path.
    """
    if not isinstance(begin, str) or not begin.startswith(("/", "~")):
        raise SpecError(
            f"--from {begin}: not an absolute path",
            fix="give the path of a checkpoint directory on the nodes, from / or ~; or start from "
            "a step of a known run: resume JOB --from STEP",
        )
    directory, _, name = begin.rstrip("/").rpartition("/")
    step = step_in(name)
    return (begin.rstrip("/"), None) if step is None else (directory, step)


async def _look(live: ClusterView, path: str, names: set[str]) -> dict[str, NodeCheckpoints]:
    """List what each node that answers has there. Participants have to answer; other nodes are
    asked, too, so that a refusal can say which of them has the rest.
    """
    nodes = [info for info in live.reachable if live.client_at(info.node_id) is not None]

    async def ask(node_id: str, name: str) -> NodeCheckpoints | None:
        client = live.client_at(node_id)  # type: ignore[arg-type]
        if client is None:
            return None
        try:
            return await client.checkpoints_at(path)
        except MntrainError:
            if name in names:
                raise
            return None

    answers = await asyncio.gather(*(ask(info.node_id, info.name) for info in nodes))
    found = {info.name: one for info, one in zip(nodes, answers, strict=True) if one is not None}
    if silent := sorted(names - found.keys()):
        raise RefusedError(
            f"{', '.join(silent)}: does not answer, so what it has in {path} is not known",
            kind=Kind.SILENT,
            fix="start it again, or omit it",
        )
    return found


def _by_script(
    spec: JobSpec, path: str, step: int | None, by_node: Mapping[str, NodeCheckpoints]
) -> BeginPlan:
    """Plan the start of a script, which reads the directory itself: only check that it exists."""
    lacking = sorted(name for name, one in by_node.items() if not one.is_there)
    if len(lacking) == len(by_node):
        raise RefusedError(
            f"there is no directory {path} on {', '.join(lacking)}",
            kind=Kind.NO_CHECKPOINT,
            fix="name another with --from, or add the nodes that have it",
        )
    notes = tuple(
        Problem(kind=Kind.NO_CHECKPOINT, cause=f"has no directory {path}", node=name)
        for name in lacking
    )
    origin = Origin(is_branch=True, step=step, path=path, reached=step)
    begun = msgspec.structs.replace(spec, origin=origin)
    return BeginPlan(spec=begun, path=path, step=step, notes=notes)


def _saved_by(
    program: Program, by_node: Mapping[str, NodeCheckpoints], found: RunCheckpoint
) -> Program | None:
    """Return the program that saved a checkpoint; ``None`` if this version cannot tell."""
    for listed in by_node.values():
        for held in listed.checkpoints:
            if held.manifest.age == found.age and held.manifest.recipe is not None:
                return program.saved_by(held.manifest.recipe)
    return None


_SETTINGS_UNKNOWN = Problem(
    kind=Kind.OTHER_LOSSES,
    cause="another version saved this checkpoint, so what the recipe changes is not known; the "
    "ranks check the model and the batches",
)


Losses = Literal["equal", "rounding", "other", "by-script"]
"""How a resumed run's losses compare with an uninterrupted run's: equal, equal except for
rounding, other, or up to the script."""


class ResumePlan(Record, frozen=True):
    """A planned resume of a job.

    Args:
        spec: to launch.
        job: that is resumed.
        run: that the job belongs to; whose checkpoint it begins with, unless ``path`` is given.
        step: finished steps of it; ``None`` if only the nodes can know.
        checkpoint: that it begins with; ``None`` for a script.
        path: the directory on the nodes that it begins with, if a person named one.
        changes: what the recipe changes.
        ranks: of the run's last attempt, and now.
        notes: what to tell before the start.
    """

    spec: JobSpec
    job: JobId
    run: JobId
    step: int | None
    checkpoint: RunCheckpoint | None = None
    path: str | None = None
    changes: tuple[SettingChange, ...] = ()
    ranks: tuple[int, int] = (0, 0)
    notes: tuple[Problem, ...] = ()

    @property
    def is_branch(self) -> bool:
        """Whether the job begins a new run."""
        return self.spec.origin is not None and self.spec.origin.is_branch

    @property
    def losses(self) -> Losses:
        """How the losses of the coming steps compare with those of the run."""
        if program_of(self.spec).is_script:
            return "by-script"
        effects = {one.effect for one in self.changes}
        return "other" if "other" in effects else "rounding" if "rounding" in effects else "equal"

    @property
    def changed(self) -> tuple[str, ...]:
        """The differences from the run's newest job: settings, and the number of ranks."""
        before, now = self.ranks
        ranks = () if before == now else (f"ranks {before} → {now}",)
        return (*map(str, self.changes), *ranks)


async def plan_resume(
    live: ClusterView,
    job_id: JobId,
    spec: JobSpec | None,
    begin: int | str | None,
    *,
    listed: RunCheckpoints | None = None,
) -> ResumePlan:
    """Find the checkpoint that a job resumes from, and check that it can.

    Args:
        spec: what to run; ``None`` = the same again, except for an acknowledgment of mixed
        versions. begin: begin a new run with the checkpoint of this step, with the ``best`` one, or
        with the
            one in this directory, which is on the nodes.
        listed: the run's checkpoints, if the nodes were just asked.

    Raises:
        RefusedError: a job of the run is running; or there is no checkpoint, or not on these nodes.
        SpecError: no steps are left, or a setting does not fit the checkpoint.
    """
    view = live.job(job_id)
    chain = await jobs_of_run(live, view.run)
    refuse_running(chain)
    spec = spec or unacknowledged(await whole_spec(live, view))
    if begin == BEST:
        listed = listed or await list_checkpoints(live, chain)
        begin = step_of(listed, BEST)
    if begin is not None and not isinstance(begin, int):
        return _elsewhere(view, chain, await plan_beginning(live, spec, begin))
    last = _newest(chain)
    program, before = program_of(spec).going_on_from(program_of(await whole_spec(live, last)))
    listed = listed or await list_checkpoints(live, chain)
    notes = _silence_notes(listed)
    named, copies = before.named_directories()
    copies = copies and f"{copies.rstrip('/')}/{view.run}"
    checkpoint = None
    if program.is_script:
        step = reported_step(chain) if begin is None else begin
        if step is None and not any(listed.other_bytes.values()):
            notes = (*notes, _NOTHING_KNOWN)
    else:
        names = resolve(program.spec, [view.info for view in live.nodes]).names
        shared = named is not None
        checkpoint = choose_checkpoint(listed, begin, names, is_maybe_shared=shared, copies=copies)
        step = checkpoint.step
    is_branch, changes = begin is not None, tuple[SettingChange, ...]()
    if not (program.is_script or before.is_script):
        refuse_finished(view, program.total_steps(before, told_steps(last)), step or 0)
        changes = program.changes_since(before, step=step or 0)
        refuse_unfit(changes, f"run {view.run}")
        if not is_branch:
            _refuse_moved(view, changes, named)
    notes = (*notes, *exactness_notes(changes))
    path = f"{named}/{view.run}" if is_branch and not program.is_script and named else None
    origin = origin_of(view, chain, step, branch=is_branch, path=path)
    return ResumePlan(
        spec=msgspec.structs.replace(program.spec, origin=origin),
        job=view.job_id,
        run=view.run,
        step=step,
        checkpoint=checkpoint,
        changes=changes,
        ranks=(last.attempt.world_size, program.spec.world_size),
        notes=notes,
    )


def _elsewhere(view: JobView, chain: Sequence[JobView], found: BeginPlan) -> ResumePlan:
    """Start from a directory, as a launch does; the new run records which run it comes from."""
    origin = origin_of(view, chain, found.step, branch=True, path=found.path)
    before, now = _newest(chain).attempt.world_size, found.spec.world_size
    if found.checkpoint is not None:
        before = found.checkpoint.world_size
        origin = msgspec.structs.replace(origin, world_size=before)
    return ResumePlan(
        spec=msgspec.structs.replace(found.spec, origin=origin),
        job=view.job_id,
        run=view.run,
        step=found.step,
        checkpoint=found.checkpoint,
        path=found.path,
        changes=found.changes,
        ranks=(before, now),
        notes=found.notes,
    )


def _newest(chain: Sequence[JobView]) -> JobView:
    return max(chain, key=lambda one: one.attempt.submitted_s)


async def list_checkpoints(live: ClusterView, chain: Sequence[JobView]) -> RunCheckpoints:
    """Ask every node that took part in a run for its checkpoints."""
    return await _ask(live, chain, AgentClient.checkpoints)


async def checkpoints_of_job(live: ClusterView, view: JobView) -> RunCheckpoints:
    """Ask every node that took part in a job's run for its checkpoints."""
    return await list_checkpoints(live, await jobs_of_run(live, view.run))


async def change_checkpoints(
    live: ClusterView, view: JobView, change: CheckpointChange
) -> RunCheckpoints:
    """Delete, pin or unpin a checkpoint of a job's run on every node that has a part of it.

    Raises:
        RefusedError: there is none of that step, or a node refuses.
        SpecError: there is no such action.
    """
    if change.action not in get_args(CheckpointAction):
        raise bad_argument(
            "action", change.action, f"one of {', '.join(get_args(CheckpointAction))}"
        )
    chain = await jobs_of_run(live, view.run)
    listed = await list_checkpoints(live, chain)
    if all(one.step != change.step for one in listed.checkpoints):
        raise RefusedError(
            f"run {listed.run} has no checkpoint of step {change.step} on a node that answers",
            kind=Kind.NO_CHECKPOINT,
            fix=use_steps(listed) if listed.checkpoints else "start the nodes that have one",
        )
    return await _ask(live, chain, lambda one, job_id: one.change_checkpoint(job_id, change))


async def _ask(
    live: ClusterView,
    chain: Sequence[JobView],
    call: Callable[[AgentClient, JobId], Awaitable[NodeCheckpoints]],
) -> RunCheckpoints:
    """Call every node of a run, and merge the checkpoints that they list."""
    asked = _places(chain)
    answers = await ask_each(asked, lambda one: call(live.client_of(one[1]), one[0]))
    return _merged(chain, asked, answers)


def _places(chain: Sequence[JobView]) -> list[tuple[JobId, Placement]]:
    """Return every node of a run, with the newest job of the run that it took part in."""
    found: dict[NodeId, tuple[JobId, Placement]] = {}
    for view in sorted(chain, key=lambda one: one.attempt.submitted_s):
        for place in view.attempt.placements:
            found[place.node_id] = view.job_id, place
    return list(found.values())


def _merged(
    chain: Sequence[JobView],
    asked: Sequence[tuple[JobId, Placement]],
    answers: Sequence[NodeCheckpoints | MntrainError],
) -> RunCheckpoints:
    by_node: dict[str, NodeCheckpoints] = {}
    silent = []
    for (_, place), answer in zip(asked, answers, strict=True):
        match answer:
            case NodeCheckpoints():
                by_node[place.node] = answer
            case NodeError() | TrustError():
                silent.append(place.node)
            case JobNotFoundError():
                pass  # its state directory was emptied
            case _:
                raise answer
    return RunCheckpoints(
        run=chain[0].run,
        checkpoints=merge_checkpoints(by_node),
        directories={name: one.directory for name, one in by_node.items()},
        other_bytes={name: one.other_bytes for name, one in by_node.items()},
        silent=tuple(silent),
    )


def _refuse_moved(view: JobView, changes: Sequence[SettingChange], before: str | None) -> None:
    """Refuse a directory of checkpoints that is not the run's.

    Args:
        before: the run's, as a person named it.
    """
    if any(one.name == "checkpoint.directory" for one in changes):
        where = before or "the nodes' own directories"
        raise SpecError(
            f"checkpoint.directory: the checkpoints of run {view.run} are in {where}",
            fix="leave it as it was, or start a new run from them: resume --from STEP",
        )


def _silence_notes(listed: RunCheckpoints) -> tuple[Problem, ...]:
    return tuple(
        Problem(
            kind=Kind.SILENT,
            cause="took part in this run and does not answer: what it has saved is not known",
            fix="if it has a newer checkpoint, start it again first",
            node=node,
        )
        for node in listed.silent
    )


_NOTHING_KNOWN = Problem(
    kind=Kind.NO_CHECKPOINT,
    cause="the script has reported no checkpoint, and left nothing in $MNTRAIN_CHECKPOINT_DIR: it "
    "begins at step 1 unless it finds a checkpoint elsewhere",
)


# Resume offer: what an ended job can go on from, or what is in the way. For faces that ask before
# a person decides.


Obstacle = Literal["running", "nothing-saved", "not-whole", "finished", "refused"]
"""Why a run cannot go on: ``running``: a job of it runs, or will. ``nothing-saved``: it has no
checkpoint. ``not-whole``: the job's nodes do not have all of the newest. ``finished``: it has made
all of its steps. ``refused``: anything else, see the problem.
"""


class ResumeOffer(Record, frozen=True):
    """What an ended job can resume from.

    Args:
        run: that it belongs to.
        newest_job: of the run.
        obstacle: why it cannot; ``None`` if it can.
        step: finished steps of the newest checkpoint; ``None`` if there is none, or a script's
            that only the nodes know.
        steps: that the recipe makes in all; ``None`` for a script, or epochs of which no rank has
            told yet how many steps they are.
        reached: the last step that the run finished.
        losses: of the steps to come.
        changes: settings and ranks that differ from the run's newest job.
        checkpoints: of the run.
        running_job: if one is in the way.
        problem: if the obstacle needs words.
    """

    job_id: JobId
    run: JobId
    newest_job: JobId
    checkpoints: RunCheckpoints
    obstacle: Obstacle | None = None
    step: int | None = None
    steps: int | None = None
    reached: int = 0
    losses: Losses = "equal"
    changes: tuple[str, ...] = ()
    running_job: JobId | None = None
    problem: Problem | None = None


async def offer_resume(live: ClusterView, job_id: JobId) -> ResumeOffer:
    """Ask the nodes of a run what it can resume from. Raises only what :meth:`Job.view` raises."""
    view = live.job(job_id)
    chain = await jobs_of_run(live, view.run)
    listed = await list_checkpoints(live, chain)
    unknown: MntrainError | None = None
    try:
        program = program_of(await whole_spec(live, view))
        steps = program.total_steps(program, told_steps(view))
    except MntrainError as error:
        steps, unknown = None, error
    newest = max(chain, key=lambda one: one.attempt.submitted_s)
    saved = listed.checkpoints[0].step if listed.checkpoints else None
    basis = ResumeOffer(
        job_id=view.job_id,
        run=view.run,
        newest_job=newest.job_id,
        checkpoints=listed,
        step=saved,
        steps=steps,
        reached=last_reached(chain),
    )
    if unknown is not None:
        return _hindered(basis, chain, unknown)
    try:
        plan = await plan_resume(live, job_id, None, None, listed=listed)
    except MntrainError as error:
        return _hindered(basis, chain, error)
    return _planned(basis, plan, is_script=program.is_script)


def _hindered(basis: ResumeOffer, chain: Sequence[JobView], error: MntrainError) -> ResumeOffer:
    obstacle: Obstacle = "refused"
    running = next((one.job_id for one in chain if still_running(one)), None)
    if running is not None:
        obstacle = "running"
    elif error.kind is Kind.NO_CHECKPOINT:
        obstacle = "not-whole" if basis.checkpoints.checkpoints else "nothing-saved"
    elif basis.steps is not None and basis.step is not None and basis.step >= basis.steps:
        obstacle = "finished"
    return msgspec.structs.replace(
        basis, obstacle=obstacle, running_job=running, problem=error.problem
    )


def _planned(basis: ResumeOffer, plan: ResumePlan, *, is_script: bool) -> ResumeOffer:
    if is_script and plan.step is None and not any(basis.checkpoints.other_bytes.values()):
        return msgspec.structs.replace(basis, obstacle="nothing-saved", losses="by-script")
    return msgspec.structs.replace(basis, step=plan.step, losses=plan.losses, changes=plan.changed)
