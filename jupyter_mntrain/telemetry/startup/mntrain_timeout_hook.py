"""Time-out hook: sets how long a rank waits in a collective if its script does not.

torch has no variable for it: its defaults, half an hour for Gloo and ten minutes for NCCL, are
names in a module, which :func:`torch.distributed.init_process_group` and ``new_group`` read when no
``timeout`` is given. Ranks also wait that long for each other when they join.

Standard library only, for any Python of at least 3.8.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

_MODULE = "torch.distributed.distributed_c10d"
_NAMES = ("default_pg_timeout", "default_pg_nccl_timeout")


def wait_at_most(seconds: str, after_import: Any) -> None:
    """Set the default time-out of all process groups.

    Args:
        seconds: as text, from the environment.
        after_import: runs a function once torch.distributed has been imported.
    """
    limit = timedelta(seconds=float(seconds))

    def set_defaults() -> None:
        module = sys.modules[_MODULE]
        for name in _NAMES:
            # A torch that was built without NCCL has no default for it.
            if isinstance(getattr(module, name, None), timedelta):
                setattr(module, name, limit)

    after_import(set_defaults)
