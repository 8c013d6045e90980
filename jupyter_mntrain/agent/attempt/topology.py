"""Topology line: the first line of every log, with ranks, nodes and network."""

from __future__ import annotations

from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import Attempt, Placement

LOG_TAG = "[mntrain]"
"""Prefix of our lines in a log that torchrun and the ranks write to."""


def topology_line(job_id: JobId, attempt: Attempt) -> str:
    """Format ``[mntrain] job j-… attempt 1: rank 0 on node1 (eth1 10.77.2.1, GPU 0); …``."""
    where = "; ".join(_one(placement) for placement in attempt.placements)
    return (
        f"{LOG_TAG} job {job_id} attempt {attempt.number}: {where}; "
        f"rendezvous at {attempt.master_address}:{attempt.master_port}"
    )


def _one(placement: Placement) -> str:
    ranks = placement.ranks
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]}-{ranks[-1]}"
    gpus = f", {_gpus(placement.gpus)}" if placement.gpus else ""
    return f"{who} on {placement.node} ({placement.interface} {placement.address}{gpus})"


def _gpus(indices: tuple[int, ...]) -> str:
    noun = "GPU" if len(indices) == 1 else "GPUs"
    return f"{noun} {', '.join(str(index) for index in indices)}"
