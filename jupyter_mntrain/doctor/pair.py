"""Checks of every path between two nodes, in both directions."""

from __future__ import annotations

import ipaddress
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Interface
from itertools import permutations
from typing import Final, NamedTuple

import msgspec

from jupyter_mntrain.doctor.check import Case, Check, CheckedNode, Finding, Level
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.quantities import rough_bit_rate
from jupyter_mntrain.model.records.doctor.paths import PathsFound, PathTrial, PortTry, Resent
from jupyter_mntrain.model.records.node import Interface, LinkMeasurement, NodeInfo
from jupyter_mntrain.plan.interfaces import choose_interfaces, faster_than
from jupyter_mntrain.plan.networks.outdated import known_links
from jupyter_mntrain.plan.networks.trial_ends import trial_ends
from jupyter_mntrain.plan.networks.unused_networks import UnusedNetwork, unused_network

# Dialing: which of two nodes connects to the other: a firewall on the other way is harmless.
#
# Source: gloo/transport/tcp/device.cc, ``Device::isInitiator``.


def is_dialed(case: Case, trial: PathTrial) -> bool:
    """Whether the pending job opens connections in this direction.

    All ranks connect to the head's store, Gloo from the higher address to the lower one, NCCL both
    ways. Without a job, any direction counts.
    """
    job = case.job
    if job is None or not job.is_gloo or trial.peer == job.head:
        return True
    return ipaddress.IPv4Address(trial.source) > ipaddress.IPv4Address(trial.address)


# Owners of addresses: which nodes have one, and who answers for it. Pure.


class Owned(NamedTuple):
    """An address of a node's network card."""

    node: CheckedNode
    interface: Interface
    address: IPv4Interface

    @property
    def host(self) -> str:
        return str(self.address.ip)


def owned(nodes: Iterable[CheckedNode]) -> Iterator[Owned]:
    """Yield the addresses of nodes' cards that are up, without link-local ones."""
    for node in nodes:
        for interface in node.info.inventory.interfaces:
            if interface.is_up and interface.kind in ("ethernet", "wireless"):
                for text in interface.addresses:
                    address = IPv4Interface(text)
                    if not address.ip.is_link_local:
                        yield Owned(node, interface, address)


def is_one_card(one: Owned, other: Owned) -> bool:
    """Whether two agents run on one machine and share this card."""
    boots = {one.node.info.boot_id, other.node.info.boot_id}
    return len(boots) == 1 and "" not in boots and one.interface.mac == other.interface.mac


def address_owners(case: Case, address: str) -> list[Owned]:
    """Return the owners of an address; if agents share a card, only one of them."""
    found: list[Owned] = []
    for one in owned(case.nodes):
        if one.host == address and not any(is_one_card(one, other) for other in found):
            found.append(one)
    return found


def stranger(case: Case, trial: PathTrial) -> str:
    """Return the MAC address of another machine that answers in the peer's place, if any.

    Of a way that works, another one answers in the peer's place (proxy ARP).
    """
    peer, seen = case.named(trial.peer), trial.neighbor
    if trial.trouble is None or peer is None or seen is None or not seen.mac:
        return ""
    own = {one.mac for one in peer.info.inventory.interfaces if one.mac}
    return seen.mac if own and seen.mac not in own else ""


def is_somebody_elses(case: Case, trial: PathTrial) -> bool:
    """Whether it is uncertain which machine a connection attempt reached."""
    shared = any(len(address_owners(case, one)) > 1 for one in (trial.address, trial.source))
    return shared or bool(stranger(case, trial))


def interface_at(node: CheckedNode | None, address: str) -> Interface | None:
    """Return the interface of a node that has an address."""
    if node is None:
        return None
    return next(
        (
            one
            for one in node.info.inventory.interfaces
            if any(text.partition("/")[0] == address for text in one.addresses)
        ),
        None,
    )


# Pair checks: the base class of those that judge what nodes found of the ways to each other.


