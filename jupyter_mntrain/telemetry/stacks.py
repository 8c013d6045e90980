"""Stack dumps: a rank writes its stacks when its agent sends a signal.

Python's own :mod:`faulthandler` writes them from inside the signal handler, even while the main
thread waits in C++ for another rank or holds the GIL.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from pathlib import Path

from jupyter_mntrain.model.ids import Rank

STACK_SIGNAL = int(getattr(signal, "SIGRTMIN", 34)) + 10
"""Unused elsewhere as far as we know: glibc takes the first two real-time signals, schedulers take
SIGUSR1 and SIGUSR2."""


def stack_file(rank: Rank) -> str:
    """Name of a rank's stack file in ``$MNTRAIN_METRICS_DIR``."""
    return f"stacks-{rank}.txt"


def arm(directory: Path, rank: Rank) -> None:
    """Make this process append its stacks to its file on :data:`STACK_SIGNAL`."""
    try:
        # Kept open for as long as the process lives: the handler must not open anything.
        file = os.open(
            directory / stack_file(rank),
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
            0o600,
        )
        faulthandler.register(STACK_SIGNAL, file=file, all_threads=True, chain=False)
    except (OSError, ValueError, RuntimeError):
        return  # a full disk, or an unsupported system: stacks are then unavailable
