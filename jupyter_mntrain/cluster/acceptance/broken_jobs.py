"""Broken jobs: one is killed and resumes, another one competes for its nodes and fails."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from jupyter_mntrain.cluster.acceptance.programs import failing
from jupyter_mntrain.cluster.acceptance.trial_jobs import (
    CLEANUP_S,
    TrialJobs,
    program_spec,
    with_steps,
)
from jupyter_mntrain.cluster.job import Job
from jupyter_mntrain.metrics.acceptance.acceptance_report import (
    FaultKind,
    GangTrial,
    InducedFault,
    ResumedRun,
)
from jupyter_mntrain.model.errors import MntrainError, NodeError, RefusedError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec, JobView
from jupyter_mntrain.model.records.number import Number


def last_place(view: JobView) -> tuple[str, int]:
    """Return the node and number of the last rank, which the faults hit."""
    place = view.attempt.placements[-1]
    return place.node, place.ranks[-1]


def rank_steps(view: JobView) -> list[int]:
    """Return the newest step of each rank."""
    return [rank.step or 0 for part in view.parts for rank in part.ranks]


def told(view: JobView) -> Problem | None:
    """Return the problem that a driver sees when an attempt fails or stalls."""
    waits = view.restart.waits_for if view.restart else None
    own = (part.problem for part in view.parts if part.problem is not None)
    return view.problem or view.stall or next(own, None) or waits


def watched(jobs: TrialJobs, job: Job, fault: InducedFault, attempt: int) -> InducedFault:
    """Watch an attempt from its failure until the next attempt makes new steps.

    Args:
        fault: says what was done, and where.
        attempt: that it was done to.
    """
    said: list[Problem] = []

    def is_told() -> bool:
        view = job.view()
        found = told(view) if view.attempt.number == attempt else None
        if found is not None:
            said.append(found)
        return bool(said) or view.attempt.number > attempt or view.state in TERMINAL

    begun = jobs.until(is_told, f"waiting to be told: {fault.kind}")
    if begun is None or not said:
        return msgspec.structs.replace(fault, detect_s=begun)

    def goes_on() -> bool:
        view = job.view()
        # Evidence of other nodes, which arrives later, may name another place.
        if view.attempt.number == attempt and (newer := told(view)) is not None:
            said.append(newer)
        if view.state in TERMINAL:
            return view.attempt.number > attempt
        before = view.resumed_step or 0
        return view.attempt.number > attempt and min(rank_steps(view), default=0) > before

    rest = jobs.until(goes_on, f"waiting for new steps: {fault.kind}")
    return msgspec.structs.replace(
        fault,
        detect_s=begun,
        recover_s=None if rest is None else begun + rest,
        said=said[-1],
    )


def begun_fault(job: Job, kind: FaultKind) -> InducedFault:
    """Return a record of a fault of the job's last rank, yet without its times."""
    node, rank = last_place(job.view())
    return InducedFault(kind=kind, node=node, rank=rank, job_id=job.id)


SCRIPT_FAULTS: tuple[tuple[FaultKind, str], ...] = (
    ("rank-frozen", "frozen"),
    ("torchrun-killed", "torchrun"),
)
"""Faults of the script, one in each of its attempts."""


MOMENT_S: Final = 3.0
"""Longer than all nodes take to say whether they give a lease."""


