"""Log trimming: bounds logs on disk without moving offsets. Standard library only, for the keeper.

What lies between a log's first and last bytes is given back to the file system by punching a hole
(fallocate(2)). Nothing is renamed or copied, so whoever writes goes on writing, whoever reads at an
offset goes on reading there, and no line is torn at a rotation.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from jupyter_mntrain.model import tunables

HEAD_BYTES = tunables.size("logs.head_bytes")

KEPT_BYTES = tunables.size("logs.tail_bytes")

SLACK_BYTES = tunables.size("logs.slack_bytes")

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_BLOCK = 4096
_libc = ctypes.CDLL(None, use_errno=True)


def logs_of(attempt: Path) -> Iterator[Path]:
    """All that an attempt's processes write: what torchrun says, what each rank does, and the
    samples of each rank, which are in the journal by the time that they are given back.
    """
    yield attempt / "log"
    yield from (attempt / "metrics").glob("rank-*.ndjson")
    for name in ("stdout.log", "stderr.log"):
        yield from (attempt / "ranks").rglob(name)


def trim(path: Path, *, kept_bytes: int = KEPT_BYTES, slack_bytes: int = SLACK_BYTES) -> bool:
    """Give back the middle of a file that takes more room than it may.

    False where there was nothing to do, or where the file system cannot do it.
    """
    with suppress(OSError):
        found = path.stat()
        if found.st_blocks * 512 <= kept_bytes + slack_bytes:
            return False
        begin = min(HEAD_BYTES, kept_bytes // 2)
        return give_back(path, begin, found.st_size - (kept_bytes - begin))
    return False


def give_back(path: Path, begin: int, end: int) -> bool:
    """Whole blocks of a file between two places of it, which read as zeros from then on.

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
    """Where the first byte at or after ``offset`` is that was not given back."""
    try:
        return min(size, os.lseek(descriptor, offset, os.SEEK_DATA))
    except OSError:  # behind the last byte, or a file system without holes
        return min(offset, size)
