"""Checks of variables that differ between nodes: ranks negotiate nothing that they decide."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from jupyter_mntrain.doctor.check import Case, Check, Examined
from jupyter_mntrain.doctor.environment.single import DEBUG, NEED_GPUS
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.text.foreign import shown_line

COMPARED: Final = re.compile(
    r"(NCCL|GLOO|TP|UCX|TORCH_NCCL|TORCH_GLOO|TORCH_DISTRIBUTED)_\w+"
    r"|PYTORCH_(CUDA_)?ALLOC_CONF"
    r"|CUDA_(MODULE_LOADING|DEVICE_MAX_CONNECTIONS)"
    r"|HF_(HUB_OFFLINE|ENDPOINT)|TRANSFORMERS_OFFLINE|https_proxy"
)
"""Variables by which nodes talk to each other, or to the hub of models."""

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
    """A check of values that all nodes should have in common."""

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
        self, node: Examined, name: str, value: str | None, other: Examined, usual: str | None
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
    def names(self, nodes: Sequence[Examined]) -> Iterable[str]:
        """The variables that are compared."""

    @abstractmethod
    def why(self, name: str) -> str:
        """What comes of it."""

    def value(self, name: str, node: Examined) -> str | None:
        return node.variables.get(name)

    def uses(self, name: str, node: Examined) -> bool:  # noqa: ARG002 - of other variables
        """Whether what a node does depends on it."""
        return True

    def ends(self, name: str) -> bool:  # noqa: ARG002 - of other variables
        """Whether a launch fails, or hangs, because of it."""
        return False


class CommunicationVariables(_Differing):
    id = "variables"
    title = "Variables"
    looks_at = "variables of NCCL, Gloo, torch, CUDA and the model hub that differ between agents"

    def names(self, nodes: Sequence[Examined]) -> Iterable[str]:
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

    def uses(self, name: str, node: Examined) -> bool:
        return node.uses_gpus or not name.startswith(NEED_GPUS)

    def why(self, name: str) -> str:
        if name.startswith(("HF_", "TRANSFORMERS_", "http", "HTTP")):
            return "one may get a model that the other does not"
        return "ranks of both wait for each other" if self.ends(name) else "ranks behave unlike"

    def value(self, name: str, node: Examined) -> str | None:
        found = node.variables
        return found.get(name) or found.get(name.upper()) or found.get(name)

    def ends(self, name: str) -> bool:
        return MUST_AGREE.fullmatch(name) is not None


class ImportVariables(_Differing):
    id = "import-variables"
    title = "Import paths"
    looks_at = "PYTHONPATH and LD_PRELOAD, which decide what ranks import"

    def names(self, nodes: Sequence[Examined]) -> Iterable[str]:  # noqa: ARG002 - always these
        return ("PYTHONPATH", "LD_PRELOAD")

    def why(self, name: str) -> str:
        return "ranks may import other code" if name == "PYTHONPATH" else "ranks load other code"

    def value(self, name: str, node: Examined) -> str | None:
        # The same folder in the homes of two users is the same place.
        found = node.variables.get(name)
        return re.sub(r"(?<![^:])/(home|Users)/[^/:]+", "~", found) if found else None


def _shown(value: str | None) -> str:
    return "not set" if value is None else shown_line(value) or "empty"