class BrokenJob:
    """A training job on all nodes, from its launch to its end.

    Args:
        spec: the same as of the unbroken run, except for its checkpoints.
        unbroken: what that run was, if it started: what was chosen for it holds here, too. By what
            has been measured since, this one would get a plan of its own.
    """

    def __init__(
        self, jobs: TrialJobs, spec: JobSpec, steps: int, unbroken: JobSpec | None
    ) -> None:
        self._jobs, self._steps = jobs, steps
        if unbroken is not None:
            spec = program_of(spec).chosen_as_for(unbroken)
        saving = with_steps(spec, steps, saves_every=max(1, steps // 4))
        name = f"{spec.name}-broken"
        self._spec = msgspec.structs.replace(saving, name=name, max_restarts=1)
        self._job: Job | None = None

    @property
    def job(self) -> Job:
        if self._job is None:
            raise NodeError("the job to be interrupted did not start", fix="see its log")
        return self._job

    def start(self) -> GangTrial:
        """Launch it, and wait for the first step of every rank."""
        wanted = self._spec.world_size
        begun_s = time.monotonic()
        try:
            job = self._job = self._jobs.launch(self._spec)
        except MntrainError as error:
            return GangTrial(wanted=wanted, problem=error.problem)

        def moves() -> bool:
            steps = rank_steps(job.view())
            return (len(steps) == wanted and min(steps) > 0) or job.state in TERMINAL

        self._jobs.until(moves, "waiting for the first step of every rank")
        took_s = time.monotonic() - begun_s
        ranks = sum(step > 0 for step in rank_steps(job.view()))
        problem = job.view().problem
        first_s = took_s if ranks == wanted else None
        return GangTrial(first_step_s=first_s, ranks=ranks, wanted=wanted, problem=problem)

    def kill_a_rank(self) -> InducedFault:
        """Kill its last rank once it has saved a checkpoint and made more steps; watch
        it resume.
        """
        job = self.job
        fault = begun_fault(job, "rank-killed")

        def has_saved() -> bool:
            view = job.view()
            saved = view.saved_step
            steps = rank_steps(view)
            return view.state in TERMINAL or (saved is not None and min(steps, default=0) > saved)

        self._jobs.until(has_saved, "waiting for a checkpoint")
        assert fault.rank is not None  # noqa: S101 - begun_fault sets it
        try:
            job.kill_rank(fault.rank)
        except MntrainError as error:
            return msgspec.structs.replace(fault, problem=error.problem)
        return watched(self._jobs, job, fault, attempt=1)

    def resumption(self, unbroken: Job) -> ResumedRun:
        """Wait for its end, and compare its losses with those of the uninterrupted run."""
        job = self.job
        found = ResumedRun(job_id=job.id, reference=unbroken.id)
        try:
            self._jobs.ended(job, "waiting for the end of the run that was resumed")
        except MntrainError as error:
            return msgspec.structs.replace(found, problem=error.problem)
        saved = job.view().resumed_step
        kept = {one.step: one for one in job.checkpoints().checkpoints}
        newest = kept.get(max(kept, default=0))
        return msgspec.structs.replace(
            compared(found, sums_of(unbroken), sums_of(job), saved),
            shards=newest.world_size if newest else 0,
            missing=len(newest.missing) if newest else 0,
        )


class StepSums(NamedTuple):
    """Loss and gradient norm of a step, summed over all ranks."""

    loss: Number
    grad_norm: Number | None = None


def compared(
    found: ResumedRun,
    unbroken: Mapping[int, StepSums],
    resumed: Mapping[int, StepSums],
    saved_step: int | None,
) -> ResumedRun:
    """Compare the losses of steps after the checkpoint, to the last bit.

    Where they differ, the gradient norms tell since when: a step's loss often rounds the same.
    """
    both = sorted(step for step in unbroken.keys() & resumed.keys() if step > (saved_step or 0))
    pairs = [(step, unbroken[step], resumed[step]) for step in both]
    largest = (abs(float(one.loss) - float(other.loss)) for _, one, other in pairs)
    return msgspec.structs.replace(
        found,
        saved_step=saved_step,
        compared=len(both),
        different=tuple(step for step, one, other in pairs if one.loss != other.loss),
        different_norms=tuple(
            step for step, one, other in pairs if one.grad_norm != other.grad_norm
        ),
        largest_difference=max(largest, default=0.0),
    )


def sums_of(job: Job) -> dict[int, StepSums]:
    """Return the sums of every step that the newest attempt of an ended job made."""
    history = job.wait_for_history(CLEANUP_S)
    steps = (one for series in history.ranks.values() for one in series.steps)
    return {one.step: StepSums(one.loss, one.grad_norm) for one in steps if one.loss is not None}


class HeldLeases:
    """The most leases that were held for longer than an attempt to start holds them."""

    def __init__(self) -> None:
        self.most = 0
        self._since_s: float | None = None

    def see(self, count: int, now_s: float) -> None:
        if not count:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now_s
        elif now_s - self._since_s > MOMENT_S:
            self.most = max(self.most, count)


def began_after(later: JobView, earlier: JobView) -> bool:
    """Whether, on each node, the later job began after the earlier one had ended, by its clock."""
    ended = {one.node_id: one.ended_s for one in earlier.parts}
    times = [(one.started_s, ended.get(one.node_id)) for one in later.parts]
    return all(began and end and began >= end for began, end in times)


class Rival:
    """A script on all nodes that competes for the GPUs and ports of another job.

    Args:
        like: the other job's spec.
        has_faults: whether it fails once in each way that a script can.
    """

    def __init__(self, jobs: TrialJobs, like: JobSpec, *, has_faults: bool) -> None:
        self._jobs = jobs
        self._faults = SCRIPT_FAULTS if has_faults else ()
        spec = program_spec(failing, [word for _, word in self._faults], like)
        self._spec = msgspec.structs.replace(spec, max_restarts=len(self._faults), on_stall="abort")
        self._job: Job | None = None

    def contend(self, other: Job, trial: GangTrial) -> GangTrial:
        """Launch it while the other job runs, then queue it until the other job has ended."""
        jobs = self._jobs
        port = other.view().attempt.master_port
        spec = msgspec.structs.replace(self._spec, port=port)
        refused = None
        try:
            jobs.end(jobs.launch(spec))
        except RefusedError as error:
            refused = error.problem
        rest = jobs.until(lambda: not jobs.leases(but=[other.id]), "counting leases", CLEANUP_S)
        held = jobs.leases(but=[other.id]) if rest is None else 0
        rival = self._job = jobs.launch(spec, is_queued=True)
        watch = HeldLeases()

        def is_over() -> bool:
            watch.see(jobs.leases(of=[rival.id]), time.monotonic())
            return other.state in TERMINAL

        jobs.until(is_over, "a second job waits for the first one's end")
        after_s = jobs.until(
            lambda: (
                all(one.started_s for one in rival.view().parts) and rival.view().attempt.number
            ),
            "waiting for the second job's start",
        )
        return msgspec.structs.replace(
            trial,
            refused=refused,
            held=max(held, watch.most),
            waited=began_after(rival.view(), other.view()),
            started_after_s=after_s,
        )

    def fail(self) -> tuple[InducedFault, ...]:
        """Watch it fail and restart, once for each kind of fault; launch it unless it
        was queued.
        """
        if self._job is None:
            self._job = self._jobs.launch(self._spec)
        job, jobs, found = self._job, self._jobs, []
        for attempt, (kind, _) in enumerate(self._faults, start=1):

            def is_there(attempt: int = attempt) -> bool:
                view = job.view()
                is_later = view.attempt.number > attempt or view.state in TERMINAL
                steps = rank_steps(view)
                at_it = min(steps, default=0) >= failing.FAILS_AT
                return is_later or (view.attempt.number == attempt and at_it)

            jobs.until(is_there, f"waiting for the moment to fail: {kind}")
            found.append(watched(jobs, job, begun_fault(job, kind), attempt))
        jobs.ended(job, "waiting for the end of the script")
        return tuple(found)
