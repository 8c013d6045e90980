"""Check of the network that a job takes: not a slow one while a fast one is set up wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jupyter_mntrain.doctor.check import Case, Check
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.quantities import rough_bit_rate
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.interfaces import choose_interfaces, faster_than
from jupyter_mntrain.plan.networks.unused_networks import UnusedNetwork, unused_network


class UnusedFastNetwork(Check):
    """A launch says it of the nodes that it knows, before it asks the doctor."""

    id = "fast-network"
    title = "Fastest network"
    is_for_launch = False
    looks_at = (
        "whether a job leaves a network unused that is at least twice as fast, because of an "
        "address, a mask or a cable of one node, or because it names another one"
    )

    def findings(self, case: Case) -> Iterable[Finding]:
        told = [node for node in case.nodes if node.facts is not None]
        infos = [node.info for node in told]
        wanted = [node.participant.interface if node.participant else None for node in told]
        try:
            names = [one.name for one in choose_interfaces(infos, wanted)]
        except SpecError:
            return  # said by itself
        problem = slow_network(infos, names, case.others) if len(told) > 1 else None
        if problem is None:
            yield from (self.passed(node, "used") for node in told if len(told) > 1)
            return
        at = case.named(problem.node or "") or told[0]
        yield self.found("slows", at, "not used", problem)


def slow_network(
    nodes: Sequence[NodeInfo], names: Sequence[str], others: Sequence[NodeInfo] = ()
) -> Problem | None:
    """What to say if nodes share a network at least twice as fast, or nearly do.

    Args:
        nodes: in node-rank order.
        names: the interfaces that they use.
        others: nodes of the cluster that do not take part.
    """
    found = faster_than(nodes, names)
    if found is None:
        return _unused(unused_network(nodes, names, others), names)
    slow, fast = map(rough_bit_rate, (found.named_bytes_per_s, found.better_bytes_per_s))
    return Problem(
        kind=Kind.SLOW_LINK,
        cause=f"the ranks use {found.named} ({slow}), but these nodes also share {found.better} "
        f"({fast})",
        fix=f"omit the interface to use {found.better}",
    )


def _unused(found: UnusedNetwork | None, names: Sequence[str]) -> Problem | None:
    if found is None:
        return None
    used = ", ".join(dict.fromkeys(names))
    return Problem(
        kind=Kind.SLOW_LINK,
        cause=f"{found.name} ({rough_bit_rate(found.bytes_per_s)}) is not used: {found.reason}; "
        f"the ranks use {used}",
        fix=f"set up {found.name} on {found.node} with an address of its own in {found.network}",
        node=found.node,
    )
