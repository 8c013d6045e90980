"""NCCL warnings: copies them from NCCL's own files into the attempt's log. Standard library only,
for the keeper.

A launch has NCCL write into a file per rank, which keeps its many lines about networks out of the
log. Its warnings would stay there, too, and people look for them in the log.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from jupyter_mntrain.agent.attempt.log_trimming import NCCL_BYTES, nccl_files
from jupyter_mntrain.agent.attempt.processes import environment_of
from jupyter_mntrain.model.environment import NODE_VARIABLE

_WARNING = re.compile(rb"\bNCCL WARN\b")
_PID = re.compile(r"\.(\d+)\.log$")


class NcclWarnings:
    """Copies what was written since the last look.

    Args:
        directory: the attempt's.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read_bytes: dict[Path, int] = {}
        self._prefixes: dict[Path, bytes] = {}

    def copy(self) -> None:
        """Append new warnings to the log. A full disk costs warnings, never the attempt."""
        with suppress(OSError):
            for path in nccl_files(self._directory):
                # While its process lives: its environment tells its rank.
                prefix = self._prefixes.setdefault(path, _prefix(path))
                if lines := [one for one in self._new_lines(path) if _WARNING.search(one)]:
                    self._append(b"".join(b"%b%b\n" % (prefix, line) for line in lines))

    def _new_lines(self, path: Path) -> list[bytes]:
        begin = self._read_bytes.get(path, 0)
        with path.open("rb") as file:
            file.seek(begin)
            content = file.read(NCCL_BYTES)
        whole = content[: content.rfind(b"\n") + 1]
        self._read_bytes[path] = begin + len(whole or content[NCCL_BYTES - 1 :])
        return whole.splitlines()

    def _append(self, content: bytes) -> None:
        descriptor = os.open(self._directory / "log", os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)


def _prefix(path: Path) -> bytes:
    """Like torchrun's of the same rank."""
    pid = _PID.search(path.name)
    environment = environment_of(int(pid[1])) if pid else {}
    if "RANK" not in environment:
        return b""
    return f"[{environment.get(NODE_VARIABLE, '')} rank {environment['RANK']}] ".encode()
