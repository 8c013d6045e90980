"""No wait: a background process waits for the nodes of a launch."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Final

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.files import private_directory
from jupyter_mntrain.sources.awaited_launch import launch_log
from jupyter_mntrain.verbs.verb import Context

TAKES_OVER: Final = "MNTRAIN_TAKES_OVER"
"""Environment variable for that process: the cluster of the requested allocation."""

_NOT_PASSED_ON: Final = ("--no-wait", "--json", "--traceback")


def refuse_cell(context: Context) -> None:
    """Refuse a job in a cell, which a background process does not have.

    Raises:
        SpecError: the job is in a cell.
    """
    if context.cell is not None:
        fix = "write it into a file with %%writefile, or omit --no-wait"
        raise SpecError("--no-wait cannot launch a cell", fix=fix)


def leave_waiting(context: Context, args: Namespace, cluster: str) -> Path:
    """Start a process that waits for the nodes, launches and ends. Return the path of its log.

    Args:
        cluster: of the allocation that was asked for.
    """
    log = launch_log(cluster)
    private_directory(log.parent)
    words = [word for word in args.words if word not in _NOT_PASSED_ON]
    given = ["--", *context.arguments] if context.arguments else []
    command = [sys.executable, "-P", "-m", "jupyter_mntrain.cli", "launch", *words, "--detach"]
    with log.open("w") as said:
        subprocess.Popen(  # it outlives this process
            [*command, *given],
            cwd=context.directory,
            env={**os.environ, TAKES_OVER: cluster},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    return log
