"""Bandwidth of collective operations, as NCCL-tests define it. Pure.

https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md: the *algorithm bandwidth* is
size ÷ time. The *bus bandwidth* is that times a factor of the operation and the number of ranks, so
that it can be compared with what the slowest link carries, whatever the number of ranks.
"""

from __future__ import annotations

from jupyter_mntrain.model.records.doctor.benchmark import Operation


def algorithm_bandwidth(size_bytes: int, seconds: float) -> float:
    """Return the algorithm bandwidth in bytes per second."""
    return size_bytes / seconds if seconds > 0 else 0.0


def bus_factor(operation: Operation, ranks: int) -> float:
    """Return the factor that turns the algorithm bandwidth into the bus bandwidth.

    Of ``n`` ranks: all-reduce 2(n − 1)/n, as every byte is sent once to be added and once to be
    told, except for the own share; all-gather (n − 1)/n; a message from one rank to another 1.
    """
    if operation == "send":
        return 1.0
    share = (ranks - 1) / ranks
    return 2 * share if operation == "all_reduce" else share


def bus_bandwidth(operation: Operation, size_bytes: int, seconds: float, ranks: int) -> float:
    """Return the bytes per second that each link carries in either direction."""
    return algorithm_bandwidth(size_bytes, seconds) * bus_factor(operation, ranks)