class PairCheck(Check):
    """A check of every path from a node, with one finding per node for all paths that are fine."""

    is_of_ways = True

    def findings(self, case: Case) -> Iterable[Finding]:
        for node in case.nodes:
            trials = [
                one
                for one in case.paths.trials
                if one.node == node.name
                and node.facts is not None
                and not is_somebody_elses(case, one)
                and self.concerns(case, one)
            ]
            found = [bad for one in trials if (bad := self.look(case, node, one)) is not None]
            yield from found
            if trials and not found:
                yield self.passed(node, self.well(trials))

    def concerns(self, case: Case, trial: PathTrial) -> bool:  # noqa: ARG002 - some look at it
        """Whether the check can judge this path."""
        return True

    def closed(
        self, case: Case, node: CheckedNode, trial: PathTrial, said: str, problem: Problem
    ) -> Finding:
        """Return a finding that connections fail; it stops launches that connect that way."""
        if is_dialed(case, trial):
            return self.found("stops", node, said, problem, peer=trial.peer)
        cause = f"{problem.cause}; the ranks of this job connect the other way, so it runs"
        problem = msgspec.structs.replace(problem, cause=cause)
        return self.found("slows", node, said, problem, peer=trial.peer)

    @abstractmethod
    def look(self, case: Case, node: CheckedNode, trial: PathTrial) -> Finding | None:
        """Return what is wrong with a path; ``None`` if nothing is."""

    @abstractmethod
    def well(self, trials: Sequence[PathTrial]) -> str:
        """Return what is shown if nothing is wrong."""


# Addresses: a network that all share, masks that agree, no address twice.


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

    def _none(self, case: Case, told: list[CheckedNode], problem: Problem) -> Finding:
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

    def _judged(self, node: CheckedNode, own: Owned, other: Owned) -> Finding:
        prefix = other.address.network.prefixlen
        return self.slows(
            node,
            f"/{own.address.network.prefixlen}",
            Kind.NO_ROUTE,
            cause=f"its {own.interface.name} has the address {own.address}, and "
            f"{other.node.name}'s {other.interface.name} {other.address}: by their masks these are "
            "two networks, so that no job is run over them, and some packets find no route",
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
            f"{first.interface.name} has, too: what is sent to it reaches "
            "sometimes one, sometimes the other",
            fix=f"on {other.node.name}: {change}",
            peer=first.node.name,
        )

    def _answered_by(self, node: CheckedNode, address: str, mac: str, seen_by: str) -> Finding:
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
    """Return the addresses that a job on all nodes, or on two that share a network, would use."""
    wanted = [node.participant.interface if node.participant else None for node in case.nodes]
    ends = trial_ends([node.info for node in case.nodes], wanted)
    return {host for one in ends for host in (one.address, one.source)}


def _twice(case: Case) -> Iterator[tuple[Owned, Owned]]:
    """Yield pairs of nodes that have the same address, or the same MAC address on one network."""
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
    """Return nodes with an unusual netmask, each with a node that has their network's usual one."""
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


def _place(case: Case, node: CheckedNode) -> int:
    return case.nodes.index(node)


def _neighbors(node: CheckedNode, others: Iterable[CheckedNode]) -> int:
    """Count the other nodes with which a node shares a network."""
    own = {one.address.network for one in owned([node])}
    return sum(
        bool(own & {one.address.network for one in owned([other])})
        for other in others
        if other is not node
    )


# Firewalls: on which side of a way packets are lost, by the kernels' counters. Pure.
#
# A node that tries begins many connections on purpose. Whoever lost them has counted them.


MOST_SHARE: Final = 0.8
"""Of what was begun, this must be found again in the counters; a machine that loses little else is
not blamed for it, and one that drops it all still is if some were lost on the way."""


def blocked(paths: PathsFound, trial: PathTrial, ports: str) -> Problem:
    """Return which firewall or device keeps a node from connecting to its peer.

    Args:
        ports: of the peer, in words.
    """
    found, back = _blocker(paths, trial, ports), _back(paths, trial)
    if found.kind is Kind.LINK_BLOCKED and back is not None and back.trouble is None:
        return msgspec.structs.replace(found, kind=Kind.ONE_WAY_LINK)
    return found


