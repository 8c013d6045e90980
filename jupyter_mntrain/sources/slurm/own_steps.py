"""Job steps: agents in a job that the user already has, such as one of ``salloc``."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from jupyter_mntrain.model.errors import RefusedError, SpecError, shortened
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.sources.slots import SAVE_FILE
from jupyter_mntrain.model.sources.source import (
    Allocation,
    AllocationState,
    NodesRequest,
    Slot,
    SlotCommand,
    Waiting,
)
from jupyter_mntrain.sources.slurm.batch_script import (
    ALIVE,
    CODE,
    HELD,
    HOSTS,
    LOG,
    SCRIPT,
    step_id,
    step_script,
)
from jupyter_mntrain.sources.slurm.folders import AllocationFolders, told_in
from jupyter_mntrain.sources.slurm.queue_line import HeldNodes, QueueLine, allocation_of
from jupyter_mntrain.sources.slurm.slurm_options import BEFORE, HERE, JOBID, NAME
from jupyter_mntrain.sources.slurm.slurm_queue import (
    SlurmCommands,
    SlurmQueue,
    StepLine,
    unknown_job,
)

PATIENCE_S = 40.0
"""Grace for agents in a job of a person's own to end once their nodes are given back; then SLURM
ends their step. Longer than agents take to end ranks."""
SILENCE_S = 60.0
"""Silence of the script that starts them, which tells every 2 s that it runs, after which it has
been killed, if SLURM lists no step of it either. Clocks of machines may differ by some of it."""

_CURRENT = "SLURM_JOB_ID"
_START = 'setsid bash "$1" < /dev/null > "$2" 2>&1 &'
"""The script outlives whoever starts it."""
_STOPPED = ("SUSPENDED", "STOPPED")
"""States of a stopped job, whose steps continue when it does."""


class OwnSteps:
    """Starts agents as a step of the user's own job, and ends only that step, never the job.

    An allocation's id is the job's number and the name of the step, which is that of its folder.
    """

    def __init__(
        self, folders: AllocationFolders, commands: SlurmCommands, queue: SlurmQueue
    ) -> None:
        self._folders = folders
        self._commands = commands
        self._queue = queue

    async def usual_nodes(self, request: NodesRequest) -> int:
        """Return the number of nodes that the job holds."""
        return len(await self._queue.expanded((await self._held_line(request)).nodes))

    async def check(self, request: NodesRequest) -> None:
        job = job_of(request)
        line = await self._held_line(request)
        if (has := len(await self._queue.expanded(line.nodes))) < request.nodes:
            cause = f"job {job} holds {has} nodes, not {request.nodes}"
            fix = f"use --nodes {has}, or leave --nodes out"
            raise RefusedError(cause, kind=Kind.SCHEDULER_REFUSED, fix=fix)

    def render(self, request: NodesRequest, command: SlotCommand, folder: Path) -> str:
        return step_script(request, command, folder, job_of(request), PATIENCE_S)

    async def submit(self, request: NodesRequest, command: SlotCommand) -> Allocation:
        line = await self._held_line(request)
        steps = await self._queue.steps(line.job)
        folder = self._folders.place(request)
        self._folders.make(folder, self.render(request, command, folder), command)
        try:
            (folder / HELD).write_text(_of(line))
            (folder / ALIVE).touch()
            words = ["bash", "-c", _START, "bash", str(folder / SCRIPT), str(folder / LOG)]
            await self._commands.run(words)
        except BaseException:
            self._folders.remove_unused(folder)
            raise
        return self._begins(step_id(line.job, folder.name), request, steps)

    async def look(self, allocation_id: str, request: NodesRequest) -> Allocation:
        folder = self.directory(allocation_id, request)
        job, _, name = allocation_id.partition("/")
        code = told_in(folder / CODE)
        if not (folder / HELD).exists():  # it was given back
            runs = not code and _named(name, await self._queue.steps(job))
            state: AllocationState = "ending" if runs else "ended"
            return _allocation(allocation_id, request, state, outcome="canceled")
        if code == "0":
            return _allocation(allocation_id, request, "ended", outcome="done")
        line = await self._queue.line(job)
        if line.is_pending and line.state not in _STOPPED:
            return _taken(allocation_id, request, line)
        if _of(line) != told_in(folder / HELD):
            raise unknown_job(job)  # another one has its number now
        if not line.is_running:
            return await self._ended_with_job(allocation_id, request, line)
        if code:
            return _failed(allocation_id, request, folder)
        steps = await self._queue.steps(job)
        if not (ours := _named(name, steps)):
            if _is_silent(folder):
                return _failed(allocation_id, request, folder)
            if any(told_in(folder / HOSTS / slot) for slot in request.slots):
                return _allocation(allocation_id, request, "ending")
            return self._begins(allocation_id, request, steps)
        now = allocation_of(line, request, await self._nodes(ours[0], request, folder))
        return msgspec.structs.replace(now, id=allocation_id)

    def directory(self, allocation_id: str, request: NodesRequest) -> Path:
        """Return the folder of an allocation.

        Raises:
            RefusedError: no submission of this request has made it.
        """
        _, _, name = allocation_id.partition("/")
        folder = self._folders.root / name
        if not name or not self._folders.is_ours(folder, request):
            raise unknown_job(allocation_id)
        return folder

    async def save(self, allocation_id: str, request: NodesRequest) -> None:
        (self.directory(allocation_id, request) / SAVE_FILE).touch()

    async def give_back(self, allocation_id: str, request: NodesRequest) -> None:
        folder = self.directory(allocation_id, request)
        if not folder.exists():
            return  # it was given back before
        job, _, name = allocation_id.partition("/")
        # What has not begun does not; what the agents leave running, the script ends.
        (folder / HELD).unlink(missing_ok=True)
        self._folders.remove_secrets(folder)
        for one in _named(name, await self._queue.steps(job)):
            await self._queue.cancel("--signal=TERM", one.step, job=job)
        self._folders.remove_unused(folder)

    async def _held_line(self, request: NodesRequest) -> QueueLine:
        """Read the queue line of the job that the user names.

        Raises:
            SpecError: the request says how nodes are to be that are there already.
            RefusedError: it holds no nodes, or is somebody else's.
        """
        job = job_of(request)
        others = [f"--{name}" for name in request.options if name not in (JOBID, BEFORE)]
        others += [] if request.time_s is None else ["--time"]
        if others:
            cause = f"{', '.join(others)}: the nodes of --{JOBID} are granted already"
            raise SpecError(cause, fix=f"leave it out, or leave --{JOBID} out to get other nodes")
        line = await self._queue.line(job)
        if line.job != job:
            cause = f"--{JOBID}: SLURM calls job {job} {line.job}"
            fix = "use one of salloc, or of sbatch without --array; no task of an array or het job"
            if line.job.isdigit():
                fix = f"use --{JOBID} {line.job}"
        elif not line.is_running:
            cause = f"job {job} holds no nodes: SLURM says {line.state}"
            fix = "wait until it runs; squeue shows your jobs"
        elif await self._queue.owner(job) not in ("", str(os.getuid())):
            cause = f"job {job} is another user's"
            fix = "use a job of your own: squeue --user $USER shows them"
        else:
            return line
        raise RefusedError(cause, kind=Kind.SCHEDULER_REFUSED, fix=fix)

    async def _ended_with_job(
        self, allocation_id: str, request: NodesRequest, line: QueueLine
    ) -> Allocation:
        """Return the state of a step that ended with its job. A step never comes back, even if its
        job is requeued.
        """
        history = (await self._queue.history(line.job))._replace(restarts=0)
        now = allocation_of(line, request, history)
        # SLURM gives no cause: whoever has the job ends it.
        is_unexplained = now.state == "ending" and now.outcome is None
        outcome = "canceled" if is_unexplained else now.outcome
        return msgspec.structs.replace(now, id=allocation_id, outcome=outcome)

    def _begins(
        self, allocation_id: str, request: NodesRequest, steps: Sequence[StepLine]
    ) -> Allocation:
        """Return the state of an allocation whose step does not run yet.

        Args:
            steps: of its job.
        """
        job, _, name = allocation_id.partition("/")
        others = [one for one in steps if one.name != name and self._is_begun(one.name)]
        cause = f"its agents begin as a step of job {job}"
        if others:
            cause += ", and share its nodes with mntrain's step "
            cause += ", ".join(f"{one.step} ({one.name})" for one in others)
        waiting = Waiting("None", Problem(Kind.WAITS_FOR_NODES, cause))
        return _allocation(allocation_id, request, "pending", waiting=waiting)

    def _is_begun(self, name: str) -> bool:
        """Return whether a step of this name is one of ours."""
        return "/" not in name and (self._folders.root / name / HELD).is_file()

    async def _nodes(self, step: StepLine, request: NodesRequest, folder: Path) -> HeldNodes:
        hosts = {name: told_in(folder / HOSTS / name) for name in request.slots}
        return HeldNodes(
            hosts={name: host for name, host in hosts.items() if host},
            allocated=await self._queue.expanded(step.nodes),
            states=await self._queue.states(step.nodes),
        )


def is_step_id(allocation_id: str) -> bool:
    """Return whether an allocation is a step of the user's own job."""
    return "/" in allocation_id


