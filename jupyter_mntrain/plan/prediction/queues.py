"""Queues: messages of a rank that begin one after another."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable

from jupyter_mntrain.recipe.orders import StageAction

Pair = tuple[int, int]
"""Sender's and receiver's rank."""


class Queues:
    """Tells which messages may begin: those in the first operation of each of their queues.

    Args:
        queue_of: the queue of a rank's message; ``None`` if it waits for nothing.
        is_batched: whether messages that follow each other at once are one operation.
    """

    def __init__(
        self, queue_of: Callable[[StageAction, Pair], Hashable], *, is_batched: bool
    ) -> None:
        self._queue_of = queue_of
        self._is_batched = is_batched
        self._operations: dict[Hashable, deque[list[StageAction]]] = defaultdict(deque)
        self._queues_of: dict[StageAction, list[Hashable]] = defaultdict(list)

    def add(
        self, rank: int, action: StageAction, received: StageAction, pair: Pair, *, follows: bool
    ) -> None:
        """Add a rank's send or receive.

        Args:
            received: the message's name.
            follows: right after another message of this rank.
        """
        queue = self._queue_of(action, pair)
        if queue is None:
            return
        operations = self._operations[rank, queue]
        if self._is_batched and follows and operations:
            operations[-1].append(received)
        else:
            operations.append([received])
        self._queues_of[received].append((rank, queue))

    def may_begin(self, received: StageAction) -> bool:
        return all(received in self._operations[key][0] for key in self._queues_of[received])

    def end(self, received: StageAction) -> list[StageAction]:
        """Take out a message, and return those that may begin now."""
        following: list[StageAction] = []
        for key in self._queues_of[received]:
            operations = self._operations[key]
            operations[0].remove(received)
            if not operations[0]:
                operations.popleft()
                following += operations[0] if operations else ()
        return following
