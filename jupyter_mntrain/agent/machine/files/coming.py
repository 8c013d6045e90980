"""Coming: a piece while it comes, for those who get it from here before all of it has.

A node that waited for a whole piece before passing it on would be behind by one piece per node, and
small pieces, which cost least of that, cost most of a core. Who gets bytes that are not checked yet
checks them itself: a piece counts nowhere before its hash is right.
"""

from __future__ import annotations

import threading


class ComingPiece:
    """Bytes of one piece. One thread brings them, others read them.

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
        """So many are there. Never fewer than before: who begins again brings the same ones."""
        self.come = max(self.come, count)

    def add(self, part: bytes) -> None:
        """Append what has come; what is too much is left out, and the hash will say so."""
        end = min(self.come + len(part), len(self.content))
        memoryview(self.content)[self.come : end] = part[: end - self.come]
        self.come = end


class ComingPieces:
    """Pieces of one transfer that come now. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces: dict[int, ComingPiece] = {}

    def begin(self, piece: int, size: int) -> ComingPiece:
        """A place for a piece; of several that bring the same one, others read the first's."""
        made = ComingPiece(size)
        with self._lock:
            self._pieces.setdefault(piece, made)
        return made

    def end(self, piece: int, coming: ComingPiece) -> None:
        """Whoever asks for it from now on does not get it from here."""
        with self._lock:
            if self._pieces.get(piece) is coming:
                del self._pieces[piece]

    def get(self, piece: int) -> ComingPiece | None:
        return self._pieces.get(piece)
