"""Resuming: finds the newest checkpoint that the ranks together hold complete, and loads it.

A rank that can read a shard sends others what they need of it. So the number of ranks may change,
and the directory may be shared or local to each node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory, shard_name
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.checkpoint import Manifest
from jupyter_mntrain.recipe.families import embedding_weights
from jupyter_mntrain.telemetry.progress import ProgressWriter, Tally, unwatched
from jupyter_mntrain.train.checkpoint.checksums import Checksums
from jupyter_mntrain.train.model.decoder import HEAD
from jupyter_mntrain.train.world import World, gathered

_ROWS = re.compile(r"(?P<name>.+)\[(?P<begin>\d+):(?P<end>\d+)\]")


class Held(Record, frozen=True):
    """A checkpoint and the shards of it that one rank can read."""

    manifest: Manifest
    shards: tuple[int, ...]


class FoundCheckpoint(Record, frozen=True):
    """A complete checkpoint, and the rank of this run that reads each shard.

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
    """Shards that this rank is to read and that are not what was saved."""
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
        f"{directory.of(newest)}: {names} is not what was saved, and there is no older whole "
        "checkpoint",
        fix="copy that file from elsewhere, a durable copy or another node; or launch the job to "
        "start over",
    )


def _refuse_unreadable(
    directory: CheckpointDirectory, unreadable: Sequence[Mapping[int, str]], step: int | None
) -> None:
    """A run that began again would save over what may still be repaired."""
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
    """Return the newest complete checkpoint. Pure.

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
    """Map shards to the ranks that read them; a rank reads its own where it can."""
    readers: dict[int, int] = {}
    for rank, holds in enumerate(everybody):
        shards = next((held.shards for held in holds if held.manifest == manifest), ())
        readers |= {one: rank for one in shards if one not in readers or one == rank}
    return readers


def name_of_rows(name: str, begin: int, end: int) -> str:
    """Return the key of rows of a tensor in a checkpoint."""
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
    """Rows of a tensor, and the pieces that hold them, in order."""

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
    """Pieces by tensor name, in row order; of duplicates, one."""
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
    """Read, send or receive the requested rows of a piece; return them on the receiving rank."""
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
