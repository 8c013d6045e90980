"""Printing: what a rank prints goes to the job's log, and a full disk does not end the training."""

from __future__ import annotations

import io
import sys
from typing import Any, Final

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.system_errors import KINDS

STREAMS: Final = ("stdout", "stderr")


class _Spared(io.FileIO):
    """A file that drops what does not fit on its full disk."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if KINDS.get(error.errno or 0) is not Kind.DISK_FULL:
                raise
            return memoryview(data).nbytes


def lose_lines_of_a_full_disk() -> None:
    """Keep :func:`print` and other output of this process working when the disk is full."""
    for name in STREAMS:
        before = getattr(sys, name)
        buffer = io.BufferedWriter(_Spared(before.fileno(), "wb", closefd=False))
        now = io.TextIOWrapper(buffer, before.encoding, "backslashreplace", line_buffering=True)
        setattr(sys, name, now)
