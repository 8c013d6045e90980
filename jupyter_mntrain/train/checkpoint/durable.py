"""Durable copies: a second copy of each checkpoint, in a directory that all nodes share."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory, shard_name
from jupyter_mntrain.model.environment import RUN_ATTEMPT_VARIABLE
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.checkpoint import Manifest
from jupyter_mntrain.recipe.sections import CheckpointSection, Recipe
from jupyter_mntrain.telemetry.progress import ProgressWriter
from jupyter_mntrain.train.checkpoint.export import DESCRIPTION
from jupyter_mntrain.train.checkpoint.neighbors import PIECE_BYTES, refuse_to_fill, sync
from jupyter_mntrain.train.checkpoint.places import copies_of, unwritable
from jupyter_mntrain.train.world import World, agree, gathered

# Proved copies: files that are read back from the disk they were written to.


def copy_proved(source: Path, target: Path, size_bytes: int, copied: Callable[[int], None]) -> None:
    """Copy a file, and compare the copy on disk with what was read.

    Args:
        size_bytes: that it must have.
        copied: told the bytes of each piece.

    Raises:
        OSError: it cannot be copied, differs, or has another size.
    """
    digest = hashlib.sha256()
    with source.open("rb") as old, target.open("wb") as new:
        while piece := old.read(PIECE_BYTES):
            digest.update(piece)
            new.write(piece)
            copied(len(piece))
    sync(target)
    with target.open("rb") as new:
        os.posix_fadvise(new.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # read the disk, not memory
        if hashlib.file_digest(new, "sha256").digest() != digest.digest():
            raise OSError(f"{target} differs from {source} after copying")
    found = target.stat().st_size
    if found != size_bytes:
        raise OSError(f"{target} has {found:,} bytes, and its manifest says {size_bytes:,}")


def copy_description(source: Path, target: Path) -> None:
    """Copy config and tokenizer, which exporting and generating from a copy need.

    Args:
        source, target: directories of checkpoints.
    """
    with suppress(OSError):  # the checkpoint is whole without
        shutil.copytree(source / DESCRIPTION, target / DESCRIPTION, dirs_exist_ok=True)


# Durable copies: each checkpoint once more, in a directory that all nodes share.
#
# It is written in the background, from the shards on disk, so training goes on. The manifest comes
# last, once every rank's shard is proved.


FIELD = "checkpoint.copy_to"

LOOK_INTERVAL_S = 0.5
"""Interval of looking whether a copy to checkpoint.copy_to has ended, at the end of a run."""
# Limit within which a new file of one node has to appear on the others, in checkpoint.copy_to.
SEEN_WITHIN_S = 60.0
"""A network file system shows a new file to other nodes after some seconds."""


class DurableCopies:
    """Copies this rank's shards of the newest complete checkpoint, one checkpoint at a time.

    Args:
        source: the checkpoints of the run on this node.
        target: those on durable storage.
        say: prints a line to the job's log.
    """

    def __init__(
        self,
        world: World,
        source: CheckpointDirectory,
        target: CheckpointDirectory,
        say: Callable[[str], None],
    ) -> None:
        self._world = world
        self._source = source
        self.target = target
        self._say = say
        self._section = CheckpointSection()
        self._now: Manifest | None = None
        self._next: Manifest | None = None
        """The checkpoint to copy after the current one."""
        self._error: str | None = None
        self._thread: threading.Thread | None = None
        self._copied_bytes = 0
        self._cast = self._counted = self._cast_before = 0
        """Votes so far, and those from before this copy began, which do not count for it."""
        self._still_copying = 0.0

    @property
    def step(self) -> int | None:
        """The step of the checkpoint that is being copied; the same on every rank."""
        return None if self._now is None else self._now.step

    @property
    def is_copying(self) -> bool:
        """Whether this rank is still copying its shard."""
        return self._thread is not None and self._thread.is_alive()

    def vote(self) -> bool:
        """Return this rank's vote in a step's all-reduce: whether it is still copying."""
        self._cast += 1
        return self.is_copying

    def count(self, still_copying: float) -> None:
        """Take the sum of all ranks' votes, which on a GPU arrives one step late."""
        self._counted += 1
        self._still_copying = still_copying

    @property
    def is_over(self) -> bool:
        """Whether all ranks have finished copying, by the votes counted so far."""
        is_known = self._counted > self._cast_before
        return self._now is not None and is_known and not self._still_copying

    def begin(self, manifest: Manifest, section: CheckpointSection) -> None:
        """Start to copy a complete checkpoint, or queue it behind the one that is being copied.

        Args:
            section: tells how many are kept.
        """
        self._section = section
        if self._now is not None:
            self._next = manifest
            return
        self._now, self._error, self._copied_bytes = manifest, None, 0
        self._cast_before = self._cast
        self._thread = threading.Thread(
            target=self._copy, args=(manifest,), name="durable copy", daemon=True
        )
        self._thread.start()

    def finish(self) -> None:
        """Wait for the copy, publish it, and start the next one. Collective, at the same step.

        An error such as a full disk is logged, and training goes on.
        """
        manifest, thread = self._now, self._thread
        if manifest is None or thread is None:
            return
        thread.join()
        self._now = self._thread = None
        told = gathered(self._world, self._error and f"{self._world.host}: {self._error}")
        error = next((one for one in told if one), None)
        if self._world.is_head:
            self._conclude(manifest, error)
        following, self._next = self._next, None
        if following is not None:
            self.begin(following, self._section)

    def begin_missing(self, manifest: Manifest, section: CheckpointSection) -> None:
        """Copy the checkpoint that the run resumes from, if the last attempt did not. Collective.

        Only where each rank has its own shard of it on its node.
        """
        has_shard = manifest.world_size == self._world.size
        has_shard &= self._world.rank in self._source.shards(manifest)
        is_copied = self._world.is_head and manifest.step in self.target.manifests()
        told = gathered(self._world, (has_shard, is_copied))
        if all(has for has, _ in told) and not told[0][1]:
            self.begin(manifest, section)

    def close(self, progress: ProgressWriter, most_s: float) -> None:
        """Wait until the newest checkpoint is copied. Collective.

        Args:
            progress: receives that of the copy: a slow disk takes minutes.
            most_s: waits no longer; a resumed run copies what is missing.
        """
        until, copying = monotonic() + most_s, "copying the checkpoint"
        while (manifest := self._now) is not None:
            size = manifest.shard_bytes[self._world.rank]
            told = gathered(self._world, (self.is_copying, monotonic() > until))
            progress(copying, self._copied_bytes if self.is_copying else size, size, "B")
            if not any(is_copying for is_copying, _ in told):
                self.finish()
            elif told[0][1]:
                if self._world.is_head:
                    self._say(f"step {manifest.step} is not copied yet: a resumed run copies it")
                return
            else:
                sleep(LOOK_INTERVAL_S)

    def _copy(self, manifest: Manifest) -> None:
        name, step = shard_name(self._world.rank), manifest.step
        size = manifest.shard_bytes[self._world.rank]
        try:
            folder = self.target.begin(step)
            refuse_to_fill(folder, size)
            copy_proved(self._source.of(step) / name, folder / name, size, self._tally)
        except Exception as trouble:  # noqa: BLE001 - all ranks must learn of any error
            self._error = str(trouble) or type(trouble).__name__

    def _tally(self, copied_bytes: int) -> None:
        self._copied_bytes += copied_bytes

    def _conclude(self, manifest: Manifest, error: str | None) -> None:
        """Publish the copy, or remove what was written of it."""
        if error is None:
            try:
                self.target.publish(manifest)
                self.target.prune(self._section.keep, self._section.keep_best)
                copy_description(self._source.path, self.target.path)
            except OSError as trouble:
                error = f"{self._world.host}: {trouble}"
        if error is None:
            self._say(f"copied step {manifest.step} to {self.target.path}")
            return
        self.target.discard(manifest.step)
        self._say(str(_not_copied(manifest.step, error)))


