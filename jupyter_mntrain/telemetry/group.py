"""Process group of a rank: how many ranks it actually trains with. Imports no torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType

_OTHER_MEANS = ("horovod", "jax", "mpi4py", "torch_xla")
"""Libraries by which ranks can communicate without torch.distributed."""


def group_size(modules: Mapping[str, ModuleType] = sys.modules) -> int | None:
    """Return the number of ranks in torch's process group, 1 without a group.

    ``None`` if ranks may communicate in another way.
    """
    distributed = modules.get("torch.distributed")
    if distributed is None or any(name in modules for name in _OTHER_MEANS):
        return None
    if not distributed.is_available() or not distributed.is_initialized():
        return 1
    return int(distributed.get_world_size())
