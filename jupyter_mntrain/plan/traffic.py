"""What a pipeline sends between nodes in one optimiser step. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def step_traffic(
    nodes: Sequence[str], stages_per_rank: int, bytes_per_boundary: float
) -> dict[tuple[str, str], float]:
    """Bytes from node to node in one step.

    Between two neighbouring stages activations go forward and gradients of the same size back.
    Stage ``s`` lives on rank ``s mod R``, as every schedule of torch's places them.

    Args:
        nodes: the node of each rank, in rank order.
        stages_per_rank: more than 1 for interleaved schedules.
        bytes_per_boundary: tokens per step x hidden size x bytes per number.

    Returns:
        ``(sender, receiver) → bytes``; stages on the same node do not count.
    """
    ranks = len(nodes)
    found: dict[tuple[str, str], float] = {}
    for stage in range(ranks * stages_per_rank - 1):
        here, there = nodes[stage % ranks], nodes[(stage + 1) % ranks]
        if here == there:
            continue
        for pair in ((here, there), (there, here)):
            found[pair] = found.get(pair, 0.0) + bytes_per_boundary
    return found
