"""Job deletion: what a deletion frees on a node, and what stays."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record


class JobDeletion(Record, frozen=True):
    """What the deletion of a job deletes on one node.

    Args:
        size_bytes: of its record, samples and logs.
        is_last_of_run: no other job of its run is known here.
        checkpoints: directory of the run's checkpoints, if this is its last job and has any.
    """

    node: str
    directory: str
    size_bytes: int
    is_last_of_run: bool
    checkpoints: str = ""
    checkpoints_bytes: int = 0