def _blocker(paths: PathsFound, trial: PathTrial, ports: str) -> Problem:
    node, peer = trial.node, trial.peer
    how = "refuses" if trial.trouble in ("refused", "unreachable") else "drops"
    if trial.is_kept:
        return _problem(
            node,
            f"its own firewall does not let it connect to {ports} of {peer}, over "
            f"{trial.interface}",
            _let_out(node, trial.address),
        )
    if trial.source in _half_open(paths, peer):
        return _unanswered(paths, trial, ports)
    if _has_dropped(paths, peer):
        return _problem(
            peer,
            f"its firewall {how} connections from {node} ({trial.source}) to {ports}",
            _let_in(peer, trial.source),
        )
    if trial.neighbor is not None and not trial.neighbor.mac:
        return Problem(
            kind=Kind.NO_ROUTE,
            cause=f"nobody answers for {trial.address} on the network of {node}'s "
            f"{trial.interface}: the two are not on one network, or a cable is unplugged",
            fix=f"check the cables and the VLANs of both, and on {peer}: ip addr",
            node=peer,
        )
    if peer in paths.heard:
        what = "are refused by" if how == "refuses" else "are lost in"
        return _problem(
            node,
            f"connections to {ports} of {peer} over {trial.interface} {what} something between the "
            f"two: they do not arrive at {peer}",
            f"check the switch, its VLANs, and the firewalls between {node} and {peer}",
        )
    return _problem(
        peer,
        f"connections from {node} ({trial.source}) to {ports} fail",
        f"check the firewalls of {peer} and {node}, and those between them",
    )


def _unanswered(paths: PathsFound, trial: PathTrial, ports: str) -> Problem:
    """Return the problem of connections that arrive, but whose answers do not come back."""
    node, peer = trial.node, trial.peer
    back = _back(paths, trial)
    if back is not None and back.is_kept:
        return _problem(
            peer,
            f"its own firewall does not let out its answers to {node}, which connects to {ports}",
            _let_out(peer, trial.source),
        )
    if node in paths.heard and paths.heard[node].dropped >= MOST_SHARE * trial.knocks > 0:
        return _problem(
            node,
            f"its own firewall drops the answers of {peer}, to which it connects over "
            f"{trial.interface}",
            _let_in(node, trial.address),
        )
    return _problem(
        node,
        f"its connections arrive at {peer}, whose answers are lost somewhere between the two",
        f"check the switch, and the firewalls between {node} and {peer}",
    )


def _back(paths: PathsFound, trial: PathTrial) -> PathTrial | None:
    """Return the trial of the same path in the other direction."""
    ends = (trial.peer, trial.node)
    return next((one for one in paths.trials if (one.node, one.peer) == ends), None)


def _has_dropped(paths: PathsFound, peer: str) -> bool:
    """Whether a node has dropped at least as many packets as connections to it have failed."""
    begun = sum(
        one.knocks
        for one in paths.trials
        if one.peer == peer and not one.is_kept and one.source not in _half_open(paths, peer)
    )
    return peer in paths.heard and paths.heard[peer].dropped >= MOST_SHARE * begun > 0


def _half_open(paths: PathsFound, node: str) -> tuple[str, ...]:
    return paths.heard[node].half_open if node in paths.heard else ()


def _let_in(node: str, address: str) -> str:
    return (
        f"on {node}: sudo ufw allow from {address}, or sudo iptables -I INPUT -s {address} -j "
        "ACCEPT (or the same with firewalld or nft)"
    )


def _let_out(node: str, address: str) -> str:
    return (
        f"on {node}: sudo iptables -I OUTPUT -d {address} -j ACCEPT (or the same with ufw, "
        "firewalld or nft)"
    )


def _problem(node: str, cause: str, fix: str) -> Problem:
    return Problem(kind=Kind.LINK_BLOCKED, cause=cause, fix=fix, node=node)


# What a node can connect to: random ports, the rendezvous', the kernel's range.


class ReachablePeers(PairCheck):
    id = "reachable"
    title = "Reaches the others"
    looks_at = (
        "whether each node can connect to each other one on a random high port, from address to "
        "address as a job would, and which side's firewall prevents it"
    )

    def findings(self, case: Case) -> Iterable[Finding]:
        yield from super().findings(case)
        for node in case.nodes:
            if node.facts is not None and (why := case.paths.failed.get(node.name)):
                yield self.unknown(node, why)

    def look(self, case: Case, node: CheckedNode, trial: PathTrial) -> Finding | None:
        if trial.trouble is None:
            return None
        said = f"not to {trial.peer}"
        if trial.trouble == "no source":
            return self.stops(
                node,
                said,
                Kind.NO_INTERFACE,
                cause=f"{trial.interface} has lost its address {trial.source}",
                fix=f"on {node.name}: ip addr show {trial.interface}; give it a fixed address",
                peer=trial.peer,
            )
        open_ports = [one.port for one in trial.tries[1:] if one.trouble is None]
        ports = "high ports"
        if open_ports:
            ports += f" (only {', '.join(map(str, open_ports))} of those tried is open)"
        return self.closed(case, node, trial, said, blocked(case.paths, trial, ports))

    def well(self, trials: Sequence[PathTrial]) -> str:
        known = [one.round_trip_s for one in trials if one.round_trip_s is not None]
        return f"in {max(known) * 1000:.1f} ms" if known else "connects"


