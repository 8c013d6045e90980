"""Guard: kills a job whose driver dies without a chance to, as by SIGKILL or out of memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from jupyter_mntrain.model.ids import JobId

_WAIT: Final = 'read -r over || exec "$@"'
"""A shell's program: costs nothing as long as the pipe that it reads has a writer."""


@contextmanager
def guarded(job_id: JobId, cluster: str, addresses: Sequence[str]) -> Iterator[None]:
    """Have a process in a session of its own kill the job if this process dies in the block.

    Where none can be started, nothing guards it.
    """
    agents = [word for address in addresses for word in ("--agent", address)]
    program = (sys.executable, "-P", "-m", "jupyter_mntrain.cli", "--cluster", cluster, *agents)
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _WAIT, "mntrain", *program, "kill", job_id],
            cwd=os.sep,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError):
            process.communicate(b"over\n")
