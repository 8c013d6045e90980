"""Launchers: variables by which a scheduler, or MPI, tells a process which rank it is. Pure.

A module of its own: the keeper, for whose start every launch waits, loads little else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_OF_A_LAUNCHER = re.compile(
    r"SLURM_(PROCID|LOCALID|NODEID|NTASKS\w*|(STEP_)?(NUM_TASKS|TASKS_PER_NODE)|NPROCS|GTIDS)"
    r"|(PMI|PMIX|PET|OMPI|MPI_LOCALRANKID|MPI_LOCALNRANKS)(_\w+)?|PMI[12]_\w+"
)
"""By these Lightning, Accelerate and MPI take the rank of the process that the scheduler started
for their own, and torchrun the defaults of its options (``PET_…``)."""


def without_launchers(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for torchrun: it does not say that another launcher gave out the ranks."""
    return {
        name: value for name, value in environment.items() if not _OF_A_LAUNCHER.fullmatch(name)
    }