class RendezvousPort(PairCheck):
    """Check that the rendezvous port is open, if a random port is.

    For a job, its own port on its head is tried.
    """

    id = "rendezvous-port"
    title = "Rendezvous port"
    is_for_launch = False
    looks_at = "the ports 29400 and 29500, or a job's own: for launches with --port, and scripts"

    def concerns(self, case: Case, trial: PathTrial) -> bool:
        if trial.trouble is not None or (case.job and trial.peer != case.job.head):
            return False
        return bool(_tries(case, trial, is_in_range=False))

    def look(self, case: Case, node: CheckedNode, trial: PathTrial) -> Finding | None:
        closed = _closed(_tries(case, trial, is_in_range=False))
        if not closed:
            return None
        found = blocked(case.paths, trial, f"port {' and '.join(map(str, closed))}")
        fix = f"launch without --port, which takes a free one; or {found.fix}"
        problem = msgspec.structs.replace(found, kind=Kind.PORT_BLOCKED, fix=fix)
        level: Level = "stops" if case.job else "slows"
        return self.found(level, node, f"not to {trial.peer}", problem, peer=trial.peer)

    def well(self, trials: Sequence[PathTrial]) -> str:
        return f"open to {len(trials)}"


class PortRange(PairCheck):
    """Check that ports all over the kernel's range are open, not just a random one."""

    id = "port-range"
    title = "Port range"
    looks_at = (
        "ports near the ends and in the middle of the range that the kernel chooses from: Gloo, "
        "NCCL and torchrun listen anywhere in it"
    )

    def concerns(self, case: Case, trial: PathTrial) -> bool:
        return trial.trouble is None and bool(_tries(case, trial, is_in_range=True))

    def look(self, case: Case, node: CheckedNode, trial: PathTrial) -> Finding | None:
        closed = _closed(_tries(case, trial, is_in_range=True))
        if not closed:
            return None
        first, last = case.paths.ranges[trial.peer]
        found = blocked(case.paths, trial, f"port {' and '.join(map(str, closed))}")
        problem = msgspec.structs.replace(
            found,
            kind=Kind.PORT_BLOCKED,
            cause=f"{found.cause}; a job's ports are anywhere in {first} to {last}, so it "
            "works only by chance",
            fix=f"{found.fix}; or on {trial.peer}, to use only the ports that are open: sudo "
            'sysctl net.ipv4.ip_local_port_range="FIRST LAST"',
        )
        return self.closed(case, node, trial, f"not all to {trial.peer}", problem)

    def well(self, trials: Sequence[PathTrial]) -> str:
        return f"open to {len(trials)}"


def _tries(case: Case, trial: PathTrial, *, is_in_range: bool) -> list[PortTry]:
    """Return the attempts at ports in the kernel's range, or those outside it."""
    first, last = case.paths.ranges.get(trial.peer, (0, 0))
    return [one for one in trial.tries[1:] if (first <= one.port <= last) is is_in_range]


def _closed(tries: Sequence[PortTry]) -> list[int]:
    return [one.port for one in tries if one.trouble is not None]


# The largest packets that come through: jumbo frames over a switch that drops them.


USUAL_MTU = 1500


