"""Limits: bounds how many streams one caller, and all callers together, may hold open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from jupyter_mntrain.model.errors import RefusedError

MAX_HEADER_BYTES = 16 << 10
MAX_BODY_BYTES = 8 << 20
"""Of a request: recipes and scripts, no data sets."""

HEADERS_WITHIN_S = 60.0
"""Also how long a connection may be idle between two requests."""

BODY_WITHIN_S = 60.0
"""8 MiB over the slowest network that anybody trains on."""

MOST_CONNECTIONS = 512
"""Half of the files that a process may have open by default."""
MOST_CONNECTIONS_EACH = 128
"""Of one address; they need not have shown a certificate to be counted."""

MOST_STREAMS = 256
MOST_STREAMS_EACH = 64
"""Of one address: a driver holds one, and one per job that it follows."""


class TooManyError(RefusedError):
    """There is no room for another stream."""

    code = "too-many"


class Streams:
    """Counts the answers that go on for long."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @contextmanager
    def opened(self, address: str) -> Iterator[None]:
        """While the answer goes on.

        Raises:
            TooManyError: this address, or all of them, have too many open.
        """
        if self._open[address] >= MOST_STREAMS_EACH or self._open.total() >= MOST_STREAMS:
            raise TooManyError(
                f"{self._open[address]} streams are open for {address}, "
                f"{self._open.total()} for all",
                fix="close notebooks that watch jobs on this node",
            )
        self._open[address] += 1
        try:
            yield
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]
