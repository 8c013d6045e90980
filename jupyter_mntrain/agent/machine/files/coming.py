"""Arriving pieces: lets others read a piece before all of it has arrived.

A node that waited for a whole piece before passing it on would be behind by one piece per node, and
small pieces, which cost least of that, cost most of a core. Who gets bytes that are not checked yet
checks them itself: a piece counts nowhere before its hash is right.
"""

from __future__ import annotations

import threading


class ComingPiece:
    """Bytes of a piece that is arriving. One thread writes them, others read them.

    Args:
        size: of the whole piece.
    """

    def __init__(self, size: int) -> None:
        self.content = bytearray(size)
        self.come = 0
        """How many have come, from the first on."""
        self.is_over = False
        """Whether nobody brings more of them."""

    def came(self, count: int) -> None:
        """Note how many bytes have arrived. The count never falls: a restarted transfer brings the
        same bytes.
        """
        self.come = max(self.come, count)

    def add(self, part: bytes) -> None:
        """Append bytes that have arrived. Excess is dropped, and the hash will reveal it."""
        end = min(self.come + len(part), len(self.content))
        memoryview(self.content)[self.come : end] = part[: end - self.come]
        self.come = end


class ComingPieces:
    """Pieces of one transfer that are arriving now. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces: dict[int, ComingPiece] = {}

    def begin(self, piece: int, size: int) -> ComingPiece:
        """Register a piece that begins to arrive. If it is already arriving, others read the first
        one's.
        """
        made = ComingPiece(size)
        with self._lock:
            self._pieces.setdefault(piece, made)
        return made

    def end(self, piece: int, coming: ComingPiece) -> None:
        """Stop offering a piece that was arriving."""
        with self._lock:
            if self._pieces.get(piece) is coming:
                del self._pieces[piece]

    def get(self, piece: int) -> ComingPiece | None:
        return self._pieces.get(piece)
