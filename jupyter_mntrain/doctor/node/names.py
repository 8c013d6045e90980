"""Checks of names: torch.distributed looks up its own name, and that of each peer."""

from __future__ import annotations

from jupyter_mntrain.doctor.check import Examined, NodeCheck
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.machine import MachineFacts, NameLookup
from jupyter_mntrain.model.text.foreign import shown_name
from jupyter_mntrain.plan.agent_hosts import is_loopback

SLOW_S = tunables.seconds("doctor.slow_name_s")


class OwnName(NodeCheck):
    """That a name leads to 127.0.1.1, as on Debian, does not matter: jobs get addresses."""

    id = "host-name"
    title = "Host name"
    looks_at = "where a node's own host name leads to, and how long looking it up takes"

    def look(self, node: Examined, facts: MachineFacts) -> Finding | None:
        own, addresses = facts.own_name, _addresses(node)
        if own is None:
            return None
        if (slow := _slow(own)) is not None:
            return self.found("slows", node, slow, _slow_problem(node, own, slow))
        said = ", ".join(map(shown_name, own.found[:2])) or "no address"
        foreign = [one for one in own.found if not _is_usual(one) and one not in addresses]
        if not own.found or len(foreign) < len(own.found) or not addresses:
            return self.passed(node, said)
        return self.slows(
            node,
            said,
            Kind.NO_ROUTE,
            cause=f"its host name {own.asked} leads to {said}, which is none of its addresses: "
            "who connects to that name reaches another machine, or none",
            fix=f"on {node.name}, in /etc/hosts: {next(iter(addresses))} {own.asked}",
        )


class PeerNames(NodeCheck):
    id = "reverse-dns"
    title = "Reverse DNS"
    looks_at = "how long looking up the name of each other node's address takes"

    def look(self, node: Examined, facts: MachineFacts) -> Finding | None:
        if not facts.peer_names:
            return None
        worst = max(facts.peer_names, key=lambda one: one.took_s)
        if (slow := _slow(worst)) is not None:
            return self.found("slows", node, slow, _slow_problem(node, worst, slow))
        return self.passed(node, f"{worst.took_s * 1000:.0f} ms")


def _addresses(node: Examined) -> dict[str, None]:
    """Its addresses, without those of virtual interfaces, in order."""
    return {
        address.partition("/")[0]: None
        for interface in node.info.inventory.interfaces
        if interface.kind != "virtual"
        for address in interface.addresses
    }


def _slow(one: NameLookup) -> str | None:
    if one.is_over and one.took_s < SLOW_S:
        return None
    return f"{one.took_s:.1f} s" if one.is_over else f"over {one.took_s:.0f} s"


def _slow_problem(node: Examined, one: NameLookup, said: str) -> Problem:
    return Problem(
        kind=Kind.NO_ANSWER,
        cause=f"looking up {one.asked} takes {said}: torch.distributed waits for it at every "
        "connection",
        fix=f"on {node.name}: add the nodes to /etc/hosts, or correct the name server in "
        "/etc/resolv.conf",
    )


def _is_usual(address: str) -> bool:
    """Whether a host's own name may lead there; IPv6 is not judged: inventories have IPv4."""
    return is_loopback(address) or ":" in address
