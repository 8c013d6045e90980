"""Stand-in for SLURM with one job that a person has already: its commands, as scripts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SCRIPTS = {
    "squeue": """\
case "$*" in
    *" -s "*) [ ! -e deaf ] && cat steps ;;
    *%U) cat owner ;;
    *) echo "$(cat job)" ;;
esac
""",
    "scontrol": 'case "$*" in *hostnames*) printf "node2\\nnode3\\n" ;; *) cat history ;; esac',
    "sinfo": 'printf "node2|mixed\\nnode3|mixed\\n"',
    "scancel": 'echo "$*" >> canceled; : > steps',
    "srun": """\
[ "$1" = --help ] && { echo "    --overlap   Allow other steps"; exit; }
trap 'touch told' TERM
echo "$PPID" > script
echo "$*" > started
for try in $(seq 1200); do [ -e end ] && exit "$(cat end)"; sleep 0.05; done
""",
}


class Slurm:
    """Commands of SLURM that know one job, 7, of two nodes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self.folder = folder
        for name, text in SCRIPTS.items():
            (folder / name).write_text(f"#!/bin/sh\ncd {folder}\n{text}")
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        self.tells("owner", str(os.getuid()))
        self.tells("history", "Restarts=0")
        self.tells("steps", "")
        self.is_job("RUNNING")

    def tells(self, file: str, text: str) -> None:
        (self.folder / file).write_text(text)

    def is_job(self, state: str, submitted: int = 100, job: str = "7") -> None:
        self.tells("job", f"{job}|{state}|{submitted}|101|9000|node[2-3]|None|/home/me/project")

    @property
    def canceled(self) -> list[str]:
        path = self.folder / "canceled"
        return path.read_text().splitlines() if path.exists() else []
