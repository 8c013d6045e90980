"""Checks of network cards and RDMA adapters."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from jupyter_mntrain.doctor.check import Case, Check, CheckedNode, Finding, HardwareCheck, chosen
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import numbered
from jupyter_mntrain.model.records.doctor.hardware import Hardware, NetworkCard
from jupyter_mntrain.model.records.doctor.machine import MachineFacts
from jupyter_mntrain.model.records.node import Interface, RdmaLink, RdmaPort
from jupyter_mntrain.model.text.foreign import shown_name
from jupyter_mntrain.plan.networks.rdma import ACTIVE, DOWN, port_trouble

# Network cards: what they agreed on with the other end, errors, and broken links.


MOST_PER_MILLION = 100
"""Damaged packets of a million from which on TCP is slow: at 100 one stream in a LAN carries about
7 Gbit/s (Mathis). Fewer errors than this many are not looked at, nor fewer while the doctor
asked."""
LEAST_ERRORS = 100
LEAST_NEW_ERRORS = 10
MOST_STARTS = 10
"""A link that came up more often than this, and more often in a day, is unstable."""
MOST_STARTS_PER_DAY = 4

DAY_S = 86400.0
SLOW_MBIT = 100
"""What a card for 1 Gbit/s falls back to if one of the cable's four pairs is broken."""


class NetworkDuplex(HardwareCheck):
    id = "network-duplex"
    title = "Duplex"
    looks_at = "whether a network card sends and receives at once"

    def inspect(
        self,
        node: CheckedNode,
        facts: MachineFacts,  # noqa: ARG002 - hardware's
        hardware: Hardware,
    ) -> Finding | None:
        cards = [one for one in _usable(node, hardware) if one.speed_mbit_per_s]
        if not cards:
            return None
        half = next((one for one in cards if one.is_half_duplex), None)
        if half is None:
            return self.passed(node, "full")
        name = shown_name(half.name)
        return self.slows(
            node,
            "half",
            Kind.LINK_SLOW,
            cause=f"{name} has agreed on half duplex: it loses packets as soon as both ends send",
            fix=f"on {node.name}: sudo ethtool -s {name} autoneg on; also set the switch's port to "
            "auto",
        )


class NetworkSpeed(Check):
    id = "network-speed"
    title = "Link speed"
    looks_at = (
        "the speed a network card agreed on, compared with what it, the other end and the other "
    )
    looks_at += "nodes of its subnet can"

    def findings(self, case: Case) -> Iterable[Finding]:
        fastest: dict[str, tuple[int, str]] = {}
        for node, card, subnets in _all_cards(case):
            for subnet in subnets:
                speed = card.speed_mbit_per_s or 0
                fastest[subnet] = max(fastest.get(subnet, (0, "")), (speed, node.name))
        said: dict[str, Finding] = {}
        for node, card, subnets in _all_cards(case):
            others = max((fastest[one] for one in subnets), default=(0, ""))
            found = self._judged(node, card, *others)
            if node.name not in said or found.problem:
                said[node.name] = found
        for node in case.nodes:
            if node.facts is None or node.facts.hardware is None:
                yield self.unknown(node, "its agent did not report it")
        yield from said.values()

    def _judged(self, node: CheckedNode, card: NetworkCard, others: int, other: str) -> Finding:
        speed, most = card.speed_mbit_per_s or 0, card.most_mbit_per_s or 0
        agreeable = min(card.offered_mbit_per_s or 0, card.peer_offered_mbit_per_s or 0)
        name, text = shown_name(card.name), _speed(speed)
        cause = ""
        if speed < agreeable:
            cause = f"{name} runs at {text}, but both ends offer {_speed(agreeable)}"
        elif speed <= SLOW_MBIT < most:
            cause = f"{name} runs at {text}, but could run at {_speed(most)}"
        elif speed < others <= most:
            cause = f"{name} runs at {text}, but could run at {_speed(most)}; {other} of the "
            cause += f"same subnet runs at {_speed(others)}"
        if not cause:
            return self.passed(node, text)
        return self.slows(
            node,
            text,
            Kind.LINK_SLOW,
            cause=cause,
            fix=f"change the cable of {node.name}'s {name}, then its port of the switch; "
            f"sudo ethtool {name} shows what both ends offer",
        )


