"""Beginning: the checkpoint that an attempt goes on from, the newest of its run or another's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory, shard_name
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.environment import RESUME_FROM_VARIABLE, RESUME_STEP_VARIABLE
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.train.checkpoint.checksums import Checksums
from jupyter_mntrain.train.checkpoint.resuming import FoundCheckpoint, find_newest
from jupyter_mntrain.train.world import World


class Beginning(Record, frozen=True):
    """A complete checkpoint and the directory that has it."""

    directory: CheckpointDirectory
    found: FoundCheckpoint


def begin_checksums(world: World, own: Path | None) -> Checksums:
    """Begin those that :func:`find_beginning` is going to need, as far as that can be foreseen.

    Args:
        own: the run's directory.
    """
    sums = Checksums()
    directory = None if own is None else CheckpointDirectory(own)
    manifests = {} if directory is None else directory.manifests()
    if directory is not None and manifests:
        newest = max(manifests.values(), key=lambda one: one.age)
        here = directory.shards(newest)
        # A rank reads its own. What others do not have is read by the first that has it.
        mine = here if world.rank not in here and world.is_head else {world.rank} & {*here}
        for shard in mine if newest.checksums else ():
            sums.begin(directory.of(newest.step) / shard_name(shard))
    return sums


def find_beginning(
    world: World,
    own: CheckpointDirectory,
    environment: Mapping[str, str],
    copies: CheckpointDirectory | None = None,
    say: Callable[[str], None] = lambda _line: None,
    checksums: Checksums | None = None,
) -> Beginning | None:
    """Find the checkpoint to go on from; ``None`` to begin at step 1. Collective.

    It is the newest of the run, or a durable copy of it where nodes have lost their own. A run that
    began with another's checkpoint goes back to that one only while it has none of its own.

    Args:
        own: the run's directory.
        copies: the run's directory on durable storage.
        say: prints a line to the job's log.
        environment: says what was promised to a person who resumed a job.
        checksums: of :func:`begin_checksums`.

    Raises:
        RecipeError: what was promised is not there, or there are checkpoints of which none is
            complete. Starting over would delete them.
    """
    origin, told = environment.get(RESUME_FROM_VARIABLE), environment.get(RESUME_STEP_VARIABLE)
    promised = int(told) if told else None
    step = promised if origin is None else None
    begin = _newest(world, own, copies, step, say, checksums)
    found = None if begin is None else begin.found
    if found is None and origin is not None:
        other = CheckpointDirectory(in_home(origin))
        found = find_newest(world, other, step=promised, finishes=False)
        if found is None:
            which = "checkpoint" if promised is None else f"checkpoint {promised}"
            cause = f"there is no {which} in {other.path} on any node of this job"
            raise RecipeError(cause, fix="name another with --from, or add the nodes that have it")
        return Beginning(other, found)
    if origin is None and promised is not None:
        _refuse_other_step(found, promised, own)
    return begin


def _newest(
    world: World,
    own: CheckpointDirectory,
    copies: CheckpointDirectory | None,
    promised: int | None,
    say: Callable[[str], None],
    checksums: Checksums | None,
) -> Beginning | None:
    """The newest of a run's complete checkpoints; its own rather than a copy, unless the copy is
    newer, or alone is what was promised. Collective.
    """
    lost = None
    try:
        found = find_newest(world, own, checksums=checksums)
    except RecipeError as error:  # on every rank alike
        found, lost = None, error
    # Storage is slow: a copy is read only if it is to be loaded.
    for compares in (False, True):
        copy = None if copies is None else _copy(world, copies, promised, say, compares=compares)
        if copy is None or (found is not None and not _is_better(copy.found, found, promised)):
            break
    else:
        return copy
    if lost is not None:
        raise lost
    return None if found is None else Beginning(own, found)


def _copy(
    world: World,
    copies: CheckpointDirectory,
    promised: int | None,
    say: Callable[[str], None],
    *,
    compares: bool,
) -> Beginning | None:
    """The newest complete copy, or that of the promised step. Collective."""
    try:
        found = find_newest(world, copies, step=promised, finishes=False, compares=compares)
    except RecipeError as error:  # on every rank alike; what nodes have themselves may be whole
        if world.is_head:
            say(f"durable copies in {copies.path} are not used: {error.cause}")
        return None
    return None if found is None else Beginning(copies, found)


def _is_better(copy: FoundCheckpoint, own: FoundCheckpoint, promised: int | None) -> bool:
    if promised is not None:
        return own.manifest.step != promised
    return copy.manifest.age > own.manifest.age


def _refuse_other_step(
    found: FoundCheckpoint | None, promised: int, own: CheckpointDirectory
) -> None:
    """An older one would cost the steps since, and a newer one is not what the person was told."""
    step = 0 if found is None else found.manifest.step
    if step == promised:
        return
    newest = f"the newest whole one is {step}" if step else "there is none"
    raise RecipeError(
        f"the job was to go on from checkpoint {promised} in {own.path}, but on its nodes {newest}",
        fix="resume it with the nodes that saved it, or with an older one: resume --from STEP",
    )
