"""Offers a session's forkserver to jobs, as an interpreter."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

from jupyter_mntrain.session.forking import client, server
from jupyter_mntrain.telemetry.session_socket import forking_python, forkserver_socket

_SCRIPT: Final = """#!/bin/sh
{variable}={address}
export {variable}
case " $* " in *" -m torch.distributed.run "*) exec {python} -IS {client} "$@" ;; esac
exec {python} "$@"
"""


def offer_forks(metrics: Path) -> subprocess.Popen[bytes]:
    """Start a forkserver, and write the interpreter that uses it.

    Args:
        metrics: folder of the attempt's metrics.
    """
    path = forking_python(metrics)
    path.parent.mkdir(parents=True, exist_ok=True)
    address = forkserver_socket(metrics)
    with path.with_name("forkserver.log").open("wb") as log:
        started = server.start(address, os.environ, is_ahead=True, log=log.fileno())
    write_interpreter(path, address)
    return started


def write_interpreter(path: Path, address: Path) -> None:
    """Write a script that is called like Python.

    Args:
        address: of the forkserver's socket.
    """
    made = path.with_suffix(f".{os.getpid()}")
    made.write_text(
        _SCRIPT.format(
            variable=client.VARIABLE,
            address=shlex.quote(str(address)),
            python=shlex.quote(sys.executable),
            client=shlex.quote(client.__file__),
        )
    )
    made.chmod(0o700)
    made.replace(path)
