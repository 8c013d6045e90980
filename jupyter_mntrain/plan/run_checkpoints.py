"""Run checkpoints: merges the nodes' lists of a run's checkpoints. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_mntrain.model.records.checkpoint import (
    HeldCheckpoint,
    Manifest,
    NodeCheckpoints,
    RunCheckpoint,
    best_first,
)


def merge_checkpoints(by_node: Mapping[str, NodeCheckpoints]) -> tuple[RunCheckpoint, ...]:
    """Merge the checkpoints of a run, the newest first.

    Args:
        by_node: lists of the nodes that answered, by their names.
    """
    found: dict[tuple[int, int], list[HeldCheckpoint]] = {}
    for listed in by_node.values():
        for held in listed.checkpoints:
            found.setdefault(held.manifest.age, []).append(held)
    ranked = best_first(held[0].manifest for held in found.values())
    best = ranked[0].age if ranked else None
    return tuple(
        _merged(found[age], by_node, is_best=age == best) for age in sorted(found, reverse=True)
    )


def _merged(
    held: list[HeldCheckpoint], by_node: Mapping[str, NodeCheckpoints], *, is_best: bool
) -> RunCheckpoint:
    manifest = held[0].manifest
    nodes = {name: _shards(manifest, listed) for name, listed in by_node.items()}
    nodes = {name: ranks for name, ranks in nodes.items() if ranks}
    had = {rank for ranks in nodes.values() for rank in ranks}
    missing = tuple(rank for rank in range(manifest.world_size) if rank not in had)
    hosts = (manifest.hosts[rank] for rank in missing if rank < len(manifest.hosts))
    return RunCheckpoint(
        step=manifest.step,
        attempt=manifest.attempt,
        size_bytes=sum(manifest.shard_bytes),
        saved_s=max(one.saved_s for one in held),
        world_size=manifest.world_size,
        nodes=nodes,
        missing=missing,
        missing_on=tuple(dict.fromkeys(hosts)),
        is_pinned=any(one.is_pinned for one in held),
        evaluation_loss=manifest.evaluation_loss,
        is_best=is_best,
    )


def _shards(manifest: Manifest, listed: NodeCheckpoints) -> tuple[int, ...]:
    """Return a checkpoint's complete shards on a node, even unpublished ones.

    A shard is unpublished where the job ended after another node had published the checkpoint.
    """
    found: set[int] = set()
    for held in listed.checkpoints:
        if held.manifest == manifest:
            found.update(held.shards)
    for save in listed.unfinished:
        if (save.attempt, save.step) == manifest.age:
            found.update(
                rank
                for rank, size in save.shard_bytes.items()
                if rank < manifest.world_size and manifest.shard_bytes[rank] == size
            )
    return tuple(sorted(found))
