"""Process group: what a rank knows of the others, from the libraries it has imported."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_mntrain.telemetry.group import group_size


def modules(*others: str, **distributed: Any) -> dict[str, ModuleType]:
    known: dict[str, Any] = dict.fromkeys(others)
    if distributed:
        calls = {name: (lambda value=value: value) for name, value in distributed.items()}
        known["torch.distributed"] = SimpleNamespace(**calls)
    return cast("dict[str, ModuleType]", known)


JOINED = {"is_available": True, "is_initialized": True, "get_world_size": 4}


@pytest.mark.parametrize(
    ("known", "size"),
    [
        (modules(), None),
        (modules(is_available=False), 1),
        (modules(is_available=True, is_initialized=False), 1),
        (modules(**JOINED), 4),
        (modules("jax", is_available=True, is_initialized=False), None),
        (modules("mpi4py", is_available=True, is_initialized=False), None),
    ],
    ids=["no torch", "built without", "no group", "a group", "another library", "MPI"],
)
def test_the_size_of_the_group(known: dict[str, ModuleType], size: int | None) -> None:
    assert group_size(known) == size


def test_of_this_process() -> None:
    """torch imports its own torch.distributed; the names used here are the real ones."""
    import torch.distributed as dist

    assert group_size() == (dist.get_world_size() if dist.is_initialized() else 1)
