"""Which node has other versions than the rest: ranks that disagree fail late and obscurely."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.node import NodeInfo, Versions

KEYS = ("mntrain", "torch", "transformers", "cuda", "nccl", "python", "platform", "driver")

GPU_KEYS = frozenset({"cuda", "nccl", "driver"})
"""A node without GPUs has none of these, and that is no disagreement."""


class Divergence(Record, frozen=True):
    """A node whose version of something is not the majority's.

    ``value`` is ``None`` where it is not installed. ``majority`` is ``None`` where no version has
    one: then every node is listed, for nobody can say who is wrong.
    """

    node: str
    key: str
    value: str | None
    majority: str | None


def divergences(nodes: Sequence[NodeInfo]) -> tuple[Divergence, ...]:
    """All disagreements, by key, then in the order of ``nodes``.

    Versions are compared as they are, Python's by its minor version: 3.11.7 and 3.11.9 agree.
    """
    return tuple(one for key in KEYS for one in _of_key(key, nodes))


def _of_key(key: str, nodes: Sequence[NodeInfo]) -> list[Divergence]:
    compared = {node.node_id: _comparable(key, node.inventory.versions) for node in nodes}
    if key in GPU_KEYS:
        compared = {node_id: value for node_id, value in compared.items() if value is not None}
    counts = Counter(compared.values()).most_common(2)
    if len(counts) < 2:
        return []
    has_majority = counts[0][1] > counts[1][1]
    usual = counts[0][0] if has_majority else None
    return [
        Divergence(
            node=node.name,
            key=key,
            value=getattr(node.inventory.versions, key),
            majority=usual or ("not installed" if has_majority else None),
        )
        for node in nodes
        if node.node_id in compared and not (has_majority and compared[node.node_id] == usual)
    ]


def _comparable(key: str, versions: Versions) -> str | None:
    value: str | None = getattr(versions, key)
    if key == "python" and value is not None:
        return ".".join(value.split(".")[:2])
    return value
