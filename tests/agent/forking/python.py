"""An interpreter of jobs that forks torchrun and its ranks, as those of a session do.

Importing torch takes each of them 2 s of a processor, and the trainer 4 s, many times what most
tests do with it. With ``MNTRAIN_ALL_CASES`` it is the real one.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from jupyter_mntrain.session.forking import server
from jupyter_mntrain.session.forking.client import VARIABLE
from jupyter_mntrain.session.forking.offer import write_interpreter
from tests.searches import runs_all

CLIENT = Path(server.__file__).with_name("client.py")


def forking_python() -> str:
    """One for all tests of a run."""
    if runs_all():
        return sys.executable
    serve_once()
    path = Path(os.environ[VARIABLE]).with_name("python")
    if not path.exists():
        write_interpreter(path, Path(os.environ[VARIABLE]))
    return str(path)


def is_torchrun(command: list[str]) -> bool:
    """Whether a process is a job's torchrun: not the client that stands in its place."""
    return "torch.distributed.run" in command and str(CLIENT) not in command


def serve_once() -> None:
    """Have a server for this process and all that it starts, which ends with it."""
    if VARIABLE in os.environ:
        return
    directory = Path(tempfile.mkdtemp(prefix="mntrain-forking-"))
    address = directory / "socket"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    served = server.start(address, environment)
    os.environ[VARIABLE] = str(address)
    atexit.register(_end, served, directory)


def _end(served: subprocess.Popen[bytes], directory: Path) -> None:
    served.kill()
    served.wait()
    shutil.rmtree(directory)
