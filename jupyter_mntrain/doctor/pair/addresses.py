"""Checks of addresses: a network that all share, masks that agree, no address twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import permutations

from jupyter_mntrain.doctor.check import Case, Check, Examined
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.doctor.pair.owners import (
    Owned,
    address_owners,
    is_one_card,
    owned,
    stranger,
)
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.plan.interfaces import choose_interfaces
from jupyter_mntrain.plan.networks.trial_ends import trial_ends

LONGEST_PREFIX = 30
"""Longer ones are of point-to-point links, and of clouds whose router answers for everybody."""


class SharedNetwork(Check):
    id = "shared-network"
    title = "Shared network"
    looks_at = "whether there is a network that all nodes are on, and that a job would be run over"

    def findings(self, case: Case) -> Iterable[Finding]:
        told = [node for node in case.nodes if node.facts is not None]
        if len(told) < 2:
            return
        infos = [node.info for node in told]
        wanted = [node.participant.interface if node.participant else None for node in told]
        try:
            chosen = choose_interfaces(infos, wanted)
        except SpecError as error:
            has_own_reason = _odd_masks(case) or any(_twice(case))  # and is said there
            if not has_own_reason and all(any(owned([node])) for node in told):
                yield self._none(case, told, error.problem)
            return
        for node, interface in zip(told, chosen, strict=True):
            yield self.passed(node, interface.name)

    def _none(self, case: Case, told: list[Examined], problem: Problem) -> Finding:
        at = case.named(problem.node or "") or min(told, key=lambda node: _neighbors(node, told))
        return self.found("stops", at, "shares none", problem)


class SubnetMask(Check):
    id = "subnet-mask"
    title = "Subnet masks"
    looks_at = "whether nodes whose addresses are on one network agree on how large it is"

    def findings(self, case: Case) -> Iterable[Finding]:
        odd = dict(_odd_masks(case))
        for node in case.nodes:
            if node.facts is None or not any(owned([node])):
                continue
            found = odd.get(node.name)
            yield self._judged(node, *found) if found else self.passed(node, "agree")

    def _judged(self, node: Examined, own: Owned, other: Owned) -> Finding:
        prefix = other.address.network.prefixlen
        return self.slows(
            node,
            f"/{own.address.network.prefixlen}",
            Kind.NO_ROUTE,
            cause=f"its {own.interface.name} has the address {own.address}, and "
            f"{other.node.name}'s {other.interface.name} {other.address}: by their masks these are "
            "two networks, so that no job is run over them, and some packets find no way",
            fix=f"on {node.name}: sudo ip addr add {own.host}/{prefix} dev {own.interface.name} && "
            f"sudo ip addr del {own.address} dev {own.interface.name}; and in its network settings",
            peer=other.node.name,
        )


class AddressTwice(Check):
    id = "address-twice"
    title = "Addresses"
    looks_at = (
        "whether two nodes have one IP or MAC address, or a machine that is not in the cluster "
        "answers for a node's"
    )
    is_of_ways = True

    def findings(self, case: Case) -> Iterable[Finding]:
        bad: set[str] = set()
        for first, other in _twice(case):
            bad.add(other.node.name)
            yield self._judged(case, first, other)
        for trial in case.paths.trials:
            node = case.named(trial.peer)
            if node is None or len(address_owners(case, trial.address)) > 1:
                continue
            if (mac := stranger(case, trial)) and node.name not in bad:
                bad.add(node.name)
                yield self._answered_by(node, trial.address, mac, trial.node)
        for node in case.nodes:
            if node.facts is not None and node.name not in bad and any(owned([node])):
                yield self.passed(node, "its own")

    def _judged(self, case: Case, first: Owned, other: Owned) -> Finding:
        is_ip = first.host == other.host
        what = f"address {other.host}" if is_ip else f"MAC address {other.interface.mac}"
        change = (
            f"sudo ip addr del {other.address} dev {other.interface.name}, and give it another one"
            if is_ip
            else f"give {other.interface.name} another one, as a copied virtual machine needs"
        )
        judge = self.stops if {first.host, other.host} & _used(case) else self.slows
        return judge(
            other.node,
            f"also {first.node.name}'s",
            Kind.DUPLICATE_ADDRESS,
            cause=f"its {other.interface.name} has the {what}, which {first.node.name}'s "
            f"{first.interface.name} has, too: what is sent to it reaches now one, now the other",
            fix=f"on {other.node.name}: {change}",
            peer=first.node.name,
        )

    def _answered_by(self, node: Examined, address: str, mac: str, seen_by: str) -> Finding:
        return self.stops(
            node,
            "also another's",
            Kind.DUPLICATE_ADDRESS,
            cause=f"a machine that is not in the cluster, with the MAC address {mac}, answers "
            f"{seen_by} for its address {address}",
            fix=f"find it by its MAC address {mac}, in the switch's table or the router's list of "
            f"leases, and give it, or {node.name}, another address",
            peer=seen_by,
        )


def _used(case: Case) -> set[str]:
    """The addresses that a job of all nodes, or of two that share a network, would use."""
    wanted = [node.participant.interface if node.participant else None for node in case.nodes]
    ends = trial_ends([node.info for node in case.nodes], wanted)
    return {host for one in ends for host in (one.address, one.source)}


def _twice(case: Case) -> Iterator[tuple[Owned, Owned]]:
    """Two nodes that have one address, or one MAC address on one network."""
    seen: list[Owned] = []
    said: set[tuple[str, str]] = set()
    for one in owned(case.nodes):
        for other in seen:
            pair = (other.node.name, one.node.name)
            if other.node is one.node or pair in said or is_one_card(other, one):
                continue
            is_one_network = other.address.network == one.address.network
            is_mac = bool(one.interface.mac) and one.interface.mac == other.interface.mac
            if one.host == other.host or (is_mac and is_one_network):
                said.add(pair)
                yield other, one
        seen.append(one)


def _odd_masks(case: Case) -> list[tuple[str, tuple[Owned, Owned]]]:
    """Nodes whose mask is another than most others' on the same network, with one of those."""
    networks = {node.name: {one.address.network for one in owned([node])} for node in case.nodes}
    differ = [
        (one, other)
        for one, other in permutations(owned(case.nodes), 2)
        if one.node is not other.node
        and one.address.ip in other.address.network
        and max(one.address.network.prefixlen, other.address.network.prefixlen) <= LONGEST_PREFIX
        and one.address.network not in networks[other.node.name]
        and other.address.network not in networks[one.node.name]
    ]
    usual = Counter(one.address.network.prefixlen for one in owned(case.nodes))
    found: dict[str, tuple[Owned, Owned]] = {}
    for pair in differ:
        # The rarer mask is wrong; of two, the later node's.
        odd, other = sorted(
            pair, key=lambda one: (usual[one.address.network.prefixlen], -_place(case, one.node))
        )
        found.setdefault(odd.node.name, (odd, other))
    return list(found.items())


def _place(case: Case, node: Examined) -> int:
    return case.nodes.index(node)


def _neighbors(node: Examined, others: Iterable[Examined]) -> int:
    """With how many of them it shares a network."""
    own = {one.address.network for one in owned([node])}
    return sum(
        bool(own & {one.address.network for one in owned([other])})
        for other in others
        if other is not node
    )
