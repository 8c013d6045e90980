"""Threads: of requests that may take long, so that nothing that people wait for waits for those."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor

SLOW_THREADS = 8
"""Threads for what may take long (a doctor's questions, interpreters, disks), and for pieces of
large files: apart from those that read logs and samples, which people wait for. What is more
waits."""
PIECE_THREADS = 8


class Threads:
    """Bounded: what is more waits. Logs and samples are read in the loop's own threads."""

    def __init__(self) -> None:
        self.slow: Executor = ThreadPoolExecutor(SLOW_THREADS, "slow")
        """For a doctor's questions, interpreters and disks."""
        self.pieces: Executor = ThreadPoolExecutor(PIECE_THREADS, "piece")
        """For pieces of large files, one read or write each."""
