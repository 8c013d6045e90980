"""SLURM's queue: asks about jobs, their steps and their nodes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.sources.slurm.queue_line import (
    NODES_FORMAT,
    QUEUE_FORMAT,
    TIME_FORMAT,
    HeldNodes,
    QueueLine,
    history_of,
    node_states,
    queue_line,
)
from jupyter_mntrain.sources.slurm.refusals import no_slurm

ANSWER_S = 30.0
"""Timeout for an answer of a command of SLURM. A busy controller takes seconds."""

_PREFIXES = ("SBATCH_", "SQUEUE_", "SINFO_", "SCANCEL_")
"""Variables of a person's that would change what the commands do or how they print."""
_OF_SLURM = "SLURM_"
_WHICH_SLURM = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT")
"""All others describe the job that this process is in, if it is in one: what it submits would take
them for its own.
"""


class CommandResult(NamedTuple):
    """Exit code and output of a command."""

    code: int
    output: str
    complaint: str


class SlurmCommands:
    """Runs SLURM's commands.

    Args:
        environment: of the commands: which SLURM is asked.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        own = os.environ if environment is None else environment
        self._environment = {
            name: value
            for name, value in own.items()
            if name in _WHICH_SLURM or not name.startswith((*_PREFIXES, _OF_SLURM))
        }
        self._environment |= {"LC_ALL": "C", "SLURM_TIME_FORMAT": TIME_FORMAT}

    async def run(self, words: Sequence[str], *, text: str = "") -> CommandResult:
        """Run one command to its end.

        Args:
            text: on its standard input.

        Raises:
            RefusedError: there is no such command here, or it does not end.
        """
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=pipe, stdout=pipe, stderr=pipe, env=self._environment
            )
        except OSError:
            raise no_slurm(words[0]) from None
        try:
            output, complaint = await asyncio.wait_for(
                process.communicate(text.encode()), timeout=ANSWER_S
            )
        except TimeoutError:
            raise RefusedError(
                f"{words[0]} has not answered within {ANSWER_S:g} s",
                kind=Kind.NO_SCHEDULER,
                fix="try again; if scontrol ping says DOWN, ask the administrators",
            ) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        code = process.returncode or 0
        return CommandResult(
            code, output.decode(errors="replace"), complaint.decode(errors="replace")
        )


_STEPS_FORMAT = "%i|%N|%j"
"""Number, nodes, name. Only the last may have a bar."""
_NO_JOB = "Invalid job id"


class StepLine(NamedTuple):
    """A running step.

    Args:
        step: as ``scancel`` takes it: ``4711.3``.
        nodes: in SLURM's short form.
    """

    step: str
    nodes: str
    name: str


class SlurmQueue:
    """Asks SLURM about jobs and nodes."""

    def __init__(self, commands: SlurmCommands) -> None:
        self._commands = commands
        self._hosts: dict[str, tuple[str, ...]] = {}

    async def line(self, job: str) -> QueueLine:
        """Return the queue line of a job.

        Raises:
            RefusedError: it knows no such job any more, or does not answer.
        """
        words = ["squeue", "-h", "-t", "all", "-j", job, "-o", QUEUE_FORMAT]
        said = await self._commands.run(words)
        line = queue_line(said.output)
        if line is None:
            raise unknown_job(job, said.complaint)
        return line

    async def owner(self, job: str) -> str:
        """Return the user id of a job's owner; empty if unknown."""
        words = ["squeue", "-h", "-t", "all", "-j", job, "-o", "%U"]
        return (await self._commands.run(words)).output.partition("\n")[0].strip()

    async def history(self, job: str) -> HeldNodes:
        """Return how often a job was requeued, and whether it was preempted or signaled."""
        words = ["scontrol", "--oneliner", "show", "job", job]
        return history_of((await self._commands.run(words)).output)

    async def steps(self, job: str) -> tuple[StepLine, ...]:
        """Return the running steps of a job.

        Raises:
            RefusedError: it does not answer, which says nothing of them.
        """
        words = ["squeue", "-h", "-s", "-j", job, "-o", _STEPS_FORMAT]
        said = await self._commands.run(words)
        if said.code and _NO_JOB not in said.complaint:
            why = " ".join(said.complaint.split()) or f"squeue ended with code {said.code}"
            raise _no_answer(job, why)
        found = [line.strip().split("|", 2) for line in said.output.splitlines()]
        lines = [StepLine(*fields) for fields in found if len(fields) == len(StepLine._fields)]
        return tuple(one for one in lines if is_step(one.step, job))

    async def states(self, nodes: str) -> dict[str, str]:
        """Return the states of nodes by name."""
        words = ["sinfo", "-h", "-N", "-n", nodes, "-o", NODES_FORMAT]
        return node_states((await self._commands.run(words)).output)

    async def expanded(self, nodes: str) -> tuple[str, ...]:
        """Expand a short list of nodes, like ``node[1-3]``, into names in SLURM's order."""
        if nodes not in self._hosts:
            said = await self._commands.run(["scontrol", "show", "hostnames", nodes])
            self._hosts[nodes] = tuple(said.output.split())
        return self._hosts[nodes]

    async def cancel(self, *words: str, job: str) -> None:
        """Run ``scancel`` to end or signal a job or a step.

        Raises:
            RefusedError: it did not.
        """
        said = await self._commands.run(["scancel", *words])
        if said.code:
            raise unknown_job(job, said.complaint)


def is_step(text: str, job: str) -> bool:
    """Return whether this is a number of a step of the job, which ``scancel`` takes for nothing
    else.
    """
    number, dot, step = text.partition(".")
    return bool(dot) and number == job and step.isascii() and step.isdigit()


def unknown_job(job: str, complaint: str = "") -> RefusedError:
    """Make the error for a job that SLURM does not know or give information on."""
    told = " ".join(complaint.split())
    if _NO_JOB in told or not told:
        return RefusedError(
            f"SLURM no longer knows job {job}",
            kind=Kind.SCHEDULER_REFUSED,
            fix="it ended a while ago; its record says how: mntrain jobs",
        )
    return _no_answer(job, told)


def _no_answer(job: str, told: str) -> RefusedError:
    return RefusedError(
        f"SLURM does not say how job {job} is: {told}",
        kind=Kind.NO_SCHEDULER,
        fix="try again; if scontrol ping says DOWN, ask the administrators",
    )
