"""Drawing: which sequence is at which place of an endless order, by seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from jupyter_mntrain.train.data.sequences import PackedRow, Rows

_ROUND = 1000
"""Sequences in which the weights of sources are kept, unless one is so light that it needs more."""
_FEWEST = 10
"""Sequences of the lightest source in a round: its weight is kept within 5 %."""
_LONGEST_ROUND = 100_000


class Drawn(Protocol):
    """Sequences in an endless order."""

    def at(self, position: int) -> PackedRow: ...


class Shuffled:
    """Sequences of one source, in another order in each epoch."""

    def __init__(self, rows: Rows, seed: int) -> None:
        self._rows = rows
        self._seed = seed
        self._epoch = -1
        self._order: NDArray[np.int64] = np.empty(0, np.int64)

    def at(self, position: int) -> PackedRow:
        epoch, place = divmod(position, len(self._rows))
        if epoch != self._epoch:
            generator = np.random.default_rng([self._seed, epoch])
            self._epoch, self._order = epoch, generator.permutation(len(self._rows))
        return self._rows.row(int(self._order[place]))


class Mixture:
    """Sequences of several sources, by weight; each source is used up before it is repeated.

    Every round has as many of each source as its weight says, in random order.
    """

    def __init__(self, sources: Sequence[Rows], weights: Sequence[float], seed: int) -> None:
        self._sources = [Shuffled(rows, seed) for rows in sources]
        self._seed = seed
        self._counts = counts_of(weights)
        self._round = -1
        self._which: NDArray[np.int64] = np.empty(0, np.int64)
        self._before: NDArray[np.int64] = np.empty(0, np.int64)

    def at(self, position: int) -> PackedRow:
        number, place = divmod(position, int(self._counts.sum()))
        if number != self._round:
            self._shuffle(number)
        source = int(self._which[place])
        return self._sources[source].at(
            number * int(self._counts[source]) + int(self._before[place])
        )

    def _shuffle(self, number: int) -> None:
        generator = np.random.default_rng([self._seed, number])
        which = generator.permutation(np.repeat(np.arange(len(self._counts)), self._counts))
        before = np.empty(len(which), np.int64)
        for source, count in enumerate(self._counts):
            before[which == source] = np.arange(count)
        self._round, self._which, self._before = number, which, before


def counts_of(weights: Sequence[float]) -> NDArray[np.int64]:
    """How many sequences of each source are in a round."""
    shares = np.asarray(weights, np.float64) / sum(weights)
    length = min(_LONGEST_ROUND, max(_ROUND, int(np.ceil(_FEWEST / shares.min()))))
    return np.maximum(1, np.rint(shares * length)).astype(np.int64)
