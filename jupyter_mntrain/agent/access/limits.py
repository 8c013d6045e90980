"""Limits: bounds how many streams one caller, and all callers together, may hold open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind

MAX_HEADER_BYTES = tunables.size("limits.header_bytes")
MAX_BODY_BYTES = tunables.size("limits.body_bytes")

HEADERS_WITHIN_S = tunables.seconds("limits.headers_timeout_s")

BODY_WITHIN_S = tunables.seconds("limits.body_timeout_s")

MOST_CONNECTIONS = tunables.count("limits.connections")
MOST_CONNECTIONS_EACH = tunables.count("limits.connections_per_peer")

MOST_STREAMS = tunables.count("limits.streams")
MOST_STREAMS_EACH = tunables.count("limits.streams_per_peer")


class TooManyError(RefusedError):
    """Too many streams are open."""

    default = Kind.TOO_MANY


class Streams:
    """Counts the long-lived answers."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @contextmanager
    def opened(self, address: str) -> Iterator[None]:
        """Count an answer while it is sent.

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
