"""An interpreter of jobs that forks torchrun and its ranks from a process that has imported torch.

Importing torch takes each of them 2 s of a processor, and the trainer 4 s, many times what most
tests do with it. With ``MNTRAIN_ALL_CASES`` it is the real one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.agent.forking.client import VARIABLE
from tests.agent.forking.server import serve_once
from tests.searches import runs_all

CLIENT = Path(__file__).with_name("client.py")

_SCRIPT = f"""#!/bin/sh
if [ "$3" = torch.distributed.run ]; then exec {sys.executable} -IS {CLIENT} "$@"; fi
exec {sys.executable} "$@"
"""


def forking_python() -> str:
    """One for all tests of a run."""
    if runs_all():
        return sys.executable
    serve_once()
    path = Path(os.environ[VARIABLE]).with_name("python")
    if not path.exists():
        made = path.with_suffix(f".{os.getpid()}")
        made.write_text(_SCRIPT)
        made.chmod(0o755)
        made.replace(path)
    return str(path)


def is_torchrun(command: list[str]) -> bool:
    """Whether a process is a job's torchrun: not the client that stands in its place."""
    return "torch.distributed.run" in command and str(CLIENT) not in command
