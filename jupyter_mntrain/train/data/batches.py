"""Batches: which tokens each step sees, a pure function of seed and step."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from jupyter_mntrain.train.data.drawing import Drawn, Mixture, Shuffled
from jupyter_mntrain.train.data.sequences import NOT_COUNTED, PackedRow, Rows


@dataclass(frozen=True)
class Batch:
    """Sequences of token ids; the first three tensors are int64, (sequences, sequence_length).

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
        """Number of labels that the loss counts."""
        return int((self.labels != NOT_COUNTED).sum())

    def parts(self, sequences: int, *, at_least: int = 0) -> Iterator[Batch]:
        """Split into parts of ``sequences``; the last may have fewer. ``tokens`` is not split.

        Args:
            at_least: number of parts to yield at least, empty ones if necessary.
        """
        for number in range(max(at_least, -(-len(self) // sequences))):
            some = slice(number * sequences, (number + 1) * sequences)
            yield self._some(some)

    def share(self, place: int, count: int) -> Batch:
        """Take every ``count``-th sequence, for one of ``count`` pipelines. ``tokens`` is kept."""
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
        """Copy to a device; a GPU computes meanwhile, and the host does not wait for the copies."""
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
    """Copy a tensor of the host to a device, without waiting.

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
        """The sequences that are trained on first."""
        return [self._drawn.at(position) for position in range(count)]

    def fingerprint(self) -> str:
        """Hash the first batch, to detect ranks that would shuffle differently."""
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
    # Rounded up to a power of two: compiled layers are made anew for another number.
    return Batch(inputs, labels, positions, tokens, ends, 1 << (longest - 1).bit_length())
