"""Printing: what a rank prints goes into the job's log. A disk that is full costs lines there, and
not hours of training.
"""

from __future__ import annotations

import io
import sys
from typing import Any, Final

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.system_errors import KINDS

STREAMS: Final = ("stdout", "stderr")


class _Spared(io.FileIO):
    """A file that loses what its full disk does not take."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if KINDS.get(error.errno or 0) is not Kind.DISK_FULL:
                raise
            return memoryview(data).nbytes


def lose_lines_of_a_full_disk() -> None:
    """Have :func:`print`, and whatever else writes to this process's streams, go on."""
    for name in STREAMS:
        before = getattr(sys, name)
        buffer = io.BufferedWriter(_Spared(before.fileno(), "wb", closefd=False))
        now = io.TextIOWrapper(buffer, before.encoding, "backslashreplace", line_buffering=True)
        setattr(sys, name, now)
