"""Commands of SLURM for tests of what is above its room: one job, in a state that the test says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.standin.training import BEGIN_S

EXPECTED_S = BEGIN_S + 800
"""Ahead of the clock of a test's context."""

_SQUEUE = """\
state=$(cat "$HERE/state")
case $state in
    PENDING) echo "7|PENDING|1795780181|{START}|N/A||Resources|$FOLDER" ;;
    RUNNING) echo "7|RUNNING|1795780181|1795780182|N/A|node[2-3]|None|$FOLDER" ;;
    FORGOTTEN) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1 ;;
    SILENT) echo "Unable to contact slurm controller" >&2; exit 1 ;;
    *) echo "7|$state|1795780181|N/A|N/A||None|$FOLDER" ;;
esac
"""

_SCRIPTS = {
    "sbatch": 'for word; do :; done; [ "$word" = --test-only ] || '
    '{ dirname "$word" > "$HERE/folder"; echo 7; }',
    "squeue": _SQUEUE,
    "scancel": 'echo "$*" >> "$HERE/canceled"; echo CANCELLED > "$HERE/state"',
    "scontrol": 'case "$*" in *hostnames*) printf "node2\\nnode3\\n" ;; *) echo Restarts=0 ;; esac',
    "sinfo": 'printf "node2|allocated\\nnode3|allocated\\n"',
}


class SlurmTools:
    """First in ``$PATH`` from now on.

    Args:
        folder: of the commands.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self._folder = folder
        self.state = "PENDING"
        for name, text in _SCRIPTS.items():
            path = folder / name
            first = f'#!/bin/sh\nHERE="{folder}"; FOLDER=$(cat "$HERE/folder" 2> /dev/null)\n'
            path.write_text(first + text.replace("{START}", str(round(EXPECTED_S))))
            path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    @property
    def state(self) -> str:
        """Of the job, as ``squeue`` names it; FORGOTTEN: SLURM knows it no more; SILENT: its
        controller does not answer.
        """
        return (self._folder / "state").read_text().strip()

    @state.setter
    def state(self, state: str) -> None:
        # As a whole: a command reads it at any time.
        new = self._folder / "new-state"
        new.write_text(state)
        new.replace(self._folder / "state")
