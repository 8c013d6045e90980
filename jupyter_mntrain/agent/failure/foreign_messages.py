"""Foreign messages: recognizes failures in messages of torch, NCCL, CUDA, Python and Linux.

Only messages of other programs are ever searched, and only here. The first matching pattern wins.
"""

from __future__ import annotations

import re

from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind

PATTERNS: tuple[tuple[str, Kind], ...] = (
    (
        (
            r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED"
            r"|CUDA driver error: out of memory"
        ),
        Kind.GPU_OUT_OF_MEMORY,
    ),
    (r"DefaultCPUAllocator: can't allocate|\bMemoryError\b", Kind.OUT_OF_MEMORY),
    (r"unable to (open|mmap|allocate|write).*shared memory|\(shm\)|/dev/shm", Kind.SHARED_MEMORY),
    (r"DataLoader worker .*(killed by signal|exited unexpectedly)", Kind.WORKER_DIED),
    (r"Cannot allocate memory|\[Errno 12\]", Kind.OUT_OF_MEMORY),
    (r"No space left on device|Disk quota exceeded", Kind.DISK_FULL),
    (r"Read-only file system", Kind.READ_ONLY),
    (r"Input/output error|Stale file handle|Structure needs cleaning", Kind.DISK_ERROR),
    (r"File too large", Kind.FILE_TOO_LARGE),
    (r"Too many open files", Kind.TOO_MANY_FILES),
    (
        r"can't start new thread|Resource temporarily unavailable.*fork|fork: retry",
        Kind.TOO_MANY_PROCESSES,
    ),
    (r"No module named '?(?P<what>\w+)", Kind.NO_MODULE),
    (
        (
            r"op\.preamble\.length|op\.nbytes|Detected mismatch between collectives"
            r"|tensor shapes? .*(mismatch|do not match) .*rank|Received data size doesn't match"
        ),
        Kind.COLLECTIVE_MISMATCH,
    ),
    (
        (
            r"not a valid model identifier|couldn't connect to 'https|We couldn't connect to"
            r"|LocalEntryNotFoundError|OfflineModeIsEnabled|Temporary failure in name resolution"
        ),
        Kind.NO_DOWNLOAD,
    ),
    (r"No route to host|Network is unreachable", Kind.NO_ROUTE),
    (r"No such file or directory|FileNotFoundError", Kind.NO_FILE),
    (r"Permission denied|PermissionError", Kind.NO_PERMISSION),
    (r"Unable to find address for: \S+|no socket interface found", Kind.NO_INTERFACE),
    (r"no kernel image is available", Kind.NO_GPU_KERNEL),
    (
        (
            r"not compiled with CUDA|cuda\.is_available\(\) is False|No CUDA GPUs are available"
            r"|Found no NVIDIA driver|doesn't have NCCL built in|no GPUs found"
            r"|'torch\._C' has no attribute '_?(cuda|Cuda)|Torch not linked with CUDA"
            r"|Tried to instantiate dummy base class (CUDA|Stream|Event)"
            r"|Cannot access accelerator device when none is available|[Nn]o CUDA device"
            r"|requires? (at least \d+ )?(a )?(CUDA|NVIDIA)? ?GPU"
        ),
        Kind.NO_CUDA,
    ),
    (r"driver version is insufficient|forward compatibility was attempted", Kind.OLD_DRIVER),
    (r"NCCL version|mismatched NCCL|ncclSystemError|ncclInvalidUsage|ncclUnhandled", Kind.NCCL),
    # torch calls the driver itself for expandable segments, and for little else (driver_api.cpp):
    # a vGPU and a Jetson (unsloth#1446), WSL2 (pytorch#192330, pytorch#112957).
    (
        (
            r"CUDA driver error: (operation not supported|invalid argument|unknown error)"
            r"|ASSERT FAILED at \S*driver_api\.cpp"
        ),
        Kind.GPU_ALLOCATOR,
    ),
    (r"CUDA error:|CUDA driver error|uncorrectable ECC|device-side assert", Kind.GPU_ERROR),
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


_OF_PEERS = re.compile(
    r"gloo|nccl|c10d|tcp ?store|process ?group|pair\.cc|rendezvous|torch\.distributed|all_?reduce"
    r"|\brank\b",
    re.IGNORECASE,
)


def speaks_of_peers(message: str) -> bool:
    """Whether a message about a connection is about one between ranks."""
    return _OF_PEERS.search(message) is not None


def kind_of(message: str) -> tuple[Kind, str] | None:
    """Return kind and fix of another program's message; ``None`` if it is not recognized."""
    for pattern, kind in PATTERNS:
        if match := re.search(pattern, message, re.IGNORECASE):
            return kind, fix_of(kind, **match.groupdict())
    return None
