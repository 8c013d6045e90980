"""SLURM commands: runs them as the user, in the C locale and with a timeout."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.sources.slurm.queue_line import TIME_FORMAT
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