class NetworkErrors(HardwareCheck):
    id = "network-errors"
    title = "Packet errors"
    looks_at = "damaged or missed packets of network cards, since boot and while it looks"

    def inspect(
        self,
        node: CheckedNode,
        facts: MachineFacts,  # noqa: ARG002 - hardware's
        hardware: Hardware,
    ) -> Finding | None:
        cards = _usable(node, hardware)
        if not cards:
            return None
        worst = max(cards, key=lambda one: (one.new_errors, one.errors / max(1, one.packets)))
        share = worst.errors / max(1, worst.packets)
        is_growing = worst.new_errors >= LEAST_NEW_ERRORS
        if not is_growing and (worst.errors < LEAST_ERRORS or share * 1e6 < MOST_PER_MILLION):
            return self.passed(node, f"{worst.errors:,}")
        name = shown_name(worst.name)
        since = "since boot" if not is_growing else f"{worst.new_errors:,} just now"
        return self.slows(
            node,
            f"{worst.errors:,}",
            Kind.LINK_SLOW,
            cause=f"{name} has received damaged, or missed, {worst.errors:,} of {worst.packets:,} "
            f"packets ({since})",
            fix=f"change the cable of {node.name}'s {name}, then its port of the switch; "
            f"ethtool -S {name} and ip -s -s link show {name} count them by cause",
        )


class NetworkCarrier(HardwareCheck):
    id = "network-carrier"
    title = "Broken links"
    looks_at = "how often the link of a network card has come up since boot"
    is_for_launch = False

    def inspect(
        self,
        node: CheckedNode,
        facts: MachineFacts,  # noqa: ARG002 - hardware's
        hardware: Hardware,
    ) -> Finding | None:
        counts = {
            one.name: one.came_up for one in _usable(node, hardware) if one.came_up is not None
        }
        if not counts:
            return None
        name, count = max(counts.items(), key=lambda one: one[1])
        if count <= max(MOST_STARTS, MOST_STARTS_PER_DAY * hardware.up_s / DAY_S):
            return self.passed(node, "none" if count <= 1 else f"{count - 1}")
        name = shown_name(name)
        return self.slows(
            node,
            f"{count - 1}",
            Kind.LINK_DOWN,
            cause=f"the link of {name} has broken {count - 1} times since boot",
            fix=f"change the cable of {node.name}'s {name}, then its port of the switch; "
            f"sudo dmesg | grep {name} tells when",
        )


class NetworkAddress(Check):
    id = "network-address"
    title = "IPv4 address"
    looks_at = "whether a network interface that is up has an IPv4 address, if there are others"

    def findings(self, case: Case) -> Iterable[Finding]:
        for node in case.nodes if len(case.nodes) > 1 else ():
            if node.facts is None:
                yield self.unknown(node, "its agent did not report it")
                continue
            named = node.participant.interface if node.participant is not None else None
            up = [
                one
                for one in node.info.inventory.interfaces
                if one.is_up and (one.name == named if named else _is_card(one))
            ]
            good = [one for one in up if one.addresses]
            if good:
                yield self.passed(node, good[0].addresses[0])
            elif up:
                name = shown_name(up[0].name)
                # Its agent was reached over something else, which a job may name.
                yield (self.stops if named else self.slows)(
                    node,
                    "none",
                    Kind.NO_INTERFACE,
                    cause=f"{name} is up, but has no IPv4 address",
                    fix=f"on {node.name}: sudo dhclient {name}, or sudo ip addr add ADDRESS/24 dev "
                    f"{name}; nmcli or netplan keep it",
                )


def _usable(node: CheckedNode, hardware: Hardware) -> list[NetworkCard]:
    """Return the cards of the interfaces that a job may use, or of the one that it names."""
    named = node.participant.interface if node.participant is not None else None
    usual = {one.name for one in node.info.inventory.interfaces if _is_card(one) and one.addresses}
    names = {named} if named else usual
    return [one for one in hardware.cards if one.interface in names]


def _all_cards(case: Case) -> Iterator[tuple[CheckedNode, NetworkCard, set[str]]]:
    """Yield every card whose speed is known, with its node and the subnets of its interface."""
    for node in case.nodes:
        if node.facts is None or node.facts.hardware is None:
            continue
        subnets = {
            one.name: {str(ipaddress.ip_interface(two).network) for two in one.addresses}
            for one in node.info.inventory.interfaces
        }
        for card in _usable(node, node.facts.hardware):
            if card.speed_mbit_per_s:
                yield node, card, subnets.get(card.interface, set())


def _is_card(one: Interface) -> bool:
    return one.is_up and one.kind == "ethernet"


def _speed(mbit: int) -> str:
    return f"{mbit / 1000:g} Gbit/s" if mbit >= 1000 else f"{mbit} Mbit/s"


