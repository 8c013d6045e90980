"""Foreign messages: recognizes failures in messages of torch, NCCL, CUDA, Python and Linux.

Only messages of other programs are ever searched, and only here. The first matching pattern wins.
"""

from __future__ import annotations

import re

from jupyter_mntrain.agent.failure.fixes import FIXES
from jupyter_mntrain.model.failure.kinds import Kind

PATTERNS: tuple[tuple[str, Kind], ...] = (
    (r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED", Kind.GPU_OUT_OF_MEMORY),
    (r"DefaultCPUAllocator: can't allocate|\bMemoryError\b", Kind.OUT_OF_MEMORY),
    (r"No space left on device", Kind.DISK_FULL),
    (r"No module named '(?P<what>[\w.]+)'", Kind.NO_MODULE),
    (r"No such file or directory|FileNotFoundError", Kind.NO_FILE),
    (r"Permission denied|PermissionError", Kind.NO_PERMISSION),
    (r"Unable to find address for: \S+|no socket interface found", Kind.NO_INTERFACE),
    (r"no kernel image is available", Kind.NO_GPU_KERNEL),
    (r"driver version is insufficient|forward compatibility was attempted", Kind.OLD_DRIVER),
    (r"address already in use|EADDRINUSE", Kind.PORT_TAKEN),
    (
        (
            r"closed by peer|connection reset|reset by peer|connection refused|connectFullMesh"
            r"|read error|write error|broken pipe|remote process exited"
            r"|NCCL communicator was aborted"
        ),
        Kind.CONNECTION_LOST,
    ),
    (r"timed out|timeout|clients joined", Kind.TIMED_OUT),
)


def kind_of(message: str) -> tuple[Kind, str] | None:
    """Return kind and fix of another program's message; ``None`` if it is not recognized."""
    for pattern, kind in PATTERNS:
        if match := re.search(pattern, message, re.IGNORECASE):
            return kind, FIXES[kind].format(**match.groupdict())
    return None
