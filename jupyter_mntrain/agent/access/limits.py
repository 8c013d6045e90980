"""Limits: what one member, and all members together, may hold open."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind

# Threads: of requests that may take long, so that nothing that people wait for waits for those.


SLOW_THREADS = 8
"""Threads for what may take long (a doctor's questions, interpreters, disks), and for pieces of
large files: apart from those that read logs and samples, which people wait for. What is more
waits."""
PIECE_THREADS = 8


class Threads:
    """Bounded thread pools, in which excess work waits. Logs and samples use the event loop's own
    pool.
    """

    def __init__(self) -> None:
        self.slow: Executor = ThreadPoolExecutor(SLOW_THREADS, "slow")
        """For a doctor's questions, interpreters and disks."""
        self.pieces: Executor = ThreadPoolExecutor(PIECE_THREADS, "piece")
        """For pieces of large files, one read or write each."""


MAX_HEADER_BYTES = 16 * 2**10
"""Largest headers of a request to an agent."""
MAX_BODY_BYTES = tunables.size("limits.body_bytes")

HEADERS_WITHIN_S = 60.0
"""Timeout for the headers of a request, and for an idle connection."""

BODY_WITHIN_S = 60.0
"""Timeout for the body of a request: 8 MiB over a slow network."""

MOST_CONNECTIONS = tunables.count("limits.connections")
MOST_CONNECTIONS_EACH = 512
"""Maximum number of connections of one member: 100 notebooks of one user."""
FILES = 4096
"""Files that an agent may open: it raises its own limit to this, as far as the system allows."""

MOST_HANDSHAKES = 128
"""Maximum number of TLS handshakes that are not over. Beyond it, the oldest of the address that
has most is closed: strangers have no other places."""
HANDSHAKE_S = tunables.seconds("limits.handshake_timeout_s")

MOST_STREAMS = 1024
"""Maximum number of open streams, in total and per member. A notebook has one, and one per job
that it follows; all notebooks of one user are one member."""
MOST_STREAMS_EACH = tunables.count("limits.streams_per_member")

MOST_SINKS = 64
"""Maximum number of measurements that wait for their sender or receive, in total and per member:
each has a thread, for at most 26 s. A node tries its links to all others of a job at once."""
MOST_SINKS_EACH = 16
MOST_MEASUREMENTS = 3
"""Maximum number of links that a node measures at once: others wait for their own threads."""


class TooManyError(RefusedError):
    """One member, or all members together, hold too much open."""

    default = Kind.TOO_MANY


class Quota:
    """Counts what members hold at the same time. Safe from any thread.

    Args:
        each: most that one member may hold.
        total: most that all of them may hold.
        noun: what is counted, plural.
        fix: what to do if there are too many.
    """

    def __init__(self, each: int, total: int, *, noun: str, fix: str) -> None:
        self._each, self._total = each, total
        self._noun, self._fix = noun, fix
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, who: str) -> None:
        """Count one more.

        Raises:
            TooManyError: this member, or all of them, hold too many.
        """
        with self._lock:
            own, total = self._held[who], self._held.total()
            if own >= self._each or total >= self._total:
                raise TooManyError(
                    f"{own} {self._noun} are open for {who}, {total} for all", fix=self._fix
                )
            self._held[who] += 1

    def give_back(self, who: str) -> None:
        with self._lock:
            self._held[who] -= 1
            if not self._held[who]:
                del self._held[who]

    @contextmanager
    def held(self, who: str) -> Iterator[None]:
        """Count one more within a ``with`` block. Raises like :meth:`take`."""
        self.take(who)
        try:
            yield
        finally:
            self.give_back(who)


def stream_quota() -> Quota:
    fix = "close notebooks that watch jobs on this node"
    return Quota(MOST_STREAMS_EACH, MOST_STREAMS, noun="streams", fix=fix)


def sink_quota() -> Quota:
    fix = "try again in a few seconds"
    return Quota(MOST_SINKS_EACH, MOST_SINKS, noun="measurements", fix=fix)


def measure_quota() -> Quota:
    fix = "try again in a few seconds"
    return Quota(MOST_MEASUREMENTS, MOST_MEASUREMENTS, noun="measurements", fix=fix)
