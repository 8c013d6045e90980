"""Checks of torch as it is loaded: whether it is, and whether it is the one that was installed."""

from __future__ import annotations

from abc import abstractmethod

from jupyter_mntrain.doctor.check import Examined, NodeCheck
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.doctor.loaded import LoadedSoftware
from jupyter_mntrain.model.records.doctor.machine import LOADERS, MachineFacts
from jupyter_mntrain.model.text.foreign import shown_line


class LoadedCheck(NodeCheck):
    """A check of what was loaded; of nodes where nothing could be, another one tells."""

    def look(self, node: Examined, facts: MachineFacts) -> Finding | None:
        if facts.loaded is None or facts.loaded.error:
            return None
        return self.judge(node, facts.loaded)

    @abstractmethod
    def judge(self, node: Examined, loaded: LoadedSoftware) -> Finding | None:
        """What there is to say of it; ``None`` if it does not concern the node."""


class TorchImport(NodeCheck):
    id = "torch-import"
    title = "torch"
    looks_at = "whether the interpreter of jobs imports torch"

    def look(self, node: Examined, facts: MachineFacts) -> Finding:
        loaded = facts.loaded
        if loaded is None:
            return self.unknown(node, "its interpreter is being asked: examine it again")
        if not loaded.error:
            return self.passed(node, loaded.torch or "yes")
        given = [name for name in LOADERS if name in node.given]
        if given and not loaded.has_started:
            return self.stops(
                node,
                "does not start",
                Kind.NOT_STARTED,
                cause=f"{loaded.python} does not start with the job's {', '.join(given)}: "
                f"{shown_line(loaded.error)}",
                fix=f"launch without --env {given[0]}, or correct what it names",
            )
        return self.stops(
            node,
            "not imported",
            Kind.NO_MODULE,
            cause=f"{loaded.python} cannot import torch: {shown_line(loaded.error)}",
            fix=f'on {node.name}, see all of it with {loaded.python} -c "import torch", and '
            "install torch anew for that interpreter",
        )


class TorchVersion(LoadedCheck):
    id = "torch-version"
    title = "torch loaded"
    looks_at = "whether the torch that is imported is the one that is installed"

    def judge(self, node: Examined, loaded: LoadedSoftware) -> Finding | None:
        installed, found = node.info.inventory.versions.torch, loaded.torch
        if installed is None or found is None:
            return None
        if _release(installed) == _release(found):
            return self.passed(node, found)
        return self.slows(
            node,
            found,
            Kind.MIXED_VERSIONS,
            cause=f"torch {installed} is installed, but {found} is imported, from "
            f"{shown_line(loaded.torch_file)}",
            fix=f"on {node.name}: take that folder out of PYTHONPATH, or restart the agent if "
            "torch was installed since it started",
        )


def _release(version: str) -> str:
    """Metadata may lack the build that ``__version__`` names: ``2.9.0+cu128``."""
    return version.partition("+")[0]
