"""Prints the processes on this node that belong to one of the jobs named as arguments."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from jupyter_mntrain.model.environment import JOB_VARIABLE, NODE_VARIABLE

MARK = "mntrain-acceptance-sweep "


def main(ids: list[str]) -> None:
    if os.environ.get("LOCAL_RANK") != "0":
        return
    wanted = set(ids)
    found = [
        {"pid": int(folder.name), "job_id": job, "name": name_of(folder)}
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and (job := job_of(folder)) in wanted
    ]
    told = {"node": os.environ.get(NODE_VARIABLE, ""), "found": found}
    sys.stdout.write(MARK + msgspec.json.encode(told).decode() + "\n")


def job_of(folder: Path) -> str:
    """Return the job id of a process; empty for a process of another user, which is no job's."""
    try:
        variables = (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    begin = f"{JOB_VARIABLE}=".encode()
    return next((one[len(begin) :].decode() for one in variables if one.startswith(begin)), "")


def name_of(folder: Path) -> str:
    try:
        return (folder / "comm").read_text().strip()
    except OSError:
        return ""


if __name__ == "__main__":
    main(sys.argv[1:])
