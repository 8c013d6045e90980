"""Resuming: finds and loads the newest checkpoint that is complete on all ranks together."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open

from jupyter_mntrain.families import embedding_weights
from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory, shard_name
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.environment import RESUME_FROM_VARIABLE, RESUME_STEP_VARIABLE
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.checkpoint import Manifest
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.recipe.sections import AdaptersSection
from jupyter_mntrain.telemetry.progress import ProgressWriter, Tally, unwatched
from jupyter_mntrain.train.checkpoint.checksums import Checksums
from jupyter_mntrain.train.model.decoder import HEAD
from jupyter_mntrain.train.world import World, gathered

# Random state: that of a rank's random number generators, for models with dropout.


def random_state(world: World) -> dict[str, torch.Tensor]:
    """Return the state of this rank's random generators, by their names in a checkpoint."""
    state = {f"random/{world.rank}/cpu": torch.get_rng_state()}
    if world.device.type == "cuda":
        state[f"random/{world.rank}/cuda"] = torch.cuda.get_rng_state(world.device)
    return state


def set_random_state(world: World, state: Mapping[str, torch.Tensor]) -> None:
    """Restore the random state from a checkpoint, as far as the checkpoint has it."""
    if (cpu := state.get(f"random/{world.rank}/cpu")) is not None:
        torch.set_rng_state(cpu)
    cuda = state.get(f"random/{world.rank}/cuda")
    if cuda is not None and world.device.type == "cuda":
        torch.cuda.set_rng_state(cuda, world.device)


# Resuming: finds the newest checkpoint that the ranks together hold complete, and loads it.
#
# A rank that can read a shard sends others what they need of it. So the number of ranks may change,
# and the directory may be shared or local to each node.


_ROWS = re.compile(r"(?P<name>.+)\[(?P<begin>\d+):(?P<end>\d+)\]")


class Held(Record, frozen=True):
    """A checkpoint, and which of its shards one rank can read."""

    manifest: Manifest
    shards: tuple[int, ...]


class FoundCheckpoint(Record, frozen=True):
    """A complete checkpoint, and which rank of this run reads each shard.

    Args:
        damaged: shards of newer checkpoints that are not what was saved, by step.
    """

    manifest: Manifest
    readers: tuple[int, ...]
    damaged: dict[int, tuple[int, ...]] = {}


class _Piece(Record, frozen=True):
    """Rows of a saved tensor: their shard, key, first row, shape and dtype."""

    shard: int
    key: str
    begin: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def end(self) -> int:
        return self.begin + (self.shape[0] if self.shape else 1)


def find_newest(
    world: World,
    directory: CheckpointDirectory,
    *,
    step: int | None = None,
    finishes: bool = True,
    checksums: Checksums | None = None,
    compares: bool = True,
) -> FoundCheckpoint | None:
    """Return the checkpoint that all ranks resume from; ``None`` to start at the beginning.

    Args:
        step: only of this step.
        finishes: publish saves that were interrupted; wrong while a job may still be writing.
        checksums: that may have been begun already.
        compares: compare shards with their checksums; else a damaged one may be found.

    Raises:
        RecipeError: there are checkpoints, but none is complete. Starting over would delete them.
    """
    published = gathered(world, list(directory.manifests().values()))
    if finishes and world.local_rank == 0:
        for manifest in (one for some in published for one in some):
            directory.adopt(manifest)
    dist.barrier()
    known = directory.manifests().values()
    mine = [Held(one, directory.shards(one)) for one in known if step in (None, one.step)]
    everybody = gathered(world, mine)
    unreadable = gathered(world, directory.unreadable())
    damaged: dict[int, tuple[int, ...]] = {}
    sums = checksums or Checksums()
    while (found := choose(everybody)) is not None:
        if not compares:
            return found
        told = gathered(world, _damaged(world, directory, found, sums))
        wrong = {shard for some in told for shard in some}
        if not wrong:
            return msgspec.structs.replace(found, damaged=damaged)
        step_of = found.manifest.step
        damaged[step_of] = tuple(sorted({*damaged.get(step_of, ()), *wrong}))
        everybody = [
            [_without(one, found.manifest, some) for one in holds]
            for holds, some in zip(everybody, told, strict=True)
        ]
    if damaged:
        raise _what_is_damaged(directory, damaged)
    if any(everybody):
        raise _what_is_missing(everybody)
    _refuse_unreadable(directory, unreadable, step)
    return None