class PathMtu(PairCheck):
    """Check that large packets pass.

    Different MTUs at the two ends, or a smaller one in between, are fine if TCP adapts to them.
    """

    id = "path-mtu"
    title = "MTU of the path"
    looks_at = (
        "the largest packet that comes through undivided, compared with the MTU of both ends, and "
        "whether many bytes over a connection arrive"
    )

    def concerns(self, case: Case, trial: PathTrial) -> bool:
        if trial.flow == "stuck":  # of an end that hangs, the largest packets are still answered
            is_cut = (trial.path_mtu or 0) < _least_mtu(case, trial)
            return is_cut or trial.are_large_lost  # a firewall may drop them of TCP alone
        return trial.flow == "works"

    def look(self, case: Case, node: CheckedNode, trial: PathTrial) -> Finding | None:
        if trial.flow == "works":
            return None
        both = _least_mtu(case, trial)
        passes = trial.path_mtu if trial.path_mtu != both else None
        largest = f"packets of more than {passes:,} bytes" if passes else "large packets"
        said = f"{passes:,} of {both:,} to {trial.peer}" if passes else f"stuck to {trial.peer}"
        return self.stops(
            node,
            said,
            Kind.MTU_TOO_LARGE,
            cause=f"{largest} do not arrive at {trial.peer} over {trial.interface}, whose MTU is "
            f"{both:,}, though small ones do: a job starts, and hangs at its first large message",
            fix=f"on {node.name} and {trial.peer}: sudo ip link set {trial.interface} mtu "
            f"{_round(passes)}; or set the switch between them to {both:,} bytes",
            peer=trial.peer,
        )

    def well(self, trials: Sequence[PathTrial]) -> str:
        known = [one.path_mtu for one in trials if one.path_mtu]
        return f"{min(known):,} bytes" if known else "large packets arrive"


def _least_mtu(case: Case, trial: PathTrial) -> int:
    """Return the smaller MTU of both ends."""
    ends = (
        interface_at(case.named(trial.node), trial.source),
        interface_at(case.named(trial.peer), trial.address),
    )
    return min((one.mtu for one in ends if one and one.mtu), default=USUAL_MTU)


def _round(passes: int | None) -> int:
    """Return the MTU to set: the usual one if it passes."""
    return passes if passes and passes < USUAL_MTU else USUAL_MTU


# The kernel's routes: over which interface packets leave, whatever a job was told.


class RouteToPeers(PairCheck):
    """Check of routes: Gloo and NCCL choose an interface, but the kernel routes by address."""

    id = "route"
    title = "Routes"
    looks_at = "whether packets to the others leave over the interface that a job uses"

    def concerns(self, case: Case, trial: PathTrial) -> bool:
        node = case.named(trial.node)
        cards = node.info.inventory.interfaces if node else ()
        # An address of loopback may be the source of packets that leave over any card.
        return any(one.name == trial.leaves_by and one.kind != "loopback" for one in cards)

    def look(self, case: Case, node: CheckedNode, trial: PathTrial) -> Finding | None:  # noqa: ARG002
        if trial.leaves_by == trial.interface:
            return None
        return self.slows(
            node,
            f"over {trial.leaves_by}",
            Kind.NO_ROUTE,
            cause=f"packets to {trial.peer} ({trial.address}) leave over {trial.leaves_by}, not "
            f"over {trial.interface}, which a job would use: answers take another path, and the "
            "run is as fast as the wrong network",
            fix=f"on {node.name}: ip route get {trial.address} shows the route; correct it with "
            f"sudo ip route replace {trial.address}/32 dev {trial.interface}, or give the two "
            "interfaces different networks",
            peer=trial.peer,
        )

    def well(self, trials: Sequence[PathTrial]) -> str:
        return ", ".join(dict.fromkeys(one.leaves_by for one in trials))


# The network that a job takes: not a slow one while a fast one is set up wrong.