# Adapters for InfiniBand and RoCE, which NCCL uses if all nodes of a job have them.


LINKS: Final[tuple[RdmaLink, ...]] = ("InfiniBand", "RoCE")

NO_RDMA: Final = "GeForce"
"""NVIDIA's GPUDirect RDMA is for its data center and professional GPUs."""


class RdmaPorts(Check):
    """Check of RDMA ports.

    A card without RoCE on any of the nodes is no loss, nor is a port without a cable.

    A launch says for itself why it does not use them.
    """

    id = "rdma-ports"
    title = "InfiniBand and RoCE"
    looks_at = "on nodes with GPUs, whether a port of an adapter is active and may be opened"
    is_for_launch = False

    def findings(self, case: Case) -> Iterable[Finding]:
        nodes = [node for node in case.nodes if node.info.inventory.gpus]
        for link in LINKS:
            ports = [[one for one in _ports(node) if one.link == link] for node in nodes]
            is_used = any(port.state != DOWN for own in ports for port in own)
            if len(nodes) < 2 or not is_used or (link == "RoCE" and not all(ports)):
                continue
            for node, own in zip(nodes, ports, strict=True):
                yield self._judged(node, own, link)

    def _judged(self, node: CheckedNode, own: Sequence[RdmaPort], link: RdmaLink) -> Finding:
        good = [port for port in own if port_trouble(port, node.info) is None]
        if good or not own:
            return self.passed(node, f"{link}, {len(good)} of {len(own)}" if own else f"no {link}")
        if node.facts is not None and node.facts.environment.get("NCCL_IB_DISABLE") == "1":
            return self.passed(node, "switched off")
        best = min(own, key=lambda port: (port.state != ACTIVE, port.state == DOWN))
        return self.slows(
            node,
            best.state,
            Kind.SLOW_LINK,
            cause=f"{best.device} port {best.number} {port_trouble(best, node.info)}: NCCL uses "
            f"TCP instead of {link}",
            fix=f"on {node.name}: {_fix(best)}",
        )


class GpuDirectRdma(HardwareCheck):
    id = "gpu-direct"
    title = "GPUDirect RDMA"
    looks_at = "whether an adapter for InfiniBand or RoCE reaches the memory of GPUs, and those on "
    looks_at += "its own processor"
    is_for_launch = False

    def inspect(
        self,
        node: CheckedNode,
        facts: MachineFacts,  # noqa: ARG002 - hardware's
        hardware: Hardware,
    ) -> Finding | None:
        gpus = [one for one in chosen(node, hardware.gpus) if NO_RDMA not in one.name]
        ports = [one for one in _ports(node) if port_trouble(one, node.info) is None]
        if not gpus or not ports:
            return None
        way = node.info.inventory.gpu_direct
        if way is None:
            return self.slows(
                node,
                "none",
                Kind.SLOW_LINK,
                cause="neither nvidia-peermem nor dma-buf: what ranks send over "
                f"{ports[0].link} is copied through the host's memory",
                fix=f"on {node.name}: sudo modprobe nvidia-peermem, or install NVIDIA's open "
                "kernel modules on Linux 5.12 or newer",
            )
        known = hardware.adapter_numa_nodes
        near = {known[port.device] for port in ports if port.device in known}
        far = [one.index for one in gpus if near and one.numa_node not in {None, *near}]
        if len(far) < len(gpus):
            more = f"; {numbered('GPU', far)} across" if far else ""
            return self.passed(node, f"{way}{more}")
        return self.slows(
            node,
            "across",
            Kind.SLOW_LINK,
            cause=f"{numbered('GPU', far)} and {ports[0].device} are attached to different "
            "processors: what ranks send crosses the link between these",
            fix=f"choose GPUs of NUMA node {min(near)} of {node.name}, or put the adapter next to "
            "these; nvidia-smi topo -m shows where each is",
        )


def _ports(node: CheckedNode) -> tuple[RdmaPort, ...]:
    return node.info.inventory.rdma_ports


def _fix(port: RdmaPort) -> str:
    if port.state == DOWN:
        return "check its cable and its port of the switch; ibstat shows the link"
    if port.state != ACTIVE:
        return "start a subnet manager, sudo systemctl start opensm, or that of the switch"
    if port.obstacle:
        return "sudo modprobe ib_uverbs; start a container with --device /dev/infiniband"
    return "give its interface an IPv4 address: sudo ip addr add ADDRESS/24 dev INTERFACE"
