"""Checks of CUDA and NCCL as they are loaded, on nodes with GPUs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from jupyter_mntrain.doctor.check import Case, Check, Examined
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.doctor.software.torch_loads import LoadedCheck
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.doctor.loaded import LoadedSoftware
from jupyter_mntrain.model.records.node import Gpu
from jupyter_mntrain.model.text.foreign import shown_line

_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)[af]?")


class CudaStart(LoadedCheck):
    id = "cuda-start"
    title = "CUDA"
    looks_at = "whether CUDA starts in the interpreter of jobs, where there are GPUs"

    def judge(self, node: Examined, loaded: LoadedSoftware) -> Finding | None:
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

    def judge(self, node: Examined, loaded: LoadedSoftware) -> Finding | None:
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

    def _differs(self, case: Case, node: Examined, own: str, other: str, version: str) -> Finding:
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
    """Machine code runs on its own major version, from its minor version on; PTX on all later."""
    major, minor = (*(gpu.compute_capability or ()), 0, 0)[:2]
    for name in loaded.architectures:
        found = _ARCHITECTURE.fullmatch(name)
        if found is None:
            return True  # a name that is new: it is not judged
        of = int(found[2]), int(found[3])
        if of <= (major, minor) and (found[1] == "compute" or of[0] == major):
            return True
    return False
