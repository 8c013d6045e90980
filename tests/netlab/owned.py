"""Labs that end with the process that made them, even if that process is killed."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
from collections.abc import Iterator

import psutil

from tests.netlab.lab import ROOT, Lab

_number = itertools.count(1)


@contextlib.contextmanager
def own_lab(count: int) -> Iterator[Lab]:
    """A lab of this process's own, whatever other processes and people have; gone afterwards."""
    clean_stale()
    lab = Lab(count, f"lab{os.getpid()}x{next(_number)}")
    # Before anything else is made: a lab that is half made when its owner is killed goes as well.
    lab.directory.mkdir(parents=True)
    owner = psutil.Process()
    (lab.directory / "owner").write_text(json.dumps([owner.pid, owner.create_time()]))
    try:
        yield lab.up()
    finally:
        lab.down()


def clean_stale() -> list[str]:
    """Take away labs whose owner is gone, as after a killed test run; their prefixes.

    A person's own lab has no owner and stays.
    """
    ROOT.mkdir(parents=True, exist_ok=True)
    cleaned = []
    with (ROOT / "lock").open("w") as lock:
        # Two test runs that begin together would take the same lab away twice.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for owner in ROOT.glob("*/owner"):
            if not _is_alive(owner.read_text()):
                Lab(0, owner.parent.name).down()
                cleaned.append(owner.parent.name)
    return cleaned


def _is_alive(owner: str) -> bool:
    try:
        pid, started = json.loads(owner)
        return bool(psutil.Process(pid).create_time() == started)
    except (ValueError, psutil.NoSuchProcess):
        return False
