"""Checkpoint records: what a run has saved, and which of it a node has."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import JobId

FORMAT = 1


class Manifest(Record, frozen=True):
    """Contents of a checkpoint; a directory without a manifest is not one.

    Args:
        step: finished steps.
        attempt: number in its run of the attempt that saved it; a resumed attempt may save a step
            again.
        shard_bytes: size of each rank's shard, by rank.
        digests: hashes of what must be unchanged to resume: model, batches.
        hosts: node of each rank, for messages.
    """

    step: int
    attempt: int
    shard_bytes: tuple[int, ...]
    digests: dict[str, str] = {}
    hosts: tuple[str, ...] = ()
    format: int = FORMAT

    @property
    def world_size(self) -> int:
        return len(self.shard_bytes)

    @property
    def age(self) -> tuple[int, int]:
        """Sorts checkpoints of a run, the newest last. The attempt counts first: after a restart
        from step 400, the step 600 of the attempt before is of the past, even if a node that was
        away brings it back.
        """
        return self.attempt, self.step


class HeldCheckpoint(Record, frozen=True):
    """A checkpoint, as one node has it.

    Args:
        shards: ranks whose complete shard is here.
        saved_s: Unix time by this node's clock.
        is_pinned: it is not deleted to make room for newer ones.
    """

    manifest: Manifest
    shards: tuple[int, ...]
    saved_s: float
    is_pinned: bool = False

    @property
    def size_bytes(self) -> int:
        return sum(self.manifest.shard_bytes[rank] for rank in self.shards)


class UnfinishedSave(Record, frozen=True):
    """A save that was interrupted here; if another node published it, it counts.

    Args:
        shard_bytes: by rank.
    """

    step: int
    attempt: int
    shard_bytes: dict[int, int]


class NodeCheckpoints(Record, frozen=True):
    """What one node has of a run.

    Args:
        directory: the run's checkpoint directory on the node.
        other_bytes: size of what else is in it: a script's own checkpoints, the model, curves.
    """

    run: JobId
    directory: str
    checkpoints: tuple[HeldCheckpoint, ...] = ()
    unfinished: tuple[UnfinishedSave, ...] = ()
    other_bytes: int = 0
