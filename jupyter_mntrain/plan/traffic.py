"""Pipeline traffic: bytes between nodes in one optimizer step. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def rank_of_stage(stage: int, ranks: int, *, is_v: bool = False) -> int:
    """Who holds a stage: dealt in turn, ``s mod R``; in a V down and back up."""
    turn, place = divmod(stage, ranks)
    return ranks - 1 - place if is_v and turn % 2 else place


def step_traffic(
    nodes: Sequence[str], stages_per_rank: int, bytes_per_boundary: float, *, is_v: bool = False
) -> dict[tuple[str, str], float]:
    """Bytes from node to node in one step of a pipeline.

    Between two neighboring stages activations go forward and gradients of the same size back.
    Stages live where :func:`rank_of_stage` says, as torch's schedules place them.

    Args:
        nodes: the node of each of its ranks, in order.
        stages_per_rank: more than 1 for interleaved schedules.
        is_v: whether the last stage is on the rank of the first.
        bytes_per_boundary: tokens per step x hidden size x bytes per number.

    Returns:
        ``(sender, receiver) → bytes``; stages on the same node do not count.
    """
    ranks = len(nodes)
    found: dict[tuple[str, str], float] = {}
    for stage in range(ranks * stages_per_rank - 1):
        here, there = (nodes[rank_of_stage(one, ranks, is_v=is_v)] for one in (stage, stage + 1))
        if here == there:
            continue
        for pair in ((here, there), (there, here)):
            found[pair] = found.get(pair, 0.0) + bytes_per_boundary
    return found


def ring_traffic(nodes: Sequence[str], size_bytes: float) -> dict[tuple[str, str], float]:
    """Bytes from node to node in one step for the gradients that replicas of a stage add up.

    Args:
        nodes: the node of each of them.
        size_bytes: of the gradients of one.
    """
    count = len(nodes)
    each = 2 * size_bytes * (count - 1) / count
    found: dict[tuple[str, str], float] = {}
    for place, node in enumerate(nodes):
        after = nodes[(place + 1) % count]
        if node != after:
            found[node, after] = found.get((node, after), 0.0) + each
    return found