def durable_copies(
    world: World,
    recipe: Recipe,
    source: CheckpointDirectory,
    say: Callable[[str], None],
    environment: Mapping[str, str],
) -> DurableCopies | None:
    """Return this run's durable copies; ``None`` if the recipe names no place for them. Collective.

    Raises:
        RecipeError: a node cannot write there, or has another directory there. A later attempt of a
            run goes on without copies then.
    """
    path = copies_of(recipe, environment)
    if path is None:
        return None
    attempt = int(environment.get(RUN_ATTEMPT_VARIABLE, "1"))
    try:
        refuse_separate(world, path)
    except RecipeError as error:  # the same on every rank
        if attempt == 1:
            raise
        if world.is_head:
            say(f"nothing is copied in this attempt: {error}")
        return None
    target = CheckpointDirectory(path, attempt)
    if world.is_head:
        target.clean_unfinished()
        if _is_same_disk(path, source.path):
            say(
                f"{path} is on the same disk as the checkpoints of this node: copies would be lost "
                "with it"
            )
    return DurableCopies(world, source, target, say)


def _is_same_disk(path: Path, other: Path) -> bool:
    with suppress(OSError):
        return path.stat().st_dev == other.stat().st_dev
    return False


def refuse_separate(world: World, path: Path) -> None:
    """Check that all nodes see the same directory. Collective.

    Raises:
        RecipeError: a node cannot write there, or does not see what another wrote.
    """
    agree(world, unwritable(path, "copy checkpoints", FIELD))
    name = gathered(world, secrets.token_hex(8))[0]
    mark = path / f".seen-{name}"
    error = None
    if world.is_head:
        try:
            mark.touch()
        except OSError as trouble:
            error = RecipeError(f"cannot copy checkpoints: {trouble}", fix=_FIX)
    agree(world, error)
    try:
        agree(world, None if _appears(mark) else _separate(world, path))
    finally:
        if world.is_head:
            mark.unlink(missing_ok=True)


def _appears(mark: Path) -> bool:
    until = monotonic() + SEEN_WITHIN_S
    while not mark.exists():
        if monotonic() > until:
            return False
        sleep(0.1)
    return True


def _separate(world: World, path: Path) -> RecipeError:
    cause = f"{FIELD}: {path} on {world.host} is not the directory that rank 0 has there"
    return RecipeError(cause, fix=_FIX)


def _not_copied(step: int, error: str) -> Problem:
    return Problem(
        kind=Kind.ERROR,
        cause=f"step {step} could not be copied: {error}. Training continues",
        fix=f"check free space and permissions of {FIELD} on that node",
    )


_FIX = f"mount the same folder there on all nodes, or leave {FIELD} out"
