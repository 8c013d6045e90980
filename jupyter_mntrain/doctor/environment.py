"""Checks of the variables that jobs inherit from their agents.

A launch sets those that name interfaces and devices, threads, ranks and addresses itself: whatever
an agent has of them hurts no job, and is not looked at.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from jupyter_mntrain.doctor.check import Case, Check, CheckedNode, Finding, NodeCheck, chosen
from jupyter_mntrain.doctor.gpus import P2P_DISABLE, peers_among
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.doctor.machine import MachineFacts
from jupyter_mntrain.model.text.foreign import shown_line

# Single nodes' variables: devices that are not there, and what slows every step.


class _Left(NamedTuple):
    """The value of a debugging variable that slows training, and why it does."""

    value: str
    why: str


DEBUG: Final[Mapping[str, _Left]] = {
    "CUDA_LAUNCH_BLOCKING": _Left("1", why="the host waits for every kernel"),
    "TORCH_DISTRIBUTED_DEBUG": _Left(
        "DETAIL", why="every collective is checked with all ranks first"
    ),
    "TORCH_NCCL_BLOCKING_WAIT": _Left("1", why="the host waits for every collective"),
    "TORCH_NCCL_DESYNC_DEBUG": _Left("1", why="every collective is told to all ranks"),
    P2P_DISABLE: _Left("1", why="GPUs of one node exchange data through the host's memory"),
    "NCCL_SHM_DISABLE": _Left("1", why="ranks of one node exchange data through the network"),
}
"""Debugging variables that may have been left set."""

OF_INTERFACES: Final = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")

NEED_GPUS: Final = ("CUDA_", "NCCL_", "TORCH_NCCL_", "PYTORCH_")
"""Prefixes of variables that have no effect on a node without GPUs."""


class DebugVariables(NodeCheck):
    id = "debug-variables"
    title = "Left from debugging"
    looks_at = "debugging variables that slow every step"

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding:
        for name, (value, why) in DEBUG.items():
            if node.variables.get(name, "").upper() != value or name in node.given:
                continue  # what a launch asks for itself, as by --debug, was not left
            if name.startswith(NEED_GPUS) and not node.uses_gpus:
                continue
            if name == P2P_DISABLE and not _is_needless(node, facts):
                continue
            return self.slows(
                node,
                name,
                Kind.NODE,
                cause=f"{name}={value} is set for ranks there: {why}",
                fix=f"on {node.name}: remove it from what starts the agent, and restart "
                f"the agent; or launch with --env {name}=",
            )
        return self.passed(node, "none")


def _is_needless(node: CheckedNode, facts: MachineFacts) -> bool:
    """Whether the node's GPUs certainly read each other's memory without trouble.

    Otherwise, the variable that keeps NCCL from doing so may be there to avoid a hang.
    """
    return facts.hardware is not None and peers_among(chosen(node, facts.hardware.gpus)) == "direct"


class AdapterNames(NodeCheck):
    """Check of NCCL_IB_HCA, which a launch leaves as it is.

    It sets NCCL_SOCKET_IFNAME and the like itself.
    """

    id = "adapter-names"
    title = "NCCL_IB_HCA"
    looks_at = "whether the InfiniBand or RoCE ports that NCCL_IB_HCA names are there"

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding | None:  # noqa: ARG002
        given = node.variables.get("NCCL_IB_HCA", "")
        if not given or given.startswith("^") or not node.uses_gpus:
            return None
        is_exact = given.startswith("=")
        there = {port.device for port in node.info.inventory.rdma_ports if port.state == "ACTIVE"}
        for name in (one.partition(":")[0] for one in given.lstrip("=").split(",")):
            if name in there or (not is_exact and any(one.startswith(name) for one in there)):
                return self.passed(node, shown_line(given))
        has = ", ".join(sorted(there)) or "none"
        return self.slows(
            node,
            "no such port",
            Kind.NCCL,
            cause=f"NCCL_IB_HCA={shown_line(given)} names no active port of it (it has {has}): "
            "NCCL silently uses slower sockets",
            fix=f"on {node.name}: name one, or take it out of what starts the agent, and restart "
            "that: a launch chooses the ports itself",
        )


class InterfaceNames(Check):
    """Check of interface names in the variables of a job and its script.

    A launch overrides those of an agent.
    """

    id = "interface-names"
    title = "Interface names"
    looks_at = (
        "whether the interfaces that a job's own variables name, or those that its script sets, "
        "are there, and up"
    )

    def findings(self, case: Case) -> Iterable[Finding]:
        sets = case.job.script.sets if case.job and case.job.script else {}
        for node in case.nodes:
            every = {**node.given, **sets}
            given = [(name, every[name]) for name in OF_INTERFACES if every.get(name)]
            lost = next((one for one in given if not _leads(*one, node, len(case.nodes))), None)
            if lost is not None:
                yield self._judged(node, *lost, is_of_script=lost[0] in sets)
            elif given:
                yield self.passed(node, "there")

    def _judged(self, node: CheckedNode, name: str, given: str, *, is_of_script: bool) -> Finding:
        without = "take it out of the script" if is_of_script else "launch without it"
        has = [one.name for one in node.info.inventory.interfaces if one.is_up]
        return self.stops(
            node,
            "not there",
            Kind.NO_INTERFACE,
            cause=f"{name}={shown_line(given)} names no interface of it that is up and leads to "
            f"other nodes (it has {', '.join(has) or 'none'})",
            fix=f"{without}: each node's interface is set for it; or choose it with "
            f"--member {node.name}:N:INTERFACE",
        )


def _leads(name: str, given: str, node: CheckedNode, nodes: int) -> bool:
    """Whether a value names an interface that is up.

    NCCL takes prefixes, and ``^`` to exclude some.
    """
    is_exact = given.startswith("=") or not name.startswith("NCCL")
    there = [
        one.name
        for one in node.info.inventory.interfaces
        if one.is_up and (one.kind != "loopback" or nodes == 1)
    ]
    asked = given.lstrip("=").split(",")
    return given.startswith("^") or any(
        _names(one, name, is_exact) for one in asked for name in there
    )


def _names(asked: str, there: str, is_exact: bool) -> bool:
    return there == asked if is_exact else there.startswith(asked)


# Variables that differ between nodes: ranks negotiate nothing that they decide.


COMPARED: Final = re.compile(
    r"(NCCL|GLOO|TP|UCX|TORCH_NCCL|TORCH_GLOO|TORCH_DISTRIBUTED)_\w+"
    r"|PYTORCH_(CUDA_)?ALLOC_CONF"
    r"|CUDA_(MODULE_LOADING|DEVICE_MAX_CONNECTIONS)"
    r"|HF_(HUB_OFFLINE|ENDPOINT)|TRANSFORMERS_OFFLINE|https_proxy"
)
"""Variables about communication between nodes, and with the model hub."""

OF_A_NODE: Final = re.compile(
    r".*(_SOCKET_IFNAME|_HCA|_IB_DISABLE|_GID_INDEX|_NET_DEVICES)"
    r"|.*_(VERSION|HOME|PATH|DIR|FILE|DEBUG\w*)"
)
"""Those that a launch sets, that name what a node has of its own, or only say what is printed."""

MUST_AGREE: Final = re.compile(
    r"NCCL_(ALGO|PROTO|NET|NTHREADS|\w+CHANNELS|BUFFSIZE|COLLNET_ENABLE|NVLS_ENABLE)"
)
"""Ranks that decide these differently wait for each other (NCCL user guide)."""


class _Differing(Check):
    """The base class of checks that compare values which all nodes should have in common."""

    def findings(self, case: Case) -> Iterable[Finding]:
        nodes = [node for node in case.nodes if node.facts is not None]
        if len(nodes) < 2:
            return
        said: set[str] = set()
        for name in self.names(nodes):
            values = [(node, self.value(name, node)) for node in nodes if self.uses(name, node)]
            counts = Counter(value for _, value in values).most_common(2)
            if len(counts) < 2:
                continue
            usual = counts[0][0] if counts[0][1] > counts[1][1] else values[0][1]
            like = next(node for node, value in values if value == usual)
            for node, value in values:
                if value != usual:
                    said.add(node.name)
                    yield self._differs(node, name, value, like, usual)
        yield from (self.passed(node, "agree") for node in nodes if node.name not in said)

    def _differs(
        self, node: CheckedNode, name: str, value: str | None, other: CheckedNode, usual: str | None
    ) -> Finding:
        return (self.stops if self.ends(name) else self.slows)(
            node,
            name,
            Kind.NODE,
            cause=f"{name} is {_shown(value)} here, and {_shown(usual)} on {other.name}: "
            f"{self.why(name)}",
            fix=f"set it alike where the agents start, and restart the one of {node.name}: in its "
            "service with systemctl --user edit, else in the shell that starts it",
        )

    @abstractmethod
    def names(self, nodes: Sequence[CheckedNode]) -> Iterable[str]:
        """Return the variables that are compared."""

    @abstractmethod
    def why(self, name: str) -> str:
        """Return what a differing value leads to."""

    def value(self, name: str, node: CheckedNode) -> str | None:
        return node.variables.get(name)

    def uses(self, name: str, node: CheckedNode) -> bool:  # noqa: ARG002 - of other variables
        """Whether the variable affects what the node does."""
        return True

    def ends(self, name: str) -> bool:  # noqa: ARG002 - of other variables
        """Whether a launch fails or hangs because of it."""
        return False


class CommunicationVariables(_Differing):
    id = "variables"
    title = "Variables"
    looks_at = "variables of NCCL, Gloo, torch, CUDA and the model hub that differ between agents"

    def names(self, nodes: Sequence[CheckedNode]) -> Iterable[str]:
        found = {
            name.lower() if name == "HTTPS_PROXY" else name
            for node in nodes
            for name in node.variables
        }
        return sorted(
            name
            for name in found
            if COMPARED.fullmatch(name) and not OF_A_NODE.fullmatch(name) and name not in DEBUG
        )

    def uses(self, name: str, node: CheckedNode) -> bool:
        return node.uses_gpus or not name.startswith(NEED_GPUS)

    def why(self, name: str) -> str:
        if name.startswith(("HF_", "TRANSFORMERS_", "http", "HTTP")):
            return "one may get a model that the other does not"
        return "ranks of both wait for each other" if self.ends(name) else "ranks behave unlike"

    def value(self, name: str, node: CheckedNode) -> str | None:
        found = node.variables
        return found.get(name) or found.get(name.upper()) or found.get(name)

    def ends(self, name: str) -> bool:
        return MUST_AGREE.fullmatch(name) is not None


class ImportVariables(_Differing):
    id = "import-variables"
    title = "Import paths"
    looks_at = "PYTHONPATH and LD_PRELOAD, which decide what ranks import"

    def names(self, nodes: Sequence[CheckedNode]) -> Iterable[str]:  # noqa: ARG002 - always these
        return ("PYTHONPATH", "LD_PRELOAD")

    def why(self, name: str) -> str:
        return "ranks may import other code" if name == "PYTHONPATH" else "ranks load other code"

    def value(self, name: str, node: CheckedNode) -> str | None:
        # The same folder in the homes of two users is the same place.
        found = node.variables.get(name)
        return re.sub(r"(?<![^:])/(home|Users)/[^/:]+", "~", found) if found else None


def _shown(value: str | None) -> str:
    return "not set" if value is None else shown_line(value) or "empty"
