"""Light python: an interpreter of jobs whose torchrun is light, for tests of agents."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.agent import imported
from tests.searches import runs_all

LIGHT = Path(__file__).with_name("light_torchrun.py")

_SCRIPT = f"""#!/bin/sh
if [ "$3" = torch.distributed.run ]; then shift 3; exec {sys.executable} {LIGHT} "$@"; fi
exec {sys.executable} "$@"
"""


def write_light_python(path: Path) -> str:
    """Make it there, whole also for those that run it already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(_SCRIPT)
    made = Path(file.name)
    made.chmod(0o755)
    made.replace(path)
    return str(path)


def light_python() -> str:
    """One for all tests of a run; the real one where all cases are asked for."""
    if runs_all():
        return sys.executable
    imported.serve_once()
    path = Path(os.environ["XDG_CACHE_HOME"]) / "mntrain-tests" / "python"  # tests/conftest.py
    return str(path) if path.exists() else write_light_python(path)


def is_torchrun(command: list[str]) -> bool:
    """Whether a process is torchrun, the real one or the light one."""
    return "torch.distributed.run" in command or str(LIGHT) in command
