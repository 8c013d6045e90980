"""Checkpoint directory of a run: ``step-00000100/`` with a shard per rank, the manifest last.

The directory may be shared by all nodes or local to each: a checkpoint is complete when the ranks
together hold every shard that its manifest lists, so the code does not need to know which it is.
Imports no torch.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from contextlib import suppress
from itertools import count
from pathlib import Path

import msgspec

from jupyter_mntrain.model.files import SHARED, fsync_directory, write_atomically
from jupyter_mntrain.model.records.checkpoint import (
    FORMAT,
    HeldCheckpoint,
    Manifest,
    UnfinishedSave,
    best_first,
)

MANIFEST = "manifest.json"
ASIDE = "damaged-"
"""Prefix of the folder's name of a checkpoint that was put aside."""
PINNED = "pinned"
"""Empty file in a checkpoint that is never pruned."""

_SEAL = re.compile(rb',"seal":"([0-9a-f]+)"}$')
_NAME = re.compile(r"step-(\d{8,})")
_UNFINISHED = re.compile(r"\.step-(?P<step>\d{8,})\.attempt-(?P<attempt>\d+)")
_SHARD = re.compile(r"rank-(?P<rank>\d+)\.safetensors")


class CheckpointDirectory:
    """The directory with one run's checkpoints, as this node sees it.

    Args:
        path: created by the first save.
        attempt: this attempt's number in the run; marks its unfinished saves.
    """

    def __init__(self, path: Path, attempt: int = 1) -> None:
        self.path = path
        self._attempt = attempt

    def manifests(self) -> dict[int, Manifest]:
        """Return the manifests of the published checkpoints, by step; unreadable ones
        are skipped.
        """
        found = {}
        for folder in self._folders():
            with suppress(OSError, ValueError, msgspec.MsgspecError):
                manifest = _unsealed((folder / MANIFEST).read_bytes())
                if manifest.format == FORMAT and folder == self.of(manifest.step):
                    found[manifest.step] = manifest
        return found

    def shards(self, manifest: Manifest) -> tuple[int, ...]:
        """Return the ranks whose complete shard is in this directory."""
        folder = self.of(manifest.step)
        return tuple(
            rank
            for rank, size in enumerate(manifest.shard_bytes)
            if _size(folder / shard_name(rank)) == size
        )

    def of(self, step: int) -> Path:
        return self.path / f"step-{step:08d}"

    def begin(self, step: int) -> Path:
        """Create the hidden directory into which the shards of a save are written."""
        unfinished = self._unfinished(step, self._attempt)
        unfinished.mkdir(parents=True, exist_ok=True)
        return unfinished

    def publish(self, manifest: Manifest) -> None:
        """Publish a finished save as a checkpoint. Every node calls it, even in a
        shared directory.
        """
        step = manifest.step
        target, unfinished = self.of(step), self._unfinished(step, manifest.attempt)
        content = _sealed(manifest)
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

    def prune(self, keep: int, keep_best: int = 0, *, used: int | None = None) -> None:
        """Delete old checkpoints, except the newest ``keep`` and the ``keep_best`` with the lowest
        evaluation losses. Pinned ones stay, and do not count.

        Args:
            used: the step of one that is being read, which stays for now.
        """
        manifests = self.manifests()
        free = [step for step in sorted(manifests) if not self.is_pinned(step)]
        best = best_first(manifests[step] for step in free)[:keep_best]
        for step in free[:-keep]:
            if manifests[step] not in best and step != used:
                self.remove(step)

    def remove(self, step: int) -> None:
        """Delete a checkpoint, its manifest first, so that an interruption leaves no checkpoint
        behind.
        """
        folder = self.of(step)
        with suppress(OSError):
            (folder / MANIFEST).unlink()
        shutil.rmtree(folder, ignore_errors=True)

    def is_pinned(self, step: int) -> bool:
        return (self.of(step) / PINNED).exists()

    def pin(self, step: int, *, is_pinned: bool) -> None:
        """Pin a checkpoint, which keeps it from being pruned, or unpin it.

        Raises:
            OSError: it cannot be written.
        """
        mark = self.of(step) / PINNED
        if is_pinned:
            mark.touch()
        else:
            mark.unlink(missing_ok=True)

    def discard(self, step: int) -> None:
        """Delete an unfinished save of this attempt."""
        shutil.rmtree(self._unfinished(step, self._attempt), ignore_errors=True)

    def clean_unfinished(self) -> None:
        """Delete the unfinished saves of all attempts."""
        for left in self.path.glob(".step-*.attempt-*"):
            shutil.rmtree(left, ignore_errors=True)

    def unreadable(self) -> dict[int, str]:
        """Return what is wrong with the manifests of unusable checkpoints with shards here, by
        step.

        An interrupted deletion leaves the same; then there is a newer checkpoint.
        """
        known, found = self.manifests(), {}
        for folder in self._folders():
            step = step_in(folder.name)
            if step is not None and step not in known and any(folder.glob("rank-*")):
                is_there = (folder / MANIFEST).exists()
                found[step] = f"its {MANIFEST} " + ("cannot be read" if is_there else "is missing")
        return found

    def clean(self, last: int) -> dict[int, tuple[Path, str]]:
        """Delete unfinished saves, and rename checkpoints after the resumed step ``last``: they are
        incomplete, or the run has continued from before them.

        Returns:
            By step, where they are now, and what is wrong with the manifest or with the sizes of
            the shards that are here, if anything is.
        """
        self.clean_unfinished()
        aside = {}
        for step, manifest in self.manifests().items():
            if step > last and not self.is_pinned(step):
                wrong = self._wrong_shards(manifest)
                if (path := self._put_aside(step)) is not None:
                    aside[step] = path, wrong
        for step, wrong in self.unreadable().items():
            if step > last and (path := self._put_aside(step)) is not None:
                aside[step] = path, wrong
        return aside

    def _wrong_shards(self, manifest: Manifest) -> str:
        folder, found = self.of(manifest.step), []
        for rank, size in enumerate(manifest.shard_bytes):
            here = _size(folder / shard_name(rank))
            if here not in (size, -1):
                found.append(f"{shard_name(rank)} has {here:,} of {size:,} bytes")
        return "; ".join(found)

    def _put_aside(self, step: int) -> Path | None:
        """Rename a checkpoint so that no run resumes from it; ``None`` if another node has done so.

        Nodes may do this at the same time: nothing is deleted to free the name.
        """
        folder = self.of(step)
        for number in count():
            path = folder.with_name(f"{ASIDE}{folder.name}" + f".{number}" * (number > 0))
            try:
                folder.rename(path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    return None
            else:
                return path
        raise AssertionError

    def held(self) -> tuple[HeldCheckpoint, ...]:
        """Return the checkpoints published here, oldest first."""
        found = []
        for manifest in sorted(self.manifests().values(), key=lambda one: one.age):
            with suppress(OSError):  # it is being deleted
                saved_s = (self.of(manifest.step) / MANIFEST).stat().st_mtime
                is_pinned = self.is_pinned(manifest.step)
                shards = self.shards(manifest)
                found.append(HeldCheckpoint(manifest, shards, saved_s, is_pinned))
        return tuple(found)

    def unfinished(self) -> tuple[UnfinishedSave, ...]:
        """Return the saves that were interrupted here or are being written."""
        found = []
        for folder in self.path.glob(".step-*"):
            if not (name := _UNFINISHED.fullmatch(folder.name)):
                continue
            sizes = {}
            for shard in folder.glob("rank-*"):
                if rank := _SHARD.fullmatch(shard.name):
                    sizes[int(rank["rank"])] = _size(shard)
            found.append(UnfinishedSave(int(name["step"]), int(name["attempt"]), sizes))
        return tuple(found)

    def other_bytes(self) -> int:
        """Return the size of everything here that is not a checkpoint."""
        total = 0
        for folder, names, files in os.walk(self.path):
            if Path(folder) == self.path:
                names[:] = [one for one in names if not one.lstrip(".").startswith("step-")]
            total += sum(max(0, _size(Path(folder, name))) for name in files)
        return total

    def _folders(self) -> list[Path]:
        try:
            return [one for one in self.path.iterdir() if _NAME.fullmatch(one.name)]
        except OSError:
            return []

    def _unfinished(self, step: int, attempt: int) -> Path:
        return self.path / f".step-{step:08d}.attempt-{attempt}"

    @staticmethod
    def _merge(unfinished: Path, target: Path) -> None:
        """Move a save's shards into a checkpoint that another node has published.

        Several nodes may do so at once: each moves what is still there, and none deletes a shard
        that another has not moved yet.
        """
        (target / MANIFEST).unlink(missing_ok=True)
        names: list[str] = []
        with suppress(FileNotFoundError):
            names = [one.name for one in unfinished.iterdir() if _SHARD.fullmatch(one.name)]
        for name in names:
            with suppress(FileNotFoundError):
                (unfinished / name).replace(target / name)
        shutil.rmtree(unfinished, ignore_errors=True)


def _sealed(manifest: Manifest) -> bytes:
    """Encode a manifest for its file: the last field is a hash of everything before it."""
    content = msgspec.json.encode(manifest)
    return content[:-1] + b',"seal":"%b"}' % _hash(content)


def _unsealed(content: bytes) -> Manifest:
    """Decode a manifest's file, and check its hash, which old versions did not write.

    Raises:
        ValueError, msgspec.MsgspecError: it is not what was written.
    """
    manifest = msgspec.json.decode(content, type=Manifest)
    seal = _SEAL.search(content)
    if seal is None:
        # Whoever writes the file again may space or order it in another way.
        is_written = not manifest.checksums and b'"seal"' not in content
    else:
        is_written = seal[1] == _hash(content[: seal.start()] + b"}")
    if not is_written:
        raise ValueError("it is not what was written")
    return manifest


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).hexdigest().encode()


def step_in(name: str) -> int | None:
    """Return the step in a checkpoint folder's name; ``None`` if it is no such name."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def shard_name(rank: int) -> str:
    return f"rank-{rank}.safetensors"


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - asked for every shard of every checkpoint
    except OSError:
        return -1