def job_of(request: NodesRequest) -> str:
    """Return the number of the job that the user names.

    Raises:
        SpecError: it is none, or this process is in no job.
    """
    said = request.option(JOBID)
    if said == HERE:
        if not (job := os.environ.get(_CURRENT, "")):
            cause = f"--{JOBID} {HERE}: this process is not in a SLURM job"
            raise SpecError(cause, fix="start it in a shell of salloc, or give a job's number")
        return job
    if not (said.isascii() and said.isdigit()):
        cause = f"--{JOBID}: {shortened(said)!r} is not the number of a job"
        raise SpecError(cause, fix=f"write a number that squeue shows, or {HERE} inside of a job")
    return said


def _of(line: QueueLine) -> str:
    """Return an id that distinguishes a job from a later one with the same number."""
    return f"{line.job} {line.submitted_s or 0:.0f}"


def _allocation(
    allocation_id: str, request: NodesRequest, state: AllocationState, **facts: object
) -> Allocation:
    slots = tuple(Slot(name) for name in request.slots)
    now = Allocation(allocation_id, NAME, state, slots)
    return msgspec.structs.replace(now, **facts)


def _named(name: str, steps: Sequence[StepLine]) -> tuple[StepLine, ...]:
    return tuple(one for one in steps if one.name == name)


def _is_silent(folder: Path) -> bool:
    """Return whether a step's script was killed: it touches a file as long as it runs."""
    try:
        return time.time() - (folder / ALIVE).stat().st_mtime > SILENCE_S
    except OSError:
        return False  # it was made by an earlier version


def _taken(allocation_id: str, request: NodesRequest, line: QueueLine) -> Allocation:
    """Return the state of an allocation whose job was requeued, or replaced by another job with its
    number.
    """
    cause = f"job {line.job} no longer holds its nodes: SLURM says {line.state}"
    problem = Problem(Kind.NODES_TAKEN, cause=cause, fix=fix_of(Kind.NODES_TAKEN))
    return _allocation(allocation_id, request, "ended", outcome="failed", problem=problem)


def _failed(allocation_id: str, request: NodesRequest, folder: Path) -> Allocation:
    said = told_in(folder / LOG).splitlines()
    cause = f"the step of its agents has failed: {shortened(said[-1]) if said else 'no reason'}"
    fix = fix_of(Kind.NOT_STARTED, "allocation", folder=str(folder))
    problem = Problem(Kind.NOT_STARTED, cause=cause, fix=fix)
    return _allocation(allocation_id, request, "ended", outcome="failed", problem=problem)
