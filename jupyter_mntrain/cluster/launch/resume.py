"""Resuming: finds the checkpoint that a run goes on from, and says what its next job changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, get_args

import msgspec

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.cluster.view.ended_jobs import jobs_of_run, whole_spec
from jupyter_mntrain.launch.checkpoints.directory import step_in
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import CheckpointAction, CheckpointChange
from jupyter_mntrain.model.errors import (
    JobNotFoundError,
    NodeError,
    RefusedError,
    SpecError,
    TrustError,
    bad_argument,
)
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.records.checkpoint import (
    NodeCheckpoints,
    RunCheckpoint,
    RunCheckpoints,
)
from jupyter_mntrain.model.records.job import JobSpec, JobView, Placement
from jupyter_mntrain.plan.arrange import find_participants
from jupyter_mntrain.plan.resume import (
    choose_checkpoint,
    origin_of,
    refuse_finished,
    refuse_running,
    reported_step,
)
from jupyter_mntrain.plan.run_checkpoints import merge_checkpoints
from jupyter_mntrain.recipe.exactness import SettingChange, changed_settings
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.recipe.stored import recipe_of

Losses = Literal["equal", "rounding", "other", "by-script"]
"""Of a resumed run: those of an unbroken one; but for rounding; other ones; or a script's own."""


class ResumePlan(Record, frozen=True):
    """A resumed job before it starts.

    Args:
        spec: to launch.
        job: that is resumed.
        run: whose checkpoint it begins with.
        step: finished steps of it; ``None`` if only the nodes can know.
        checkpoint: if it is one of the run's.
        changes: what the recipe changes.
        ranks: of the run's last attempt, and now.
        notes: what to tell before the start.
    """

    spec: JobSpec
    job: JobId
    run: JobId
    step: int | None
    checkpoint: RunCheckpoint | None = None
    changes: tuple[SettingChange, ...] = ()
    ranks: tuple[int, int] = (0, 0)
    notes: tuple[Problem, ...] = ()

    @property
    def is_branch(self) -> bool:
        """Whether it begins a run of its own."""
        return self.spec.origin is not None and self.spec.origin.is_branch

    @property
    def losses(self) -> Losses:
        """Of the steps to come."""
        if recipe_of(self.spec) is None:
            return "by-script"
        effects = {one.effect for one in self.changes}
        return "other" if "other" in effects else "rounding" if "rounding" in effects else "equal"

    @property
    def changed(self) -> tuple[str, ...]:
        """What differs from the run's newest job: settings, and the number of ranks."""
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
    """Find what a job goes on from, and check that it can.

    Args:
        spec: what to run; ``None`` = the same again.
        begin: begin a new run with the checkpoint of this step, or with the one in this directory,
            which is on the nodes.
        listed: the run's checkpoints, if the nodes were just asked.

    Raises:
        RefusedError: a job of the run is running; or there is no checkpoint, or not on these nodes.
        SpecError: no steps are left, or a setting does not fit the checkpoint.
    """
    view = live.job(job_id)
    chain = await jobs_of_run(live, view.run)
    refuse_running(chain)
    last = max(chain, key=lambda one: one.attempt.submitted_s)
    spec = spec or await whole_spec(live, view)
    before, recipe = recipe_of(await whole_spec(live, last)), recipe_of(spec)
    path, step = place_of(begin)
    checkpoint = None
    notes: tuple[Problem, ...] = ()
    if path is None:
        listed = listed or await list_checkpoints(live, chain)
        if recipe is None:
            step = reported_step(chain) if step is None else step
        else:
            named = before.checkpoint.directory if before is not None else None
            names, is_maybe_shared = _names(live, spec), named is not None
            checkpoint = choose_checkpoint(listed, step, names, is_maybe_shared=is_maybe_shared)
            step = checkpoint.step
            path = f"{named}/{view.run}" if begin is not None and named is not None else None
        notes = _silence_notes(listed)
        if recipe is None and step is None and not any(listed.other_bytes.values()):
            notes = (*notes, _NOTHING_KNOWN)
    changes: tuple[SettingChange, ...] = ()
    if recipe is not None and before is not None:
        changes = changed_settings(before, recipe, step=step or 0)
        refuse_unfit(changes, f"run {view.run}")
        _refuse_moved(view, changes, before, is_branch=begin is not None)
        refuse_finished(view, recipe.train.steps, step or 0)
        notes = (*notes, *exactness_notes(changes))
    origin = origin_of(view, chain, step, branch=begin is not None, path=path)
    return ResumePlan(
        spec=msgspec.structs.replace(spec, origin=origin),
        job=view.job_id,
        run=view.run,
        step=step,
        checkpoint=checkpoint,
        changes=changes,
        ranks=(last.attempt.world_size, spec.world_size),
        notes=notes,
    )


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
        known = ", ".join(str(one.step) for one in listed.checkpoints) or "none"
        raise RefusedError(
            f"run {listed.run} has no checkpoint of step {change.step} on a node that answers",
            kind=Kind.NO_CHECKPOINT,
            fix=f"it has: {known}",
        )
    return await _ask(live, chain, lambda one, job_id: one.change_checkpoint(job_id, change))


