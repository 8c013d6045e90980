"""Checks of the software that ranks run with, as reported after torch was imported."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable

from jupyter_mntrain.doctor.check import Case, Check, CheckedNode, Finding, Level, NodeCheck
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.doctor.loaded import LoadedSoftware
from jupyter_mntrain.model.records.doctor.machine import LOADERS, MachineFacts
from jupyter_mntrain.model.records.node import Gpu
from jupyter_mntrain.model.text.foreign import shown_line
from jupyter_mntrain.plan.software.versions import ABSENT, divergences, version_problem

# Torch as it is loaded: whether it is, and whether it is the one that was installed.


class LoadedCheck(NodeCheck):
    """A check of the imported software.

    Another check reports nodes where nothing could be imported.
    """

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding | None:
        if facts.loaded is None or facts.loaded.error:
            return None
        return self.judge(node, facts.loaded)

    @abstractmethod
    def judge(self, node: CheckedNode, loaded: LoadedSoftware) -> Finding | None:
        """Return what there is to say about it; ``None`` if it does not concern the node."""


class TorchImport(NodeCheck):
    id = "torch-import"
    title = "torch"
    looks_at = "whether the interpreter of jobs imports torch"

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding:
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
            "install torch again for that interpreter",
        )


class TorchVersion(LoadedCheck):
    id = "torch-version"
    title = "torch loaded"
    looks_at = "whether the torch that is imported is the one that is installed"

    def judge(self, node: CheckedNode, loaded: LoadedSoftware) -> Finding | None:
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
    """Return a version without a local part like ``+cu128``, which metadata may lack."""
    return version.partition("+")[0]


# CUDA and NCCL as they are loaded, on nodes with GPUs.


_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)[af]?")


class CudaStart(LoadedCheck):
    id = "cuda-start"
    title = "CUDA"
    looks_at = "whether CUDA starts in the interpreter of jobs, where there are GPUs"

    def judge(self, node: CheckedNode, loaded: LoadedSoftware) -> Finding | None:
        gpus = node.info.inventory.gpus
        if not gpus or not node.uses_gpus:
            return None
        if loaded.cuda is None:
            return self.stops(
                node,
                "not built for it",
                Kind.NO_CUDA,
                cause=f"it has {gpus[0].name}, and its torch {loaded.torch} is built without CUDA",
                fix=f"on {node.name}: install the CUDA build of torch for {loaded.python}",
            )
        if not loaded.cuda_error and loaded.devices != 0:
            return self.passed(node, loaded.cuda)
        cause = shown_line(loaded.cuda_error) or "it sees no GPU"
        return self.stops(
            node,
            "does not start",
            Kind.NO_CUDA,
            cause=f"CUDA does not start in {loaded.python}: {cause}",
            fix=f"on {node.name}: see nvidia-smi; after an update of the driver, reboot; with "
            "NVSwitch: sudo systemctl start nvidia-fabricmanager; in a container: --gpus all",
        )


class CudaArchitectures(LoadedCheck):
    id = "cuda-architectures"
    title = "GPU supported"
    looks_at = "whether torch is compiled for the node's GPUs"

    def judge(self, node: CheckedNode, loaded: LoadedSoftware) -> Finding | None:
        known = [gpu for gpu in node.info.inventory.gpus if gpu.compute_capability is not None]
        if not known or not node.uses_gpus or not loaded.architectures:
            return None
        foreign = next((gpu for gpu in known if not _is_compiled(gpu, loaded)), None)
        if foreign is None:
            return self.passed(node, "yes")
        of_card = ".".join(map(str, foreign.compute_capability or ()))
        return self.stops(
            node,
            f"not {of_card}",
            Kind.NO_CUDA,
            cause=f"torch {loaded.torch} is compiled for {', '.join(loaded.architectures)}, and "
            f"{foreign.name} has compute capability {of_card}",
            fix=f"on every node, install a torch that is built for it; or leave out {node.name}",
        )


class NcclLoaded(Check):
    id = "nccl-loaded"
    title = "NCCL"
    looks_at = "the NCCL that torch loads, on nodes with GPUs: it must be the same everywhere"

    def findings(self, case: Case) -> Iterable[Finding]:
        known = [
            (node, node.facts.loaded.nccl)
            for node in case.nodes
            if node.uses_gpus and node.facts and node.facts.loaded
            if node.facts.loaded.nccl is not None
        ]
        versions = Counter(version for _, version in known).most_common(2)
        is_split = len(versions) > 1 and versions[0][1] == versions[1][1]
        for node, own in known:
            if own == versions[0][0] and not is_split:
                yield self.passed(node, own)
                continue
            other = next((one.name, version) for one, version in known if version != own)
            yield self._differs(case, node, own, *other)

    def _differs(
        self, case: Case, node: CheckedNode, own: str, other: str, version: str
    ) -> Finding:
        is_acknowledged = case.job is not None and case.job.mixed_versions
        return (self.slows if is_acknowledged else self.stops)(
            node,
            own,
            Kind.MIXED_VERSIONS,
            cause=f"its torch loads NCCL {own}, that of {other} NCCL {version}: they do not talk "
            "to each other",
            fix=f"install the same torch on every node; on {node.name}, look for another "
            "libnccl.so.2 in LD_LIBRARY_PATH and LD_PRELOAD",
        )


def _is_compiled(gpu: Gpu, loaded: LoadedSoftware) -> bool:
    """Whether torch has code for a GPU: for its major version, or PTX for an earlier one."""
    major, minor = (*(gpu.compute_capability or ()), 0, 0)[:2]
    for name in loaded.architectures:
        found = _ARCHITECTURE.fullmatch(name)
        if found is None:
            return True  # a name that is new: it is not judged
        of = int(found[2]), int(found[3])
        if of <= (major, minor) and (found[1] == "compute" or of[0] == major):
            return True
    return False


# Versions that have to agree between nodes, as a launch compares them.


class AgreeingVersions(Check):
    """Check that nodes have the same versions.

    Participants are left out: a launch compares those of the job's own interpreter.
    """

    id = "versions"
    title = "Versions"
    looks_at = (
        "mntrain, torch, transformers, CUDA, NCCL, Python, architecture and GPU driver, next to "
        "the other nodes'"
    )
    is_for_launch = False

    def findings(self, case: Case) -> Iterable[Finding]:
        nodes = [node for node in case.nodes if node.facts is not None]
        if len(nodes) < 2 or any(node.participant is not None for node in nodes):
            return
        # Those that stop a launch first.
        different = sorted(
            divergences([node.info for node in nodes]), key=lambda one: one.is_harmless
        )
        for node in nodes:
            own = next((one for one in different if one.node == node.name), None)
            if own is None:
                yield self.passed(node, "agree")
            elif own.key == "driver":  # no job minds
                yield self.passed(node, f"driver {own.value or ABSENT}")
            else:
                said = f"{own.key} {own.value or ABSENT}"
                level: Level = "slows" if own.is_harmless else "stops"
                yield self.found(level, node, said, version_problem(own))
