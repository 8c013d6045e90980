"""Log trimming: bounds logs on disk without moving offsets. Standard library only, for the keeper.

The middle of a long log is freed by punching a hole (fallocate(2)). Nothing is renamed or copied:
writers keep writing, readers keep their offsets, and no line is torn as by a rotation.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.environment import RECORDERS

HEAD_BYTES = tunables.size("logs.head_bytes")

KEPT_BYTES = tunables.size("logs.tail_bytes")

NCCL_BYTES = tunables.size("logs.nccl_bytes")

MOST_RECORDERS = tunables.count("logs.recorders")

RECORDERS_BYTES = tunables.size("logs.recorders_bytes")

SLACK_BYTES = tunables.size("logs.slack_bytes")

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_BLOCK = 4096
_libc = ctypes.CDLL(None, use_errno=True)


def logs_of(attempt: Path) -> Iterator[Path]:
    """The files that an attempt's processes write: torchrun's log, the ranks' logs, NCCL's, and the
    ranks' samples, which the journal holds before they are freed.
    """
    yield attempt / "log"
    yield from (attempt / "metrics").glob("rank-*.ndjson")
    for name in ("stdout.log", "stderr.log"):
        yield from (attempt / "ranks").rglob(name)
    yield from nccl_files(attempt)


def nccl_files(attempt: Path) -> Iterator[Path]:
    """The files of NCCL's own that a launch has it write, one for each process."""
    yield from (attempt / "nccl").glob("*.log")


def trim_logs(attempt: Path) -> None:
    """Free the middle of every log that exceeds its limit."""
    for log in logs_of(attempt):
        trim(log)
    for log in nccl_files(attempt):
        trim(log, kept_bytes=NCCL_BYTES, slack_bytes=NCCL_BYTES // 4)
    _bound_recorders(attempt)


def _bound_recorders(attempt: Path) -> None:
    """Delete flight recorders beyond their limits. The first ranks to time out tell most."""
    with suppress(OSError):
        found = [(path.stat(), path) for path in (attempt / "metrics").glob(f"{RECORDERS}*")]
        left_bytes = RECORDERS_BYTES
        for number, (status, path) in enumerate(sorted(found, key=lambda one: one[0].st_mtime_ns)):
            left_bytes -= status.st_size
            if number >= MOST_RECORDERS or left_bytes < 0:
                path.unlink(missing_ok=True)


def trim(path: Path, *, kept_bytes: int = KEPT_BYTES, slack_bytes: int = SLACK_BYTES) -> bool:
    """Free the middle of a file that exceeds its limit.

    False if it does not, or if the file system cannot punch holes.
    """
    with suppress(OSError):
        found = path.stat()
        if found.st_blocks * 512 <= kept_bytes + slack_bytes:
            return False
        begin = min(HEAD_BYTES, kept_bytes // 2)
        return give_back(path, begin, found.st_size - (kept_bytes - begin))
    return False


def give_back(path: Path, begin: int, end: int) -> bool:
    """Free the whole blocks between two offsets; they read as zeros afterwards.

    Raises:
        OSError: it cannot be opened.
    """
    first, last = -(-begin // _BLOCK) * _BLOCK, end // _BLOCK * _BLOCK
    return last > first and _punch(path, first, last - first)


def _punch(path: Path, begin: int, length: int) -> bool:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        mode = ctypes.c_int(_KEEP_SIZE | _PUNCH_HOLE)
        done = _libc.fallocate(
            ctypes.c_int(descriptor), mode, ctypes.c_longlong(begin), ctypes.c_longlong(length)
        )
        return bool(done == 0)
    finally:
        os.close(descriptor)


def next_data(descriptor: int, offset: int, size: int) -> int:
    """Offset of the first byte at or after ``offset`` that was not freed."""
    try:
        return min(size, os.lseek(descriptor, offset, os.SEEK_DATA))
    except OSError:  # beyond the last byte, or a file system without holes
        return min(offset, size)
