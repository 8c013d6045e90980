"""Going on from the newest checkpoint that the ranks together still have whole.

Whoever holds a shard reads it and sends what others need, so the ranks may be fewer or more than
those that saved, and the directory may be shared or each node's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.telemetry.progress import Progress, Tally, unwatched
from jupyter_mntrain.train.checkpoints import CheckpointDirectory, Manifest, shard_name
from jupyter_mntrain.train.world import World

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
}
"""By the names that safetensors gives them."""


class Held(Record, frozen=True):
    """A checkpoint, and which ranks' shards of it a rank can read."""

    manifest: Manifest
    shards: tuple[int, ...]


class Found(Record, frozen=True):
    """A checkpoint that is whole, and which rank of this run reads each of its shards."""

    manifest: Manifest
    readers: tuple[int, ...]


class _Tensor(Record, frozen=True):
    """Where a tensor is and what it looks like."""

    shard: int
    shape: tuple[int, ...]
    dtype: str


def find_newest(world: World, directory: CheckpointDirectory) -> Found | None:
    """What all ranks agree to go on from; ``None`` where they begin at the beginning."""
    mine = [Held(one, directory.shards(one)) for one in directory.manifests().values()]
    everybody: list[list[Held]] = [[]] * world.size
    dist.all_gather_object(everybody, mine)
    return choose(everybody)


def choose(everybody: Sequence[Sequence[Held]]) -> Found | None:
    """The newest checkpoint whose shards are all there. Pure.

    Args:
        everybody: what each rank holds.
    """
    manifests: list[Manifest] = []
    for held in (one for holds in everybody for one in holds):
        if held.manifest not in manifests:
            manifests.append(held.manifest)
    manifests.sort(key=lambda one: (one.step, one.attempt), reverse=True)
    for manifest in manifests:
        readers = _readers(manifest, everybody)
        if len(readers) == manifest.world_size:
            return Found(manifest, tuple(readers[shard] for shard in range(manifest.world_size)))
    return None


def _readers(manifest: Manifest, everybody: Sequence[Sequence[Held]]) -> dict[int, int]:
    """Shard → who reads it. A rank reads its own where it can: nothing has to be sent then."""
    readers: dict[int, int] = {}
    for rank, holds in enumerate(everybody):
        shards = next((held.shards for held in holds if held.manifest == manifest), ())
        readers |= {one: rank for one in shards if one not in readers or one == rank}
    return readers


def load(
    world: World,
    directory: CheckpointDirectory,
    found: Found,
    wanted: Sequence[str],
    *,
    stand_in: Mapping[str, str],
    progress: Progress = unwatched,
) -> dict[str, torch.Tensor]:
    """The named tensors of a checkpoint, on the CPU; read here or sent by whoever can read them.

    Every rank calls it. What is nowhere in the checkpoint is left out.

    Args:
        stand_in: for a name that the checkpoint may lack, the one to take instead.

    Raises:
        RecipeError: a shard is damaged.
    """
    folder = directory.of(found.manifest.step)
    shards: dict[int, safe_open] = {}
    try:
        for shard, reader in enumerate(found.readers):
            if reader == world.rank:
                shards[shard] = safe_open(folder / shard_name(shard), framework="pt")
        index = _index(world, {shard: _contents(shard, file) for shard, file in shards.items()})
    except (OSError, SafetensorError) as error:
        cause = f"the checkpoint in {folder} cannot be read: {error}"
        raise RecipeError(cause, fix="delete that folder; the one before is taken then") from None
    needed = [_name_in(index, name, stand_in) for name in wanted]
    requests: list[list[str | None]] = [[]] * world.size
    dist.all_gather_object(requests, needed)
    loaded: dict[str, torch.Tensor] = {}
    tally = Tally(progress, "loading the checkpoint", len(wanted), "tensors")
    # All go through all requests in one order, so nobody waits for somebody who waits for him.
    for rank, names in enumerate(requests):
        for place, name in enumerate(names):
            if name is None:
                continue
            tensor = _hand_over(world, found, index[name], rank, shards, name)
            if tensor is not None:
                loaded[wanted[place]] = tensor
                tally.add(1)
    tally.end()
    return loaded


def _contents(shard: int, file: safe_open) -> dict[str, _Tensor]:
    found = {}
    for name in file.offset_keys():  # type: ignore[no-untyped-call]
        part = file.get_slice(name)  # type: ignore[no-untyped-call]
        found[name] = _Tensor(shard, tuple(part.get_shape()), part.get_dtype())
    return found


def _index(world: World, mine: Mapping[int, dict[str, _Tensor]]) -> dict[str, _Tensor]:
    everybody: list[dict[int, dict[str, _Tensor]]] = [{}] * world.size
    dist.all_gather_object(everybody, dict(mine))
    return {
        name: tensor
        for contents in everybody
        for tensors in contents.values()
        for name, tensor in tensors.items()
    }


def _name_in(index: Mapping[str, _Tensor], name: str, stand_in: Mapping[str, str]) -> str | None:
    for one in (name, stand_in.get(name)):
        if one in index:
            return one
    return None


def _hand_over(
    world: World,
    found: Found,
    tensor: _Tensor,
    receiver: int,
    shards: Mapping[int, safe_open],
    name: str,
) -> torch.Tensor | None:
    """Read, send or receive one tensor; it, on the rank that asked for it."""
    reader = found.readers[tensor.shard]
    if reader == world.rank:
        read: torch.Tensor = shards[tensor.shard].get_tensor(name)  # type: ignore[no-untyped-call]
        if receiver == world.rank:
            return read
        dist.send(read.contiguous(), receiver)
    elif receiver == world.rank:
        received = torch.empty(tensor.shape, dtype=_DTYPES[tensor.dtype])
        dist.recv(received, reader)
        return received
    return None