def _damaged(
    world: World, directory: CheckpointDirectory, found: FoundCheckpoint, sums: Checksums
) -> list[int]:
    """Return the shards that this rank is to read and whose checksums are wrong."""
    manifest, folder = found.manifest, directory.of(found.manifest.step)
    if not manifest.checksums:
        return []
    mine = [shard for shard, reader in enumerate(found.readers) if reader == world.rank]
    paths = {shard: folder / shard_name(shard) for shard in mine}
    expected = manifest.checksums
    return [shard for shard, path in paths.items() if not sums.is_of(path, expected[shard])]


def _without(held: Held, manifest: Manifest, shards: Sequence[int]) -> Held:
    if held.manifest != manifest:
        return held
    return Held(manifest, tuple(one for one in held.shards if one not in shards))


def _what_is_damaged(
    directory: CheckpointDirectory, damaged: Mapping[int, Sequence[int]]
) -> RecipeError:
    newest = max(damaged)
    names = " and ".join(map(shard_name, damaged[newest]))
    return RecipeError(
        f"{directory.of(newest)}: {names} is not what was saved, and there is no older complete "
        "checkpoint",
        fix="copy that file from elsewhere, a durable copy or another node; or launch the job to "
        "start over",
    )


def _refuse_unreadable(
    directory: CheckpointDirectory, unreadable: Sequence[Mapping[int, str]], step: int | None
) -> None:
    """Raise if checkpoints are unreadable, since starting over would overwrite them."""
    why = {one: why for some in unreadable for one, why in some.items() if step in (None, one)}
    if why:
        newest = max(why)
        raise RecipeError(
            f"{directory.of(newest)} has the shards of a checkpoint, but {why[newest]}, and there "
            "is no complete checkpoint",
            fix="put back the manifest from a copy of that folder, or move the folder away to "
            "start over",
        )


def choose(everybody: Sequence[Sequence[Held]]) -> FoundCheckpoint | None:
    """Choose the newest complete checkpoint. Pure.

    Args:
        everybody: what each rank holds, by rank.
    """
    for manifest in _newest_first(everybody):
        readers = _readers(manifest, everybody)
        if len(readers) == manifest.world_size:
            return FoundCheckpoint(
                manifest, tuple(readers[shard] for shard in range(manifest.world_size))
            )
    return None


def _newest_first(everybody: Sequence[Sequence[Held]]) -> list[Manifest]:
    manifests: list[Manifest] = []
    for held in (one for holds in everybody for one in holds):
        if held.manifest not in manifests:
            manifests.append(held.manifest)
    return sorted(manifests, key=lambda one: one.age, reverse=True)


def _what_is_missing(everybody: Sequence[Sequence[Held]]) -> RecipeError:
    newest = _newest_first(everybody)[0]
    lost = sorted(set(range(newest.world_size)) - set(_readers(newest, everybody)))
    hosts = sorted({newest.hosts[rank] for rank in lost if rank < len(newest.hosts)})
    where = f" (saved on {' and '.join(hosts)})" if hosts else ""
    ranks = " and ".join(map(str, lost))
    return RecipeError(
        f"checkpoint {newest.step} is incomplete: no node has the shards of rank {ranks}{where}, "
        "and there is no older complete checkpoint",
        fix="resume it with all nodes that saved it, or launch it to start over. With "
        "checkpoint.copies = 2 or a shared directory, a run survives the loss of a node",
    )


def _readers(manifest: Manifest, everybody: Sequence[Sequence[Held]]) -> dict[int, int]:
    """Map each shard to a rank that reads it; a rank reads its own if it can."""
    readers: dict[int, int] = {}
    for rank, holds in enumerate(everybody):
        shards = next((held.shards for held in holds if held.manifest == manifest), ())
        readers |= {one: rank for one in shards if one not in readers or one == rank}
    return readers


def name_of_rows(name: str, begin: int, end: int) -> str:
    """Return the key of some rows of a tensor in a checkpoint."""
    return f"{name}[{begin}:{end}]"


