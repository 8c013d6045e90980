"""Open files: how many the machine, the agent and the ranks have open, and their limits."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path

from jupyter_mntrain.agent.machine.ports import PROC
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.evidence import OpenFiles


def open_files(ranks: Iterable[tuple[Rank, int]], proc: Path = PROC) -> Iterator[OpenFiles]:
    """Count open files, and read their limits.

    Args:
        ranks: those that live, and their pids.
    """
    used, free, limit = (proc / "sys" / "fs" / "file-nr").read_text().split()
    yield OpenFiles(who="machine", count=int(used) - int(free), limit=int(limit))
    agent = ("agent", os.getpid())
    for who, pid in (agent, *((f"rank {rank}", pid) for rank, pid in ranks)):
        try:
            count = sum(1 for _ in (proc / str(pid) / "fd").iterdir())
            most, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        except OSError:  # it has ended, or is another user's
            continue
        yield OpenFiles(who=who, count=count, limit=most)
