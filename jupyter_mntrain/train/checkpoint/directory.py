"""Checkpoint directory: ``step-00000100/`` with one shard per rank, the manifest written last.

The directory may be shared by all nodes or be each node's own. A checkpoint is complete when the
ranks together hold every shard that its manifest names, so nobody needs to know which it is.
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
from jupyter_mntrain.model.files import fsync_directory, write_atomically

MANIFEST = "manifest.json"
FORMAT = 1

_NAME = re.compile(r"step-(\d{8,})")


class Manifest(Record, frozen=True):
    """What makes a directory a checkpoint.

    Args:
        step: steps that are done.
        attempt: that saved it. A run that went back to an earlier step may save this one again.
        shard_bytes: size of each rank's shard, by rank.
        digests: of what must be the same for the run to go on: model, batches.
        hosts: that each rank ran on, for people.
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
        path: made when the first one is begun.
        attempt: tells this attempt's unfinished saves from those another left behind.
    """

    def __init__(self, path: Path, attempt: int = 1) -> None:
        self.path = path
        self._attempt = attempt

    def manifests(self) -> dict[int, Manifest]:
        """Of every checkpoint that was published here, by step; what is no manifest is none."""
        found = {}
        for folder in self._folders():
            with suppress(OSError, msgspec.MsgspecError):
                manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
                if manifest.format == FORMAT and folder == self.of(manifest.step):
                    found[manifest.step] = manifest
        return found

    def shards(self, manifest: Manifest) -> tuple[int, ...]:
        """Ranks whose whole shard lies here."""
        folder = self.of(manifest.step)
        return tuple(
            rank
            for rank, size in enumerate(manifest.shard_bytes)
            if _size(folder / shard_name(rank)) == size
        )

    def of(self, step: int) -> Path:
        return self.path / f"step-{step:08d}"

    def begin(self, step: int) -> Path:
        """Where the shards of a save are written until all of them are there."""
        unfinished = self._mine(step)
        unfinished.mkdir(parents=True, exist_ok=True)
        return unfinished

    def publish(self, manifest: Manifest) -> None:
        """Make an unfinished save a checkpoint. Every node does it, also in a shared directory."""
        target, unfinished = self.of(manifest.step), self._unfinished(manifest)
        content = msgspec.json.encode(manifest)
        if target.is_dir() and unfinished.is_dir():
            # Of a run that was further once and has gone back, or a node that renamed it before us.
            self._merge(unfinished, target)
        with suppress(FileNotFoundError):
            # All of it appears at once.
            write_atomically(unfinished / MANIFEST, content)
            unfinished.rename(target)
        write_atomically(target / MANIFEST, content)
        fsync_directory(target)
        fsync_directory(self.path)

    def adopt(self, manifest: Manifest) -> None:
        """Finish what was cut off here after another node had published it: every shard was whole
        by then.
        """
        if manifest.step not in self.manifests() and self._unfinished(manifest).is_dir():
            self.publish(manifest)

    def prune(self, keep: int) -> None:
        """Delete all but the newest ``keep``."""
        for step in sorted(self.manifests())[:-keep]:
            _remove(self.of(step))

    def discard(self, step: int) -> None:
        """Give up a save."""
        shutil.rmtree(self._mine(step), ignore_errors=True)

    def clean(self, last: int) -> None:
        """Delete what was not finished, and what lies beyond the ``last`` step gone on from."""
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

    def _unfinished(self, of: Manifest) -> Path:
        return self.path / f".step-{of.step:08d}.attempt-{of.attempt}"

    def _mine(self, step: int) -> Path:
        return self._unfinished(Manifest(step=step, attempt=self._attempt, shard_bytes=()))

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
    """The manifest first: what is left of it is no checkpoint."""
    with suppress(OSError):
        (folder / MANIFEST).unlink()
    shutil.rmtree(folder, ignore_errors=True)


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - asked for every shard of every checkpoint
    except OSError:
        return -1
