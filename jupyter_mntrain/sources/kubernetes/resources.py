"""Resources: what nodes of a Kubernetes cluster offer, and what a pod requests. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.quantities import agreeing
from jupyter_mntrain.model.sources.source import NodesRequest
from jupyter_mntrain.sources.kubernetes.options import AUTO, Amount, Gpus, gpus_of, rdma_of

GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/xe", "gpu.intel.com/i915")
"""By device plugin. The first is the default if none is given and nodes may not be listed."""

SHARED_GPUS = ("nvidia.com/mig-", "nvidia.com/gpu.shared")
"""Parts of a GPU: taken only by name."""

RDMA_PREFIX = "rdma/"
"""Of the shared device plugin, whose administrators choose what follows."""
RDMA = ("nvidia.com/mlnxnics", "vpc.amazonaws.com/efa")
"""Other names that are always of RDMA devices."""

MODEL_LABELS = {
    "nvidia.com/gpu": "nvidia.com/gpu.product",
    "amd.com/gpu": "amd.com/gpu.product-name",
}
"""Label of a node that names its GPUs, by their resource."""


class Offered(NamedTuple):
    """Resources that nodes offer: the most of each that any single node has, by name."""

    gpus: Mapping[str, int] = {}
    rdma: Mapping[str, int] = {}


def offered(nodes: Iterable[Mapping[str, Any]]) -> Offered:
    """Return what a list of Node objects offers."""
    gpus: dict[str, int] = {}
    rdma: dict[str, int] = {}
    for node in nodes:
        for name, quantity in (node.get("status", {}).get("allocatable") or {}).items():
            count = int(quantity) if str(quantity).isdecimal() else 0
            if name in GPUS or name.startswith(SHARED_GPUS):
                gpus[name] = max(count, gpus.get(name, 0))
            if name in RDMA or name.startswith(RDMA_PREFIX):
                rdma[name] = max(count, rdma.get(name, 0))
    return Offered(
        {name: count for name, count in gpus.items() if count},
        {name: count for name, count in rdma.items() if count},
    )


class AskedResources(NamedTuple):
    """Resources that each pod requests besides CPU and memory."""

    gpus: Amount | None = None
    model: Mapping[str, str] = {}
    rdma: Amount | None = None


def asked(request: NodesRequest, of: Offered | None) -> AskedResources:
    """Resolve the requested resources to their names in this cluster.

    Args:
        of: ``None`` = no node was asked: only what is given by name, and GPUs as NVIDIA's.

    Raises:
        SpecError: the nodes do not offer it, or offer several and none is given by name.
    """
    gpus = gpus_of(request)
    resource = _gpu_resource(request, gpus, of) if gpus.each else ""
    model = {MODEL_LABELS.get(resource, MODEL_LABELS[GPUS[0]]): gpus.model} if gpus.model else {}
    return AskedResources(
        Amount(resource, gpus.each) if gpus.each else None, model, _rdma(request, of)
    )


def _gpu_resource(request: NodesRequest, gpus: Gpus, of: Offered | None) -> str:
    given = request.option("gpu-resource")
    if of is None:
        return given or GPUS[0]
    whole = [name for name in GPUS if name in of.gpus]
    if not given and len(whole) != 1:
        _refuse_unclear("GPUs", "--gpu-resource", whole or list(of.gpus))
    name = given or whole[0]
    most = of.gpus.get(name)
    if given and most is None and given not in GPUS:
        return given  # a plugin that we do not know
    if not most or most < gpus.each:
        told = f"no node has more than {most} of {name}" if most else f"no node offers {name}"
        fix = f"ask for at most {most} per node, on more nodes" if most else _other_gpus(of)
        raise SpecError(f"--gpus {gpus.each}: {told}", fix=fix)
    return name


def _other_gpus(of: Offered) -> str:
    if not of.gpus:
        return "ask the administrators for GPU nodes, and for their device plugin"
    return f"use --gpu-resource {' or '.join(sorted(of.gpus))}"


def _rdma(request: NodesRequest, of: Offered | None) -> Amount | None:
    given = rdma_of(request)
    if given is not None and of is not None and of.rdma and given.resource not in of.rdma:
        fix = f"use one of {', '.join(sorted(of.rdma))}"
        raise SpecError(f"--rdma: no node offers {given.resource}", fix=fix)
    if given is not None or of is None or request.option("rdma") != AUTO:
        return given
    if not of.rdma:
        fix = (
            "leave --rdma out to train over TCP, or ask the administrators for the resource's name"
        )
        raise SpecError("--rdma auto: no node offers RDMA devices", fix=fix)
    if len(of.rdma) > 1:
        _refuse_unclear("RDMA devices", "--rdma", sorted(of.rdma))
    return Amount(next(iter(of.rdma)))


def _refuse_unclear(what: str, flag: str, names: list[str]) -> None:
    if not names:
        fix = "ask the administrators for GPU nodes, and for their device plugin"
        raise SpecError(f"no node offers {what}", fix=fix)
    verb = agreeing(names, "is", "are")
    raise SpecError(f"there {verb} {what} under {', '.join(names)}", fix=f"choose with {flag}")


def limits(request: NodesRequest, asks: AskedResources) -> dict[str, str]:
    """Return the container's limits, which are also its requests."""
    told = {name: request.option(name) for name in ("cpu", "memory") if request.option(name)}
    for amount in (asks.gpus, asks.rdma):
        if amount is not None:
            told[amount.resource] = str(amount.each)
    return told
