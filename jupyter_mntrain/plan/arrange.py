"""Arrangement: places participants on real nodes, with interfaces and ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from jupyter_mntrain.model.records.job import Participant, Placement
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.interfaces import choose_interfaces
from jupyter_mntrain.plan.lookup import find_node
from jupyter_mntrain.plan.members import check_gpus
from jupyter_mntrain.plan.networks.rdma import with_rdma
from jupyter_mntrain.plan.placement import place
from jupyter_mntrain.plan.spec_check import listed_again


def find_participants(
    participants: Sequence[Participant], nodes: Sequence[NodeInfo]
) -> tuple[NodeInfo, ...]:
    """Find the node of each participant, in node-rank order.

    Raises:
        SpecError: a node is unknown or takes part twice.
    """
    chosen = tuple(find_node(participant.node, nodes) for participant in participants)
    for what in ([node.node_id for node in chosen], [node.name for node in chosen]):
        value, count = Counter(what).most_common(1)[0]
        if count > 1:
            node = next(n for n in chosen if value in (n.node_id, n.name))
            raise listed_again(node.name, count)
    return chosen


def arrange(
    participants: Sequence[Participant], nodes: Sequence[NodeInfo]
) -> tuple[Placement, ...]:
    """Place every participant.

    Args:
        participants: of a checked spec, in node-rank order.
        nodes: current state of each participant's node, see :func:`find_participants`.

    Raises:
        SpecError: a GPU or an interface does not exist, or no network is shared.
    """
    for participant, node in zip(participants, nodes, strict=True):
        check_gpus(node, participant.gpus)
    interfaces = choose_interfaces(nodes, [p.interface for p in participants])
    return with_rdma(place(participants, nodes, interfaces), nodes)
