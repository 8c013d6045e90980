"""GPU builds of torch: checks whether a node's torch can use the node's GPUs. Pure.

A torch that its driver is too old for fails in every rank, after the launch; one that is built for
AMD's or Intel's GPUs would train on the CPU, without a word.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.quantities import numbered
from jupyter_mntrain.model.records.node import NodeInfo, Versions

LEAST_DRIVERS = {11: 450, 12: 525, 13: 580}
"""First number of the oldest driver for each major version of CUDA.

One driver runs programs of every minor version of its CUDA (CUDA compatibility guide, minor version
compatibility; CUDA toolkit release notes, table of minimum drivers).
"""
_OLDER = min(LEAST_DRIVERS) - 1

VENDORS = {"ROCm": "AMD GPUs (ROCm)", "XPU": "Intel GPUs (XPU)"}
"""Platforms that torch can be built for, but that are not supported."""

_NUMBER = re.compile(r"\d+")


def refuse_gpu_builds(nodes: Iterable[tuple[NodeInfo, Collection[int]]]) -> None:
    """Refuse nodes whose torch cannot use the GPUs that were chosen.

    Args:
        nodes: each with the indices of its chosen GPUs.

    Raises:
        SpecError: naming the first such node, its GPUs, driver, and the fix.
    """
    for node, indices in nodes:
        if (problem := gpu_build_problem(node, indices)) is not None:
            raise SpecError.of(problem)


def refuse_leased_builds(nodes: Iterable[tuple[str, Versions, Sequence[int]]]) -> None:
    """Like :func:`refuse_gpu_builds`, given each node's name, versions and chosen GPUs."""
    for name, versions, indices in nodes:
        problem = _problem(name, versions, numbered("GPU", indices)) if indices else None
        if problem is not None:
            raise SpecError.of(problem)


def gpu_build_problem(node: NodeInfo, indices: Collection[int]) -> Problem | None:
    """Return why a node's torch cannot use some of its GPUs."""
    chosen = [gpu for gpu in node.inventory.gpus if gpu.index in indices]
    if not chosen:
        return None
    models = ", ".join(dict.fromkeys(gpu.name for gpu in chosen))
    cards = f"{numbered('GPU', [gpu.index for gpu in chosen])} ({models})"
    return _problem(node.name, node.inventory.versions, cards)


def unused_amd_note(nodes: Iterable[tuple[NodeInfo, Collection[int]]]) -> Problem | None:
    """Return a warning of nodes whose AMD GPUs a job does not use: it runs there on the CPU.

    Args:
        nodes: each with the indices of its chosen GPUs.
    """
    names = [node.name for node, indices in nodes if node.inventory.has_amd_gpu and not indices]
    if not names:
        return None
    return Problem(
        kind=Kind.NO_GPU,
        cause=f"{VENDORS['ROCm']} are not offered: the job runs on the CPU of {', '.join(names)}",
        fix="use nodes with NVIDIA GPUs if it should not run on the CPU",
    )


def _problem(node: str, versions: Versions, cards: str) -> Problem | None:
    if versions.built_for in VENDORS:
        return Problem(
            kind=Kind.NO_CUDA,
            cause=f"torch {versions.torch} is built for {VENDORS[versions.built_for]}, which are "
            f"not offered, and cannot use {cards}",
            fix=fix_of(Kind.NO_CUDA, "vendor", node=node),
            node=node,
        )
    needed, offered = _major(versions.cuda), _driver_major(versions)
    if needed is None or offered is None or offered >= needed:
        return None
    least = LEAST_DRIVERS.get(needed)
    update = f"to {least} or newer" if least else f"to one for CUDA {needed}"
    return Problem(
        kind=Kind.OLD_DRIVER,
        cause=f"driver {versions.driver} of {cards} is for CUDA {versions.driver_cuda or offered} "
        f"and older, but torch {versions.torch} is built for CUDA {versions.cuda}",
        fix=fix_of(Kind.OLD_DRIVER, "planned", node=node, update=update, cuda=offered),
        node=node,
    )


def _driver_major(versions: Versions) -> int | None:
    """Return the major version of CUDA that the driver supports.

    Where the driver does not say, its own number does: containers may lack its CUDA library.
    """
    number = _major(versions.driver)
    if versions.driver_cuda or number is None:
        return _major(versions.driver_cuda)
    return max((cuda for cuda, least in LEAST_DRIVERS.items() if number >= least), default=_OLDER)


def _major(version: str | None) -> int | None:
    found = _NUMBER.match(version or "")
    return int(found[0]) if found else None