def load(
    world: World,
    directory: CheckpointDirectory,
    found: FoundCheckpoint,
    wanted: Sequence[str],
    *,
    progress: ProgressWriter = unwatched,
) -> dict[str, torch.Tensor]:
    """Load tensors of a checkpoint to the CPU, from disk or from a rank that can read them.

    Collective. A tensor that is missing or incomplete in the checkpoint is left out.

    Args:
        wanted: names of whole tensors, or of rows as :func:`name_of_rows` makes them; it does not
            matter which of the two was saved.

    Raises:
        RecipeError: a shard is damaged.
    """
    folder = directory.of(found.manifest.step)
    shards: dict[int, safe_open] = {}
    try:
        for shard, reader in enumerate(found.readers):
            if reader == world.rank:
                shards[shard] = safe_open(folder / shard_name(shard), framework="pt")
        index = _index(world, [one for place in shards for one in _contents(place, shards[place])])
    except (OSError, SafetensorError) as error:
        cause = f"cannot read the checkpoint in {folder}: {error}"
        raise RecipeError(cause, fix="delete that folder to use the previous checkpoint") from None
    requests = gathered(world, [_request(index, name) for name in wanted])
    loaded: dict[str, torch.Tensor] = {}
    tally = Tally(progress, "loading the checkpoint", len(wanted), "tensors")
    # Every rank uses the same order, so two ranks never wait for each other.
    for rank, asked in enumerate(requests):
        for place, request in enumerate(asked):
            if request is None:
                continue
            parts = [_hand_over(world, found, one, request, rank, shards) for one in request.pieces]
            if rank == world.rank:
                arrived = [part for part in parts if part is not None]
                loaded[wanted[place]] = arrived[0] if len(arrived) == 1 else torch.cat(arrived)
                tally.add(1)
    tally.end()
    return loaded


class _Request(Record, frozen=True):
    """Rows of a tensor, and the saved pieces that contain them, in order."""

    begin: int
    end: int
    pieces: tuple[_Piece, ...]


def _contents(shard: int, file: safe_open) -> list[_Piece]:
    found = []
    for key in file.offset_keys():  # type: ignore[no-untyped-call]
        shape = tuple(file.get_slice(key).get_shape())  # type: ignore[no-untyped-call]
        dtype = _rows(file, key, shape, 0, 0).dtype
        found.append(_Piece(shard, key, _parsed(key)[1] or 0, shape, dtype))
    return found


def _index(world: World, mine: Sequence[_Piece]) -> dict[str, list[_Piece]]:
    """Return the saved pieces by tensor name, in row order and without duplicates."""
    found: dict[str, dict[int, _Piece]] = {}
    for piece in (one for pieces in gathered(world, mine) for one in pieces):
        found.setdefault(_parsed(piece.key)[0], {})[piece.begin] = piece
    return {name: [some[begin] for begin in sorted(some)] for name, some in found.items()}


def _parsed(key: str) -> tuple[str, int | None, int | None]:
    """Split a key into name, begin and end row (``None`` for a whole tensor)."""
    match = _ROWS.fullmatch(key)
    if match is None:
        return key, None, None
    return match["name"], int(match["begin"]), int(match["end"])


def _request(index: Mapping[str, list[_Piece]], wanted: str) -> _Request | None:
    """Find the pieces of a wanted tensor; ``None`` if some rows are missing."""
    name, begin, end = _parsed(wanted)
    if name not in index and name.endswith(f"/{HEAD}"):
        # A single rank holds a tied embedding once, and saves it under its first name.
        where = name.removesuffix(HEAD)
        names = (f"{where}{one}" for one in embedding_weights())
        name = next((one for one in names if one in index), name)
    if name not in index:
        return None
    pieces = index[name]
    begin, end = begin or 0, pieces[-1].end if end is None else end
    # A tensor with fewer rows than ranks leaves some ranks none: their rows are one empty piece.
    needed = [one for one in pieces if one.begin < end and one.end > begin] or pieces[:1]
    ends = [begin, *(one.end for one in needed)]
    is_whole = all(one.begin <= before for one, before in zip(needed, ends, strict=False))
    return _Request(begin, end, tuple(needed)) if is_whole and ends[-1] >= end else None


def _hand_over(
    world: World,
    found: FoundCheckpoint,
    piece: _Piece,
    request: _Request,
    receiver: int,
    shards: Mapping[int, safe_open],
) -> torch.Tensor | None:
    """Read, send or receive some rows of a piece; return them on the receiving rank."""
    reader = found.readers[piece.shard]
    begin, end = max(request.begin, piece.begin), min(request.end, piece.end)
    if reader == world.rank:
        rows = begin - piece.begin, max(begin, end) - piece.begin
        read = _rows(shards[piece.shard], piece.key, piece.shape, *rows)
        if receiver == world.rank:
            return read
        dist.send(read.contiguous(), receiver)
    elif receiver == world.rank:
        shape = (max(0, end - begin), *piece.shape[1:]) if piece.shape else ()
        received = torch.empty(shape, dtype=piece.dtype)
        dist.recv(received, reader)
        return received
    return None


