"""GPU causes: explains by the state of a node's GPUs why a rank ended. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.hypothesis import Hypothesis
from jupyter_mntrain.model.failure.kinds import SYMPTOMS, Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.evidence import GpuHealth
from jupyter_mntrain.model.records.job import PartStatus

SHARE_OF_OTHERS = 0.05
"""Another process's share of a GPU's memory from which on it is named next to "out of memory": a
desktop holds 1 to 3 %."""

_BY_A_GPU = SYMPTOMS | {Kind.GPU_ERROR, Kind.GPU_ALLOCATOR, Kind.NCCL, Kind.CRASHED}
"""Ends that a broken card can cause."""


def broken_gpu(parts: Sequence[PartStatus], end: Problem) -> Hypothesis | None:
    """Find a GPU that was lost, or whose memory failed, since the launch.

    Args:
        end: how a rank ended, or its symptom.
    """
    if end.kind not in _BY_A_GPU:
        return None
    for part, before, now in _gpus(parts):
        is_elsewhere = part.node != end.node and not end.is_symptom
        if is_elsewhere or not (found := _broken(part.node, before, now)):
            continue
        told = msgspec.structs.replace(found, time_s=end.time_s, detail=end.detail)
        same_node = part.node == end.node
        told = msgspec.structs.replace(told, rank=end.rank if same_node else None)
        return Hypothesis(told, (f"GPU {now.index} of {part.node} was healthy at the launch",))
    return None


def with_other_users(parts: Sequence[PartStatus], end: Problem) -> Problem:
    """Return the problem; if a GPU's memory ran out, with the other processes that use it."""
    if end.kind is not Kind.GPU_OUT_OF_MEMORY:
        return end
    told = [
        f"{process} holds {(process.memory_bytes or 0) / 2**30:.1f} GiB of GPU {gpu.index}"
        for part, _, gpu in _gpus(parts)
        if part.node == end.node
        for process in gpu.others
        if (process.memory_bytes or 0) >= SHARE_OF_OTHERS * (gpu.memory_bytes or 0) > 0
    ]
    if not told:
        return end
    return msgspec.structs.replace(
        end,
        cause=f"{end.cause}; {', and '.join(told)}",
        fix=fix_of(Kind.GPU_OUT_OF_MEMORY, "shared", node=end.node),
    )


def _broken(node: str, before: GpuHealth | None, now: GpuHealth) -> Problem | None:
    """Return what has become wrong with a GPU since the launch, if anything."""
    if before is None:
        return None
    if now.trouble and not before.trouble:
        return Problem(
            kind=Kind.GPU_LOST,
            cause=f"GPU {now.index} does not answer any more: {now.trouble}",
            fix=fix_of(Kind.GPU_LOST, node=node),
            node=node,
        )
    count = (now.uncorrected_errors or 0) - (before.uncorrected_errors or 0)
    if count > 0:
        return Problem(
            kind=Kind.GPU_MEMORY_ERROR,
            cause=f"the memory of GPU {now.index} failed: {count} uncorrectable ECC errors since "
            "the launch",
            fix=fix_of(Kind.GPU_MEMORY_ERROR, node=node, gpu=now.index),
            node=node,
        )
    return None


def _gpus(
    parts: Sequence[PartStatus],
) -> Iterator[tuple[PartStatus, GpuHealth | None, GpuHealth]]:
    """Yield every GPU of the job: its part, its state at launch, and its state now."""
    for part in parts:
        if part.evidence is not None:
            before = {one.index: one for one in part.evidence.gpus_at_launch}
            for now in part.evidence.gpus:
                yield part, before.get(now.index), now
