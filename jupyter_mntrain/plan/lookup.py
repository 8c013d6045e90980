"""Node lookup: finds a node by its name, id or host name."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.text.spelling import use_nearest


def find_node(reference: str, nodes: Sequence[NodeInfo]) -> NodeInfo:
    """Find the node with this name or id, or else with this host name.

    Raises:
        SpecError: there is none, or several; the message lists candidates.
    """
    for known in (
        [node for node in nodes if reference in node.names[:2]],
        [node for node in nodes if reference in node.names],
    ):
        if len({node.node_id for node in known}) > 1:
            ids = " or ".join(f"{node.name}={node.node_id}" for node in known)
            raise SpecError(
                f"{len(known)} nodes match {reference!r}", fix=f"use the id instead: {ids}"
            )
        if known:
            return known[0]
    raise _unknown(reference, nodes)


def reference(node: NodeInfo, nodes: Sequence[NodeInfo]) -> str:
    """Return a node's unique reference for a spec: its name, or its id if the name is shared."""
    same = {other.node_id for other in nodes if other.name == node.name}
    return node.name if len(same) < 2 else node.node_id


def _unknown(reference: str, nodes: Sequence[NodeInfo]) -> SpecError:
    names = sorted({node.name for node in nodes})
    if not names:
        return SpecError(
            f"unknown node {reference!r}; no node is up",
            fix="start one with mntrain agent run, or invite a new one with mntrain invite",
        )
    fix = use_nearest(reference, names, f"use one of {', '.join(names)}")
    return SpecError(f"unknown node {reference!r}", fix=fix)
