"""Resume: chooses the checkpoint that a run resumes from, or says why it cannot. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.checkpoint import (
    RunCheckpoint,
    RunCheckpoints,
    WantedStep,
)
from jupyter_mntrain.model.records.job import TERMINAL, JobView, Origin

SHOWN_STEPS = 8
"""Most steps that a refusal lists."""


def refuse_running(chain: Sequence[JobView]) -> None:
    """Refuse to resume a run while one of its jobs may still write checkpoints.

    A part whose node does not answer is no reason: its peers have ended, so it cannot go on.

    Args:
        chain: the jobs of the run that are known.

    Raises:
        RefusedError: one is running, queued, or will restart.
    """
    for view in chain:
        if not still_running(view):
            continue
        what = "waits for its next attempt" if view.restart is not None else f"is {view.state}"
        raise RefusedError(
            f"job {view.job_id} of run {view.run} {what}",
            kind=Kind.STILL_RUNNING,
            fix=f"watch it: mntrain attach {view.job_id}; or end it first: mntrain stop "
            f"{view.job_id} --save",
        )


def still_running(view: JobView) -> bool:
    """Whether a job may still write checkpoints."""
    known = [part.state for part in view.parts if part.state != "unknown"]
    has_ended = bool(known) and all(state in TERMINAL for state in known)
    return not has_ended or view.restart is not None


def choose_checkpoint(
    listed: RunCheckpoints,
    step: int | None,
    nodes: Collection[str],
    *,
    is_maybe_shared: bool,
    copies: str | None = None,
) -> RunCheckpoint:
    """Return the checkpoint of that step, or the newest one.

    Never an older one because parts of the newest are missing: the steps since would be lost.

    Args:
        nodes: names of those that take part.
        is_maybe_shared: the directory was named, so a node that is new to the run may see it, too.
        copies: the run's directory on durable storage.

    Raises:
        RefusedError: there is none, or these nodes do not have all of it.
    """
    job = listed.run
    if not listed.checkpoints:
        fix = f"start over: mntrain launch {job}"
        if copies is not None:
            fix = f"{_use_copies(listed, copies)}; or {fix}"
        if listed.silent:
            fix = f"start {' and '.join(listed.silent)} again, which may have one; or {fix}"
        raise RefusedError(f"run {job} has no checkpoint", kind=Kind.NO_CHECKPOINT, fix=fix)
    found = next((one for one in listed.checkpoints if step in (None, one.step)), None)
    if found is None:
        raise RefusedError(
            f"run {job} has no checkpoint of step {step}",
            kind=Kind.NO_CHECKPOINT,
            fix=use_steps(listed),
        )
    lacking = found.missing_without(nodes)
    if lacking and not (is_maybe_shared and not set(nodes) <= listed.directories.keys()):
        raise _not_whole(found, lacking, listed, nodes, copies=copies)
    return found


def _use_copies(listed: RunCheckpoints, copies: str) -> str:
    return f"resume from its durable copies: mntrain resume {listed.run} --from {copies}"


def step_of(listed: RunCheckpoints, wanted: WantedStep) -> int:
    """Return the step of the checkpoint that a person named.

    Raises:
        RefusedError: it is the best one, and none has an evaluation loss.
    """
    if isinstance(wanted, int):
        return wanted
    found = next((one.step for one in listed.checkpoints if one.is_best), None)
    if found is None:
        raise RefusedError(
            f"run {listed.run} has no checkpoint with an evaluation loss",
            kind=Kind.NO_CHECKPOINT,
            fix=use_steps(listed)
            if listed.checkpoints
            else f"see mntrain checkpoints {listed.run}",
        )
    return found


def use_steps(listed: RunCheckpoints) -> str:
    """Return the fix for a request of a missing step: the steps that have a checkpoint."""
    steps = [str(one.step) for one in listed.checkpoints[:SHOWN_STEPS]]
    return f"use step {steps[0]}" if len(steps) == 1 else f"use one of the steps {', '.join(steps)}"


def choose_in_directory(
    path: str, listed: RunCheckpoints, step: int | None, nodes: Collection[str]
) -> RunCheckpoint:
    """Return the checkpoint of that step in a directory that a person named, or the newest one.

    Args:
        nodes: names of those that take part.

    Raises:
        RefusedError: there is none, or these nodes do not have all of it.
    """
    found = next((one for one in listed.checkpoints if step in (None, one.step)), None)
    if found is None:
        which = "checkpoint" if step is None else f"checkpoint of step {step}"
        raise RefusedError(
            f"there is no {which} in {path} on any node that answers",
            kind=Kind.NO_CHECKPOINT,
            fix=f"{use_steps(listed)}: {path}/step-…"
            if listed.checkpoints
            else "name another with --from: the "
            "folder that has the step-… folders, as the nodes see it",
        )
    if lacking := found.missing_without(nodes):
        raise _not_whole(found, lacking, listed, nodes, path)
    return found


def whole_checkpoint(listed: RunCheckpoints, step: WantedStep | None) -> RunCheckpoint:
    """Return the checkpoint of that step, or the newest complete one, to copy or export.

    Raises:
        RefusedError: there is none, or the nodes that answer do not have all of it.
    """
    step = None if step is None else step_of(listed, step)
    wanted = [one for one in listed.checkpoints if step in (None, one.step)]
    found = next((one for one in wanted if one.is_whole), None)
    if found is not None:
        return found
    which = "checkpoint" if step is None else f"checkpoint of step {step}"
    missing = dict.fromkeys(node for one in wanted for node in one.missing_on)
    away = " and ".join(missing or listed.silent)
    raise RefusedError(
        f"run {listed.run} has no {'whole ' if wanted else ''}{which} on nodes that answer",
        kind=Kind.NO_CHECKPOINT,
        fix=f"start {away} again" if away else f"see mntrain checkpoints {listed.run}",
    )


def _not_whole(
    found: RunCheckpoint,
    lacking: dict[str, tuple[int, ...]],
    listed: RunCheckpoints,
    nodes: Collection[str],
    path: str | None = None,
    copies: str | None = None,
) -> RefusedError:
    """Return the error of an incomplete checkpoint: which nodes have the rest, and where copies
    are.

    Args:
        path: a person named it, instead of a run.
    """
    whose = f"of run {listed.run}" if path is None else f"in {path}"
    cause = f"checkpoint {found.step} {whose} is incomplete on these nodes"
    fix = ""
    for holder, ranks in lacking.items():
        numbers = " and ".join(map(str, ranks))
        if holder:
            cause += f"; {holder} has the shards of rank {numbers} and does not take part"
            fix += f"add {holder}: --member {holder}:1. "
        else:
            saved_on = " and ".join(found.missing_on)
            cause += f"; no node that answers has the shards of rank {numbers}"
            cause += f" (saved on {saved_on})" if saved_on else ""
    if away := [node for node in found.missing_on if node in listed.silent]:
        fix += f"start {' and '.join(away)} again. "
    if copies is not None:
        fix += f"{_use_copies(listed, copies)}. "
    older = [one for one in listed.checkpoints if one.age < found.age]
    whole = next((one for one in older if not one.missing_without(nodes)), None)
    if whole is not None:
        older_one = whole.step if path is None else f"{path}/step-{whole.step:08d}"
        fix += f"begin a new run with an older one: --from {older_one}"
    over = "launch it without --from" if path else f"mntrain launch {listed.run}"
    fix = fix.removesuffix(". ") or f"start over: {over}"
    return RefusedError(cause, kind=Kind.NO_CHECKPOINT, fix=fix)


def told_steps(view: JobView) -> int | None:
    """Return a job's total number of steps, as its ranks have reported it."""
    return None if view.loss_line is None else view.loss_line.total_steps


