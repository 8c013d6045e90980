"""Slow-link note: warns that a job uses a slow network although a faster one exists. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_mntrain.doctor.pair import slow_network
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import Participant, Placement
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.networks.measuring import RENEWED_AT_LAUNCH, due, links_between
from jupyter_mntrain.show import formats


def slow_link_note(nodes: Sequence[NodeInfo], placements: Sequence[Placement]) -> Problem | None:
    """Return a warning if the nodes share a network at least twice as fast, or nearly do.

    Args:
        nodes: the participants' nodes; may contain others.
    """
    by_id = {node.node_id: node for node in nodes}
    own = [by_id[place.node_id] for place in placements if place.node_id in by_id]
    if len(own) < max(2, len(placements)):
        return None
    others = [node for node in nodes if node not in own]
    return slow_network(own, [place.interface for place in placements], others)


def due_links_note(
    nodes: Sequence[NodeInfo], participants: Sequence[Participant], now_s: float
) -> Problem | None:
    """Return a note on links that have changed since they were measured, or not been for long.

    Args:
        nodes: the participants' nodes, in node-rank order.
        now_s: Unix time.
    """
    links = due(
        links_between(nodes, [one.interface for one in participants]),
        nodes,
        now_s,
        is_renewal=True,
    )
    if not links:
        return None
    sender, receiver = (nodes[index].name for index in links[0].pair)
    more = f", and {formats.plural(len(links) - 1, 'other direction')}" if links[1:] else ""
    return Problem(
        kind=Kind.SLOW_LINK,
        cause=f"the link {sender} → {receiver} has to be remeasured{more}: {links[0].reason}",
        fix="wait: the launch does that first"
        if len(links) <= RENEWED_AT_LAUNCH
        else "measure --links --due",
    )