async def _ask(
    live: ClusterView,
    chain: Sequence[JobView],
    call: Callable[[AgentClient, JobId], Awaitable[NodeCheckpoints]],
) -> RunCheckpoints:
    """Make a call to every node of a run, and merge what they have."""
    asked = _places(chain)
    answers = await asyncio.gather(
        *(call(live.client_of(place), job_id) for job_id, place in asked), return_exceptions=True
    )
    return _merged(chain, asked, answers)


def _places(chain: Sequence[JobView]) -> list[tuple[JobId, Placement]]:
    """Every node of a run once, with the newest job of the run that it took part in."""
    found: dict[NodeId, tuple[JobId, Placement]] = {}
    for view in sorted(chain, key=lambda one: one.attempt.submitted_s):
        for place in view.attempt.placements:
            found[place.node_id] = view.job_id, place
    return list(found.values())


def _merged(
    chain: Sequence[JobView],
    asked: Sequence[tuple[JobId, Placement]],
    answers: Sequence[NodeCheckpoints | BaseException],
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


def _names(live: ClusterView, spec: JobSpec) -> set[str]:
    infos = [view.info for view in live.nodes if view.info]
    return {info.name for info in find_participants(spec.participants, infos)}


def place_of(begin: int | str | None) -> tuple[str | None, int | None]:
    """A directory of checkpoints and a step, from what a person gave: the step, that directory,
    or a checkpoint in it.
    """
    if begin is None or isinstance(begin, int):
        return None, begin
    if not isinstance(begin, str):
        raise bad_argument("begin", begin, "a step, or the path of a directory on the nodes")
    if not begin.startswith(("/", "~")):
        raise SpecError(
            f"--from {begin}: neither a step nor an absolute path",
            fix="give a step, or the path of a checkpoint directory on the nodes, from / or ~",
        )
    directory, _, name = begin.rstrip("/").rpartition("/")
    step = step_in(name)
    return (begin.rstrip("/"), None) if step is None else (directory, step)


def refuse_unfit(changes: Sequence[SettingChange], whose: str) -> None:
    """Refuse settings that a checkpoint does not fit.

    Raises:
        SpecError: as told.
    """
    if unfit := [one for one in changes if one.effect == "refused"]:
        raise SpecError(
            f"{', '.join(map(str, unfit))}: a checkpoint of {whose} does not fit",
            fix="leave it as it was, or start over with launch",
        )


def _refuse_moved(
    view: JobView, changes: Sequence[SettingChange], before: Recipe, *, is_branch: bool
) -> None:
    if not is_branch and any(one.name == "checkpoint.directory" for one in changes):
        where = before.checkpoint.directory or "the nodes' own directories"
        raise SpecError(
            f"checkpoint.directory: the checkpoints of run {view.run} are in {where}",
            fix="leave it as it was; a new run may begin with them: resume --from STEP",
        )


def exactness_notes(changes: Sequence[SettingChange]) -> tuple[Problem, ...]:
    other = [str(one) for one in changes if one.effect == "other"]
    rounded = [str(one) for one in changes if one.effect == "rounding"]
    notes = []
    if other:
        cause = f"{', '.join(other)}: from here on the losses differ from those of an unbroken run"
        notes.append(Problem(kind=Kind.OTHER_LOSSES, cause=cause))
    if rounded:
        cause = f"{', '.join(rounded)}: losses equal those of an unbroken run but for rounding"
        notes.append(Problem(kind=Kind.OTHER_LOSSES, cause=cause))
    return tuple(notes)


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
