"""Launchers: variables by which a scheduler or MPI tells a process its rank. Pure.

A module of its own: the supervisor, for whose start every launch waits, loads little else.
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

_STARTED_BY = re.compile(
    r"(SLURM|OMPI|PMI[X12]?|MPI|MV2|MVAPICH|JSM|PALS|HOROVOD|FLUX|BYTEPS|AZ_BATCHAI_TASK)_\w+"
)
_COUNTERPARTS = {
    r"LOCAL\w*(SIZE|NRANKS)|(N?TASKS|PROCESSES)_PER_NODE|NTASKS_PER_NODE": "LOCAL_WORLD_SIZE",
    r"LOCAL": "LOCAL_RANK",
    r"NNODES|NUM_NODES|NODE_NUM": "NNODES",
    r"NODE_?(ID|RANK)": "GROUP_RANK",
    r"NODELIST|IPADDR|NODE_LIST": "MASTER_ADDR",
    r"SIZE|NTASKS|NUM_TASKS|NPROCS|NRANKS": "WORLD_SIZE",
    r"RANK|PROCID": "RANK",
}


def counterpart(name: str) -> str | None:
    """Return torchrun's variable that corresponds to another launcher's."""
    if not _STARTED_BY.fullmatch(name):
        return None
    return next((own for like, own in _COUNTERPARTS.items() if re.search(like, name)), None)


def without_launchers(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without other launchers' variables, for torchrun."""
    return {
        name: value for name, value in environment.items() if not _OF_A_LAUNCHER.fullmatch(name)
    }
