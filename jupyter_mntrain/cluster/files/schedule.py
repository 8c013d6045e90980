"""Schedule: decides which node gets which piece from which sender next. Pure.

The nodes are a ring. The source sends each piece once, to the first node that lacks it, and each
node passes it on to the next one while it comes. So every link carries one stream in each
direction, all are busy all the time, and it takes as long as sending everything once. Streams that
share a link would keep each other, and at last the source, from filling it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Set
from typing import NamedTuple

PEER_PIECES = 6
"""Most pieces that a node passes on to, and gets from, other nodes at once: more than the source
sends, since each is passed on while it comes."""
SOURCE_PIECES = 4
"""Pieces that the source sends at once: it is busy while one is checked and the next is asked
for."""


class Send(NamedTuple):
    """One piece in flight. An empty sender is the source."""

    piece: int
    sender: str
    receiver: str


SOURCE = ""


class PieceSchedule:
    """Decides which piece is sent next, by which pieces each node has.

    Args:
        count: of all pieces.
        held: what each receiver has already.
    """

    def __init__(self, count: int, held: Mapping[str, Set[int]]) -> None:
        self._held = {node: set(pieces) for node, pieces in held.items()}
        self._lacks = {node: set(range(count)) - pieces for node, pieces in self._held.items()}
        self._flying: set[Send] = set()
        self._coming: dict[str, set[int]] = {node: set() for node in self._held}
        self._blocked: set[tuple[str, str]] = set()
        self._from: dict[tuple[str, str], deque[int]] = {}
        """Pieces that a node may get from a peer, which has or gets them, or from the source."""
        self._fresh: deque[int] = deque()
        """Pieces that no receiver has, and that are not on their way."""
        self._offer_all()

    @property
    def is_done(self) -> bool:
        return not any(self._lacks.values())

    @property
    def is_idle(self) -> bool:
        """Whether no piece is in flight."""
        return not self._flying

    def next(self) -> Send | None:
        """Return what to send now, in addition to what is in flight; ``None``: wait, or
        it is over.
        """
        send = self._from_source() or self._from_peer()
        if send is not None:
            self._flying.add(send)
            self._coming[send.receiver].add(send.piece)
            self._offer(send.receiver, send.piece)
        return send

    def arrived(self, send: Send) -> None:
        self._land(send)
        if send.receiver in self._held:
            self._held[send.receiver].add(send.piece)
            self._lacks[send.receiver].discard(send.piece)

    def blocked(self, send: Send) -> None:
        """Note that a receiver cannot reach a sender: it asks others, and the source as a last
        resort.
        """
        if not self._land(send):
            return
        self._blocked.add((send.sender, send.receiver))
        queue = self._from.pop((send.sender, send.receiver), deque[int]())
        for piece in (send.piece, *queue):
            self._offer_from(self._sender_of(piece, send.receiver), send.receiver, piece)

    def drop(self, node: str) -> None:
        """Exclude a node: pieces in flight to or from it no longer count."""
        for send in [one for one in self._flying if node in (one.sender, one.receiver)]:
            self._land(send)
        for known in (self._held, self._lacks, self._coming):
            known.pop(node, None)
        self._offer_all()

    def _offer_all(self) -> None:
        self._from.clear()
        for node in self._held:
            for piece in sorted(self._held[node] | self._coming[node]):
                self._offer(node, piece)
        wanted = set[int]().union(*self._lacks.values())
        self._fresh = deque(sorted(wanted.difference(*self._held.values(), *self._coming.values())))

    def _land(self, send: Send) -> bool:
        """Take a piece out of flight; ``False`` if it was not: its node may have been dropped."""
        if send not in self._flying:
            return False
        self._flying.discard(send)
        self._coming[send.receiver].discard(send.piece)
        return True

    def _offer(self, holder: str, piece: int) -> None:
        """Let the next node that lacks a piece get it from one that has it, unless it
        is in flight.
        """
        node = next((one for one in self._after(holder) if piece in self._lacks[one]), None)
        if node is None or piece in self._coming[node]:
            return
        is_blocked = (holder, node) in self._blocked
        self._offer_from(self._sender_of(piece, node) if is_blocked else holder, node, piece)

    def _offer_from(self, sender: str, node: str, piece: int) -> None:
        self._from.setdefault((sender, node), deque()).append(piece)

    def _sender_of(self, piece: int, node: str) -> str:
        """Return the nearest preceding node that has the piece and reaches the node; else the
        source.
        """
        for one in reversed(self._after(node)):
            if piece in self._held[one] and (one, node) not in self._blocked:
                return one
        return SOURCE

    def _has(self, node: str, piece: int) -> bool:
        """Whether a node has a piece, or is about to get it."""
        return piece in self._held[node] or piece in self._coming[node]

    def _after(self, node: str) -> list[str]:
        """Return the other nodes in ring order, beginning after this one."""
        ring = list(self._held)
        at = ring.index(node)
        return ring[at + 1 :] + ring[:at]

    def _from_source(self) -> Send | None:
        busy = [send.receiver for send in self._flying if send.sender == SOURCE]
        if len(busy) >= SOURCE_PIECES:
            return None
        for node in sorted(self._lacks, key=busy.count):
            piece = self._take((SOURCE, node))
            if piece is not None:
                return Send(piece, SOURCE, node)
        while self._fresh:
            piece = self._fresh.popleft()
            first = next((one for one, lacks in self._lacks.items() if piece in lacks), None)
            if first is not None:
                return Send(piece, SOURCE, first)
        return None

    def _from_peer(self) -> Send | None:
        sent = [send.sender for send in self._flying]
        got = [send.receiver for send in self._flying if send.sender != SOURCE]
        for pair in sorted(self._from, key=lambda pair: sent.count(pair[0])):
            sender, node = pair
            if sender == SOURCE or sent.count(sender) >= PEER_PIECES:
                continue
            if got.count(node) < PEER_PIECES and (piece := self._take(pair)) is not None:
                return Send(piece, sender, node)
        return None

    def _take(self, pair: tuple[str, str]) -> int | None:
        queue, (sender, node) = self._from.get(pair), pair
        while queue:
            piece = queue.popleft()
            # What no longer comes to a peer is offered again once it does.
            is_there = sender == SOURCE or self._has(sender, piece)
            if is_there and piece in self._lacks[node] and piece not in self._coming[node]:
                return piece
        return None
