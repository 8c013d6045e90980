"""Places: where a run's checkpoints are on a node. A run is a chain of jobs that continue one
another and share their checkpoints.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TypeVar

from jupyter_mntrain.model.ids import JobId

P = TypeVar("P", bound=PurePath)

RUNS = "runs"
"""Directory next to that of the jobs."""
CHECKPOINTS = "checkpoints"


def checkpoints_of_run(jobs: P, run: JobId) -> P:
    """Return the default checkpoint directory of a run on a node.

    Args:
        jobs: the directory of the node's jobs.
    """
    return jobs.parent / RUNS / run / CHECKPOINTS
