"""Background saving: copies tensors between two steps and writes them in a thread.

A checkpoint is complete once every rank's shard is on disk. Ranks find that out in the all-reduce
that every step does anyway, so no rank waits for another's disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory, shard_name
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.failure.system_errors import told_of
from jupyter_mntrain.model.records.checkpoint import Manifest, RunFigures
from jupyter_mntrain.train.checkpoint.checksums import checksum
from jupyter_mntrain.train.checkpoint.copies.neighbors import Neighbors, refuse_to_fill, sync
from jupyter_mntrain.train.checkpoint.saves.staging import staging
from jupyter_mntrain.train.world import World, gathered


class _Written(Record, frozen=True):
    """Result of one rank's part of a save."""

    host: str
    size_bytes: int = 0
    error: str | None = None
    checksum: str = ""


def _not_saved(step: int, error: str) -> Problem:
    return Problem(
        kind=Kind.ERROR,
        cause=f"step {step} could not be saved: {error}. Training continues",
        fix="check free space and permissions of checkpoint.directory on that node",
    )


@dataclass
class Saver:
    """Saves one rank's state, one step at a time.

    Args:
        directory: on this node; may be shared with the others.
        keep: number of checkpoints to keep.
        keep_best: number of the best ones to keep, too.
        copies: 2 = each shard also goes to the next node.
        attempt: number of this attempt.
        digests, recipe, figures: for the manifest; figures are the head's.
        say: prints one line per save.
        used: the step of a checkpoint that is being read, and stays for now.
    """

    directory: CheckpointDirectory
    world: World
    keep: int
    copies: int
    attempt: int
    digests: dict[str, str]
    say: Callable[[str], None]
    recipe: dict[str, Any] | None = None
    figures: RunFigures | None = None
    keep_best: int = 0
    used: int | None = None
    _step: int | None = None
    _loss: float | None = None
    _written: _Written | None = None
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        self._hosts = tuple(gathered(self.world, self.world.host))
        self._staging = staging(self.world.device)
        self._neighbors = Neighbors(self.world, self._hosts) if self.copies > 1 else None

    @property
    def is_pending(self) -> bool:
        """Whether a save is in progress: the same on every rank at every step."""
        return self._step is not None

    @property
    def is_writing(self) -> bool:
        """Whether this rank is still writing its own part."""
        return self._written is None and self.is_pending

    def begin(
        self, step: int, tensors: Mapping[str, torch.Tensor], evaluation_loss: float | None = None
    ) -> None:
        """Copy the state to host memory and write it in the background.

        Args:
            step: finished steps.
            evaluation_loss: after them, if it was measured.
        """
        copies = self._staging.copies(tensors)
        self._step, self._written, self._loss = step, None, evaluation_loss
        self._thread = threading.Thread(
            target=self._write, args=(step, copies), name="checkpoint", daemon=True
        )
        self._thread.start()

    def finish(self) -> Manifest | None:
        """Wait for the save in progress; return its manifest, or ``None`` if it failed.

        Collective, at the same step. An error such as a full disk is logged, and training continues
        with the previous checkpoint.
        """
        step = self._step
        if step is None or self._thread is None:
            return None
        self._thread.join()
        parts: list[_Written] = [_Written(host="")] * self.world.size
        dist.all_gather_object(parts, self._written)
        self._step = self._thread = None
        error = next((f"{part.host}: {part.error}" for part in parts if part.error), None)
        manifest = self._manifest(step, parts)
        if error is None:
            error = self._publish(manifest)
        if self.world.is_head:
            size = sum(part.size_bytes for part in parts)
            self.say(
                str(_not_saved(step, error))
                if error is not None
                else f"saved step {step}, {size / 1e6:,.1f} MB"
            )
        if error is not None and self.world.local_rank == 0:
            self.directory.discard(step)
        return manifest if error is None else None

    def _manifest(self, step: int, parts: Sequence[_Written]) -> Manifest:
        return Manifest(
            step=step,
            attempt=self.attempt,
            shard_bytes=tuple(part.size_bytes for part in parts),
            checksums=tuple(part.checksum for part in parts),
            digests=self.digests,
            hosts=self._hosts,
            recipe=self.recipe,
            evaluation_loss=self._loss,
            figures=gathered(self.world, self.figures)[0],
        )

    def _publish(self, manifest: Manifest) -> str | None:
        """Publish on every node; return why it failed on any, or ``None``."""
        problem: str | None = None
        if self.world.local_rank == 0:
            try:
                self.directory.publish(manifest)
                self.directory.prune(self.keep, self.keep_best, used=self.used)
            except OSError as error:
                problem = f"{self.world.host}: {told_of(error)}"
        return next((one for one in gathered(self.world, problem) if one), None)

    def _write(self, step: int, tensors: dict[str, torch.Tensor]) -> None:
        error, size_bytes, path, summed = None, 0, None, ""
        try:
            folder = self.directory.begin(step)
            refuse_to_fill(folder, sum(tensor.nbytes for tensor in tensors.values()))
            path = folder / shard_name(self.world.rank)
            save_file(tensors, path)
            sync(path)
            size_bytes, summed = path.stat().st_size, checksum(path)
        except Exception as trouble:  # noqa: BLE001 - all ranks must learn of any error
            words = told_of(trouble) if isinstance(trouble, OSError) else str(trouble)
            error = words or type(trouble).__name__
        if self._neighbors is not None:
            # Also after an error: the neighbors wait.
            folder_of = partial(self.directory.begin, step)
            error = self._neighbors.exchange(path if error is None else None, folder_of) or error
        self._written = _Written(self.world.host, size_bytes, error, summed)
