"""Faults of what ranks load, and of the variables that they inherit."""

from __future__ import annotations

from typing import Any

import msgspec

from jupyter_mntrain.doctor.check import Case
from tests.doctor.faults.fault import Fault
from tests.doctor.healthy import (
    changed,
    loaded,
    loaded_on_gpus,
    with_gpus,
    with_inventory,
    with_node,
)
from tests.standin.nodes import gpu


def with_loaded(case: Case, **fields: Any) -> Case:
    """The second node's interpreter loads something else."""
    return changed(case, loaded=msgspec.structs.replace(loaded(), **fields))


def every_with_gpus(case: Case) -> Case:
    """Every node has two GPUs."""
    for at in range(len(case.nodes)):
        case = with_gpus(case, at)
    return case


def with_cuda(case: Case, **fields: Any) -> Case:
    """The same, but the second node's interpreter loads something else."""
    other = msgspec.structs.replace(loaded_on_gpus(), **fields)
    return changed(every_with_gpus(case), loaded=other)


def with_variables(case: Case, every: dict[str, str], **own: str) -> Case:
    """Variables of all nodes, and of the second one."""
    for at in range(len(case.nodes)):
        case = changed(case, at, environment=every)
    return changed(case, environment={**every, **own})


def with_given(case: Case, **given: str) -> Case:
    """A job gives its ranks these variables."""
    for at in range(len(case.nodes)):
        case = with_node(case, lambda node: msgspec.structs.replace(node, given=given), at)
    return case


def renamed(case: Case) -> Case:
    """The second node's interface has another name."""
    loopback, ethernet = case.nodes[1].info.inventory.interfaces
    other = msgspec.structs.replace(ethernet, name="enp3s0")
    return with_inventory(case, interfaces=(loopback, other))


SOFTWARE = (
    Fault(
        "torch-import",
        "a library that torch needs is missing",
        "stops",
        lambda case: with_loaded(
            case,
            torch=None,
            error="ImportError: libcudnn.so.9: cannot open shared object file: No such file or "
            "directory",
        ),
    ),
    Fault(
        "torch-version",
        "PYTHONPATH leads to another torch",
        "slows",
        lambda case: with_loaded(case, torch="2.9.0+cpu", torch_file="/opt/old/torch/__init__.py"),
    ),
    Fault(
        "cuda-start",
        "a GPU, and a torch that is built without CUDA",
        "stops",
        lambda case: with_cuda(case, cuda=None, nccl=None, devices=None, architectures=()),
    ),
    Fault(
        "cuda-start",
        "NVSwitch's fabric manager does not run",
        "stops",
        lambda case: with_cuda(
            case,
            devices=None,
            cuda_error="RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: "
            "system not yet initialized",
        ),
    ),
    Fault(
        "cuda-architectures",
        "a Blackwell card, and a torch that is built for older ones",
        "stops",
        lambda case: with_inventory(
            with_cuda(case, architectures=("sm_80", "sm_90")),
            gpus=(gpu(0, name="B200", compute_capability=(10, 0)),),
        ),
    ),
    Fault(
        "nccl-loaded",
        "LD_LIBRARY_PATH leads to another NCCL",
        "stops",
        lambda case: with_cuda(case, nccl="2.18.1"),
    ),
    Fault(
        "variables",
        "NCCL_ALGO is set on one node",
        "stops",
        lambda case: with_variables(every_with_gpus(case), {}, NCCL_ALGO="Tree"),
    ),
    Fault(
        "variables",
        "the model hub is offline for one node",
        "slows",
        lambda case: with_variables(case, {"HF_HUB_OFFLINE": "0"}, HF_HUB_OFFLINE="1"),
    ),
    Fault(
        "import-variables",
        "PYTHONPATH is set on one node",
        "slows",
        lambda case: with_variables(case, {}, PYTHONPATH="/opt/lab"),
    ),
    Fault(
        "debug-variables",
        "TORCH_DISTRIBUTED_DEBUG was left on DETAIL",
        "slows",
        lambda case: with_variables(case, {}, TORCH_DISTRIBUTED_DEBUG="DETAIL"),
    ),
    Fault(
        "adapter-names",
        "NCCL_IB_HCA names an adapter that another machine has",
        "slows",
        lambda case: with_variables(every_with_gpus(case), {}, NCCL_IB_HCA="=mlx5_7"),
    ),
    Fault(
        "interface-names",
        "a job's --env names an interface that only the other nodes have",
        "stops",
        lambda case: with_given(renamed(case), NCCL_SOCKET_IFNAME="eno", GLOO_SOCKET_IFNAME="eno1"),
    ),
)
