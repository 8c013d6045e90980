"""Batches: the tokens of each step, as a pure function of seed and step."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from jupyter_mntrain.train.data.sequences import NOT_COUNTED, PackedRow, Rows

# Drawing: which sequence is at which place of an endless order, by seed.


_ROUND = 1000
"""Sequences in a round, unless a source has so little weight that it needs more."""
_FEWEST = 10
"""Sequences of the lightest source in a round: its weight is kept within 5 %."""
_LONGEST_ROUND = 100_000


class Drawn(Protocol):
    """An endless stream of sequences in a fixed order."""

    def at(self, position: int) -> PackedRow: ...


class Shuffled:
    """Sequences of one source, reshuffled in each epoch."""

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
    """Sequences of several sources, by weight; a source repeats only after all of it was used.

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
    """Return how many sequences of each source a round has."""
    shares = np.asarray(weights, np.float64) / sum(weights)
    length = min(_LONGEST_ROUND, max(_ROUND, int(np.ceil(_FEWEST / shares.min()))))
    return np.maximum(1, np.rint(shares * length)).astype(np.int64)


@dataclass(frozen=True)
class Batch:
    """A batch of token sequences; the first three tensors are int64, (sequences, sequence_length).

    Args:
        inputs: token ids.
        labels: the next token's id, or :data:`NOT_COUNTED`.
        positions: from 0 in each document.
        tokens: number of inputs that are not padding.
        ends: where each document ends in its sequence, filled up with sequence_length: int32,
            (sequences, most documents in one); ``None`` if a sequence is one document.
        longest: at least the length of the longest document, in tokens, if there are several.
    """

    inputs: torch.Tensor
    labels: torch.Tensor
    positions: torch.Tensor
    tokens: int
    ends: torch.Tensor | None = None
    longest: int = 0

    def __len__(self) -> int:
        return len(self.inputs)

    @cached_property
    def counted(self) -> int:
        """The number of labels that the loss counts."""
        return int((self.labels != NOT_COUNTED).sum())

    def parts(self, sequences: int, *, at_least: int = 0) -> Iterator[Batch]:
        """Split into parts of ``sequences`` each; the last may have fewer. ``tokens`` is not split.

        Args:
            at_least: number of parts to yield at least, empty ones if necessary.
        """
        for number in range(max(at_least, -(-len(self) // sequences))):
            some = slice(number * sequences, (number + 1) * sequences)
            yield self._some(some)

    def share(self, place: int, count: int) -> Batch:
        """Take every ``count``-th sequence, for one of ``count`` pipelines; ``tokens`` is kept."""
        return self._some(slice(place, None, count))

    def filled(self, sequences: int) -> Batch:
        """Pad with empty sequences to ``sequences``."""
        shape = (sequences - len(self), self.inputs.shape[1])
        ends = self.ends
        if ends is not None and shape[0]:
            ends = torch.cat([ends, ends.new_full((shape[0], ends.shape[1]), shape[1])])
        return Batch(
            torch.cat([self.inputs, self.inputs.new_zeros(shape)]),
            torch.cat([self.labels, self.labels.new_full(shape, NOT_COUNTED)]),
            torch.cat([self.positions, torch.arange(shape[1]).expand(shape)]),
            self.tokens,
            ends,
            max(self.longest, shape[1]) if shape[0] else self.longest,
        )

    def to(self, device: torch.device) -> Batch:
        """Copy to a device. A GPU keeps computing meanwhile, and the host does not wait."""
        return replace(
            self,
            inputs=moved(self.inputs, device),
            labels=moved(self.labels, device),
            positions=moved(self.positions, device),
            ends=None if self.ends is None else moved(self.ends, device),
        )

    def _some(self, rows: slice) -> Batch:
        return replace(
            self,
            inputs=self.inputs[rows],
            labels=self.labels[rows],
            positions=self.positions[rows],
            ends=None if self.ends is None else self.ends[rows],
        )


def moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a host tensor to a device without waiting.

    From pageable memory the host would wait for all that was queued on the GPU before. torch keeps
    pinned memory until the copies that were begun from it have ended.
    """
    if device.type == "cpu":
        return tensor
    return tensor.contiguous().pin_memory().to(device, non_blocking=True)


class Batches:
    """Batches of sequences, reshuffled in each epoch.

    First and last stage each read the batch themselves, so only activations cross the network.

    Args:
        rows: sequences; of several sources, those of each.
        batch_size: sequences per optimizer step.
        weights: of several sources.
    """

    def __init__(
        self, *rows: Rows, batch_size: int, seed: int, weights: Sequence[float] = ()
    ) -> None:
        self._batch_size = batch_size
        self._drawn: Drawn = (
            Shuffled(rows[0], seed) if len(rows) == 1 else Mixture(rows, weights, seed)
        )

    def batch(self, step: int) -> Batch:
        """Return the batch of one optimizer step, counted from 0."""
        first = step * self._batch_size
        return _stacked([self._drawn.at(first + offset) for offset in range(self._batch_size)])

    def first(self, count: int) -> list[PackedRow]:
        """Return the sequences that are trained on first."""
        return [self._drawn.at(position) for position in range(count)]

    def fingerprint(self) -> str:
        """Hash the first batch, to detect ranks that shuffle differently."""
        batch = self.batch(0)
        digest = hashlib.sha256()
        for one in (batch.inputs, batch.labels, batch.positions):
            digest.update(one.numpy().tobytes())
        return digest.hexdigest()


def sample_of(rows: Rows, most: int) -> Batch:
    """Pick at most ``most`` sequences, evenly spaced."""
    count = min(most, len(rows))
    places = np.linspace(0, len(rows) - 1, count).astype(int)
    return _stacked([rows.row(int(place)) for place in places])


def _stacked(rows: Sequence[PackedRow]) -> Batch:
    inputs, labels, positions = (
        torch.from_numpy(np.stack([row[part] for row in rows]).astype(np.int64))
        for part in range(3)
    )
    tokens = sum(row.tokens for row in rows)
    if not any(row.ends for row in rows):
        return Batch(inputs, labels, positions, tokens)
    longest = int(positions.max()) + 1
    ends = torch.full(
        (len(rows), max(len(row.ends) for row in rows)), inputs.shape[1], dtype=torch.int32
    )
    for number, row in enumerate(rows):
        ends[number, : len(row.ends)] = torch.tensor(row.ends)
    # Rounded up to a power of two: compiled layers are made again for another number.
    return Batch(inputs, labels, positions, tokens, ends, 1 << (longest - 1).bit_length())
