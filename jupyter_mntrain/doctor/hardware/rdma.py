"""Checks of adapters for InfiniBand and RoCE, which NCCL uses if all nodes of a job have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from jupyter_mntrain.doctor.check import Case, Check, Examined
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.doctor.hardware.hardware_check import HardwareCheck, chosen
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import numbered
from jupyter_mntrain.model.records.doctor.hardware import Hardware
from jupyter_mntrain.model.records.doctor.machine import MachineFacts
from jupyter_mntrain.model.records.node import RdmaLink, RdmaPort
from jupyter_mntrain.plan.networks.rdma import ACTIVE, DOWN, port_trouble

LINKS: Final[tuple[RdmaLink, ...]] = ("InfiniBand", "RoCE")

NO_RDMA: Final = "GeForce"
"""NVIDIA's GPUDirect RDMA is for its data center and professional GPUs."""


class RdmaPorts(Check):
    """RoCE is no loss where one node's card cannot do it, nor are cables that nobody plugged in.

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

    def _judged(self, node: Examined, own: Sequence[RdmaPort], link: RdmaLink) -> Finding:
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
        node: Examined,
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


def _ports(node: Examined) -> tuple[RdmaPort, ...]:
    return node.info.inventory.rdma_ports


def _fix(port: RdmaPort) -> str:
    if port.state == DOWN:
        return "check its cable and its port of the switch; ibstat shows the link"
    if port.state != ACTIVE:
        return "start a subnet manager, sudo systemctl start opensm, or that of the switch"
    if port.obstacle:
        return "sudo modprobe ib_uverbs; start a container with --device /dev/infiniband"
    return "give its interface an IPv4 address: sudo ip addr add ADDRESS/24 dev INTERFACE"
