"""Own tools: this rank's device, and what is there to compile kernels with."""

from __future__ import annotations

import importlib.metadata
import os
import sysconfig
from collections.abc import Mapping
from contextlib import suppress

import torch

from jupyter_mntrain.launch.toolchain import PACKAGES, find_tools
from jupyter_mntrain.model.environment import GPU_MEMORY_VARIABLE
from jupyter_mntrain.model.records.node import Tools
from jupyter_mntrain.recipe.devices import Seat, lacking_tools
from jupyter_mntrain.train.model.attention import has_flash_attn, has_varlen


def own_tools(environment: Mapping[str, str] = os.environ) -> Tools:
    """Return the tools for compiling kernels that this interpreter finds."""
    packages = {}
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    if not has_flash_attn():
        packages.pop("flash-attn", None)  # built for another torch
    return find_tools(packages, sysconfig.get_path("include"), environment)


def own_seat(
    device: torch.device, node: str = "", environment: Mapping[str, str] = os.environ
) -> Seat:
    """Return a description of this rank's device.

    Args:
        node: its name.
    """
    tools = own_tools(environment)
    if device.type != "cuda":
        return Seat(node=node, tools=tools)
    offered = environment.get(GPU_MEMORY_VARIABLE)
    total = torch.cuda.get_device_properties(device).total_memory
    return Seat(
        node=node,
        gpu=f"GPU {device.index}, {torch.cuda.get_device_name(device)}",
        capability=torch.cuda.get_device_capability(device),
        memory_bytes=total if offered is None else min(total, int(offered)),
        tools=tools,
        has_varlen=has_varlen(),
    )


def can_compile_for_gpus() -> bool:
    """Whether kernels for a GPU can be compiled here, with triton, a C compiler and Python.h."""
    return lacking_tools(own_tools(), on_gpu=True) is None