def _rows(file: safe_open, key: str, shape: tuple[int, ...], begin: int, end: int) -> torch.Tensor:
    """Read some rows of a tensor, or a scalar."""
    opened: Any = file  # the methods of safe_open have no types
    read: torch.Tensor = opened.get_slice(key)[begin:end] if shape else opened.get_tensor(key)
    return read


# Beginning: the checkpoint that an attempt goes on from, the newest of its run or another's.


class Beginning(Record, frozen=True):
    """A complete checkpoint to start from, and the directory that has it."""

    directory: CheckpointDirectory
    found: FoundCheckpoint


def begin_checksums(world: World, own: Path | None) -> Checksums:
    """Start the checksums that :func:`find_beginning` will probably need.

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
    """Find the checkpoint to resume from; ``None`` to start at step 1. Collective.

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
    """Return the newest complete checkpoint of a run. Collective.

    A durable copy counts only if it is newer, or the only one of the promised step.
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
    """Return the newest complete copy, or that of the promised step. Collective."""
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
    """Refuse a checkpoint of another step than promised: an older one would lose steps."""
    step = 0 if found is None else found.manifest.step
    if step == promised:
        return
    newest = f"the newest complete one is {step}" if step else "there is none"
    raise RecipeError(
        f"the job was to continue from checkpoint {promised} in {own.path}, but on its nodes "
        f"{newest}",
        fix="resume it with the nodes that saved it, or with an older one: resume --from STEP",
    )


# Fitting: whether a checkpoint is one that a run can go on from.


_BASE = "base weights"
COMPARED = ("model", "batches", _BASE)
"""Digests that must be unchanged for a resumed run to continue with the same losses."""

_OF_ADAPTERS = ("rank", "alpha", "modules", "train_whole")
"""Settings of adapters that a resumed run keeps."""

_OTHER = {
    "model": "another model",
    "batches": "different data or batches",
    _BASE: "adapters of other weights",
}


def refuse_other(begin: Beginning, digests: Mapping[str, str]) -> None:
    """Refuse a checkpoint of another model, other data, or another base model.

    Raises:
        RecipeError: naming what is another one.
    """
    manifest = begin.found.manifest
    for name in COMPARED:
        before, now = manifest.digests.get(name), digests.get(name)
        if before != now:
            what = _OTHER[name]
            if name == _BASE and before is None:
                what = "no adapters: all weights were trained"
            elif name == _BASE and now is None:
                what = "adapters"
            raise RecipeError(
                f"checkpoint {manifest.step} in {begin.directory.path} was made with {what}",
                fix="set another checkpoint.directory, or use the recipe it was made with",
            )


def refuse_other_adapters(begin: Beginning, section: AdaptersSection) -> None:
    """Refuse a checkpoint whose adapters differ: some would be lost, or be scaled differently.

    Raises:
        RecipeError: naming the setting.
    """
    manifest = begin.found.manifest
    if manifest.recipe is None:
        return
    before, now = (
        manifest.recipe.get("adapters", {}),
        msgspec.json.decode(msgspec.json.encode(section)),
    )
    for name in _OF_ADAPTERS:
        if before.get(name) != now.get(name):
            told = f"adapters.{name} = {before[name]}" if name in before else f"no adapters.{name}"
            raise RecipeError(
                f"checkpoint {manifest.step} in {begin.directory.path} was made with {told}",
                fix="use the recipe it was made with; or export it, and train that model",
            )


def refuse_apart(begin: Beginning, replicas: int) -> None:
    """Refuse to give replicas the same weights if those in the checkpoint differ.

    Args:
        replicas: that sum gradients in every step; 0 if they sync rarely.

    Raises:
        RecipeError: as told.
    """
    manifest = begin.found.manifest
    if (saved := replicas_apart(manifest)) and replicas > 1:
        cause = f"checkpoint {manifest.step} in {begin.directory.path} was made by {saved} "
        cause += "replicas that sync rarely, each with weights of its own"
        fix = "set data_parallel.sync_every, as they had it, or train a single replica"
        raise RecipeError(cause, fix=fix)


def replicas_apart(manifest: Manifest) -> int:
    """Return how many replicas have weights of their own in a checkpoint; 0 if all were equal."""
    section = (manifest.recipe or {}).get("data_parallel", {})
    return int(section.get("replicas", 1)) if section.get("sync_every") else 0
