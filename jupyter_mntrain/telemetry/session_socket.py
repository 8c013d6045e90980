"""Files of a session's ranks: where the agent of their node finds them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def socket_of(metrics: Path, local_rank: int) -> Path:
    """Return the socket of a rank of this node.

    Args:
        metrics: folder of the attempt's metrics.
    """
    return metrics.parent / "session" / str(local_rank)


def forking_python(metrics: Path) -> Path:
    """Return the interpreter that a session offers jobs: torchrun and ranks are forked from a
    process that has imported torch, once its socket is there.
    """
    return metrics.parent / "session" / "python"


def forkserver_socket(metrics: Path) -> Path:
    return metrics.parent / "session" / "forkserver"


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Name a socket by its folder's descriptor: its own path may be longer than the 107 bytes that
    Linux allows.

    Raises:
        OSError: there is no such folder.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
