"""Checkpoint directory: ``step-00000100/`` with one shard per rank, the manifest written last.

The directory may be shared by all nodes or local to each: a checkpoint is complete when the ranks
together hold every shard that its manifest lists, so the code does not need to know which it is.
Imports no torch.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.files import SHARED, fsync_directory, write_atomically

MANIFEST = "manifest.json"
FORMAT = 1

_NAME = re.compile(r"step-(\d{8,})")


class Manifest(Record, frozen=True):
    """Contents of a checkpoint; a directory without a manifest is not one.

    Args:
        step: finished steps.
        attempt: number of the attempt that saved it; a resumed attempt may save a step again.
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


class CheckpointDirectory:
    """The checkpoints of one run, as this node sees them.

    Args:
        path: created by the first save.
        attempt: this attempt's number; marks its unfinished saves.
    """

    def __init__(self, path: Path, attempt: int = 1) -> None:
        self.path = path
        self._attempt = attempt

    def manifests(self) -> dict[int, Manifest]:
        """Manifests of the checkpoints published here, by step; unreadable ones are skipped."""
        found = {}
        for folder in self._folders():
            with suppress(OSError, msgspec.MsgspecError):
                manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
                if manifest.format == FORMAT and folder == self.of(manifest.step):
                    found[manifest.step] = manifest
        return found

    def shards(self, manifest: Manifest) -> tuple[int, ...]:
        """Ranks whose complete shard is in this directory."""
        folder = self.of(manifest.step)
        return tuple(
            rank
            for rank, size in enumerate(manifest.shard_bytes)
            if _size(folder / shard_name(rank)) == size
        )

    def of(self, step: int) -> Path:
        return self.path / f"step-{step:08d}"

    def begin(self, step: int) -> Path:
        """Create the hidden directory that the shards of a save are written to."""
        unfinished = self._unfinished(step, self._attempt)
        unfinished.mkdir(parents=True, exist_ok=True)
        return unfinished

    def publish(self, manifest: Manifest) -> None:
        """Turn a finished save into a checkpoint. Every node calls it, shared directory or not."""
        step = manifest.step
        target, unfinished = self.of(step), self._unfinished(step, manifest.attempt)
        content = msgspec.json.encode(manifest)
        if target.is_dir() and unfinished.is_dir():
            # The step was saved before the run resumed earlier, or another node renamed it first.
            self._merge(unfinished, target)
        with suppress(FileNotFoundError):
            # Manifest first, then rename: the checkpoint appears complete.
            write_atomically(unfinished / MANIFEST, content, mode=SHARED)
            unfinished.rename(target)
        write_atomically(target / MANIFEST, content, mode=SHARED)
        fsync_directory(target)
        fsync_directory(self.path)

    def adopt(self, manifest: Manifest) -> None:
        """Publish a save that was interrupted here after another node published it.

        Every shard was complete by then.
        """
        left = self._unfinished(manifest.step, manifest.attempt)
        if manifest.step not in self.manifests() and left.is_dir():
            self.publish(manifest)

    def prune(self, keep: int) -> None:
        """Delete all but the newest ``keep``."""
        for step in sorted(self.manifests())[:-keep]:
            _remove(self.of(step))

    def discard(self, step: int) -> None:
        """Delete an unfinished save of this attempt."""
        shutil.rmtree(self._unfinished(step, self._attempt), ignore_errors=True)

    def clean(self, last: int) -> None:
        """Delete unfinished saves, and checkpoints after the ``last`` step, which was resumed."""
        for left in self.path.glob(".step-*.attempt-*"):
            shutil.rmtree(left, ignore_errors=True)
        for step in self.manifests():
            if step > last:
                _remove(self.of(step))

    def _folders(self) -> list[Path]:
        try:
            return [one for one in self.path.iterdir() if _NAME.fullmatch(one.name)]
        except OSError:
            return []

    def _unfinished(self, step: int, attempt: int) -> Path:
        return self.path / f".step-{step:08d}.attempt-{attempt}"

    @staticmethod
    def _merge(unfinished: Path, target: Path) -> None:
        (target / MANIFEST).unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            for shard in unfinished.iterdir():
                shard.replace(target / shard.name)
        shutil.rmtree(unfinished, ignore_errors=True)


def shard_name(rank: int) -> str:
    return f"rank-{rank}.safetensors"


def _remove(folder: Path) -> None:
    """Delete the manifest first: an interrupted deletion leaves no checkpoint behind."""
    with suppress(OSError):
        (folder / MANIFEST).unlink()
    shutil.rmtree(folder, ignore_errors=True)


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - asked for every shard of every checkpoint
    except OSError:
        return -1
