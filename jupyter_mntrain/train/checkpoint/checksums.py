"""Checksums: whether a shard's bytes are still those that were saved."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

WORD_BYTES = 8
BLOCK_BYTES = 1 << 20
READ_BYTES = 16 * BLOCK_BYTES


def checksum(path: Path) -> str:
    """Hash of the sums of a file's 64-bit words, of each block of 1 MiB.

    It finds what disks lose, not what somebody forges: sums are made at the speed of memory, so
    that a checkpoint is loaded about as fast as without.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while len(read := np.fromfile(file, np.uint8, READ_BYTES)):
            rest = -len(read) % BLOCK_BYTES
            padded = np.pad(read, (0, rest)) if rest else read
            words = padded.view(np.uint64).reshape(-1, BLOCK_BYTES // WORD_BYTES)
            digest.update(words.sum(axis=1, dtype=np.uint64).tobytes())
    digest.update(str(path.stat().st_size).encode())
    return digest.hexdigest()