class UnusedFastNetwork(Check):
    """Check for an unused fast network. A launch warns of it even before it runs the doctor."""

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
    """Return a warning if nodes share a network that is at least about twice as fast.

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


# What a link carries: packets lost, and measured rates.


MOST_RESENT_SHARE = 0.003
"""Share of packets sent again, and least number of them, from which on a link is bad: one TCP
stream in a LAN still carries 1 Gbit/s at 0.3 % (Mathis), and good cables lose none."""
LEAST_RESENT = 4
LEAST_SPEED_SHARE = 0.6
"""A measured link below this share of its cards' speed, or of its own other direction, is slow. A
good one carries 94 %; faster cards than this many Mbit/s are not filled by one connection."""
LEAST_REVERSE_SHARE = 0.5
MOST_FILLED = 10000

MBIT: Final = 1e6 / 8


class ResentPackets(PairCheck):
    id = "resent-packets"
    title = "Lost packets"
    looks_at = "packets that had to be sent again in a short transfer to each other node"

    def concerns(self, case: Case, trial: PathTrial) -> bool:  # noqa: ARG002
        return trial.flow == "lossy" or (trial.load is not None and trial.load.packets > 0)

    def look(self, case: Case, node: CheckedNode, trial: PathTrial) -> Finding | None:  # noqa: ARG002
        lost, said = "even small packets", f"lost to {trial.peer}"
        if trial.load is not None:
            if not is_lossy(trial.load):
                return None
            share = f"{trial.load.again / trial.load.packets:.1%}"
            lost, said = f"{share} of the packets", f"{share} to {trial.peer}"
        return self.slows(
            node,
            said,
            Kind.LINK_SLOW,
            cause=f"{lost} to {trial.peer} over {trial.interface} are lost, and sent again",
            fix=fix_of(Kind.LINK_SLOW, "resent"),
            peer=trial.peer,
        )

    def well(self, trials: Sequence[PathTrial]) -> str:
        packets = sum(one.load.packets for one in trials if one.load)
        again = sum(one.load.again for one in trials if one.load)
        return f"{again} of {packets:,}"


class MeasuredLinks(Check):
    """Check of measured link speeds.

    Only undisturbed measurements count, and only where the card's speed is known.
    """

    id = "measured-link"
    title = "Measured links"
    looks_at = (
        "what a link was measured to carry, compared with the speed of its cards and its other "
        "direction"
    )
    is_for_launch = False  # a launch says by itself which links slow it down

    def findings(self, case: Case) -> Iterable[Finding]:
        for node in case.nodes:
            if node.facts is None:
                continue
            bad = False
            judged = []
            for interface in node.info.inventory.interfaces:
                for link in filter(_is_undisturbed, known_links(interface.links)):
                    judged.append(link)
                    found = self._look(case, node, interface, link)
                    if found is not None:
                        bad = True
                        yield found
            if judged and not bad:
                yield self.passed(node, _rate(min(_carried(one) for one in judged)))

    def _look(
        self, case: Case, node: CheckedNode, interface: Interface, link: LinkMeasurement
    ) -> Finding | None:
        other = interface_at(case.named(link.receiver), link.address)
        carried = _carried(link)
        nominal = _nominal(interface, other)
        back = next(
            (
                _carried(one)
                for one in known_links(other.links if other else ())
                if one.receiver == node.name and _is_undisturbed(one)
            ),
            None,
        )
        if nominal and carried < LEAST_SPEED_SHARE * nominal:
            beside = f"its cards' speed is {_rate(nominal)}"
        elif back and carried < LEAST_REVERSE_SHARE * back:
            beside = f"the other direction carries {_rate(back)}"
        else:
            return None
        return self.slows(
            node,
            f"{_rate(carried)} to {link.receiver}",
            Kind.LINK_SLOW,
            cause=f"{interface.name} was measured to carry {_rate(carried)} to {link.receiver}, "
            f"and {beside}",
            fix=fix_of(Kind.LINK_SLOW),
            peer=link.receiver,
        )


def is_lossy(load: Resent) -> bool:
    """Whether so many packets were lost that TCP is slow; a good cable never loses as many."""
    return load.again >= max(LEAST_RESENT, MOST_RESENT_SHARE * load.packets)


def _nominal(own: Interface, other: Interface | None) -> float | None:
    """Return the slower card's speed in Mbit/s, if one connection can fill it; else ``None``."""
    if other is None or own.kind != "ethernet" or other.kind != "ethernet":
        return None
    speeds = (own.speed_mbit_per_s or 0, other.speed_mbit_per_s or 0)
    return min(speeds) if 0 < min(speeds) <= MOST_FILLED else None


def _is_undisturbed(link: LinkMeasurement) -> bool:
    return link.capacity.source == "measured" and link.capacity.condition == "alone"


def _carried(link: LinkMeasurement) -> float:
    """Return the measured speed in Mbit/s."""
    return link.capacity.bytes_per_s / MBIT


def _rate(mbit_per_s: float) -> str:
    if mbit_per_s >= 1000:
        return f"{mbit_per_s / 1000:.3g} Gbit/s"
    return f"{mbit_per_s:.3g} Mbit/s"