def refuse_finished(view: JobView, steps: int | None, step: int) -> None:
    """Refuse a run that has no steps left.

    Args:
        steps: that it is to make; ``None`` if only its ranks can know.
        step: of the checkpoint.

    Raises:
        SpecError: as told.
    """
    if steps is not None and step >= steps:
        raise SpecError(
            f"run {view.run} has {steps} steps in all, and its checkpoint is of step {step}",
            fix=f"set the total number of steps: --steps {2 * step}",
        )


def origin_of(
    view: JobView, chain: Sequence[JobView], step: int | None, *, branch: bool, path: str | None
) -> Origin:
    """Return the origin of a job that resumes ``view``.

    Args:
        chain: the jobs of its run that are known.
        step: of the checkpoint, if known.
        branch: it begins a run of its own.
        path: of a branch: directory of the checkpoint.
    """
    first = min(chain, key=lambda one: one.attempt.submitted_s)
    reached = last_reached(chain) or None
    return Origin(
        job=view.job_id,
        run=view.run,
        is_branch=branch,
        step=step,
        path=path,
        attempts=0 if branch else max(map(_last_number, chain)),
        world_size=_first_world_size(first),
        reached=step if branch else reached,
    )


def last_reached(chain: Sequence[JobView]) -> int:
    """Return the last step that any job of a run finished; 0 if none."""
    return max((_reached(one) for one in chain), default=0)


def reported_step(chain: Sequence[JobView]) -> int | None:
    """Return the step of the newest reported checkpoint, of the newest job that had one."""
    for view in sorted(chain, key=lambda one: -one.attempt.submitted_s):
        earlier, origin = view.attempt.earlier, view.spec.origin
        for step in (
            view.saved_step,
            earlier.saved_step if earlier else None,
            origin.step if origin else None,
        ):
            if step is not None:
                return step
    return None


def _last_number(view: JobView) -> int:
    """Return the highest attempt number of the run that this job may have used, even on a node
    that does not answer: each restart uses one per node that may lead it.
    """
    most = (1 + view.spec.max_restarts) * len(view.spec.participants)
    return view.spec.run_attempt(max(view.attempt.number, most))


def _first_world_size(view: JobView) -> int:
    if view.spec.origin is not None and view.spec.origin.world_size is not None:
        return view.spec.origin.world_size
    return view.attempt.earlier.world_size if view.attempt.earlier else view.attempt.world_size


def _reached(view: JobView) -> int:
    steps = [rank.step or 0 for part in view.parts for rank in part.ranks]
    earlier = view.attempt.earlier
    return max(*steps, (earlier.step or 0) if earlier else 0, 0)
