"""Batches: which tokens each step sees, a pure function of seed and step."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.parts.data import DataSection, TooLong
from jupyter_mntrain.train.data.packing import best_fit
from jupyter_mntrain.train.data.tokens import Tokens

NOT_COUNTED = -100
"""Label of a token that the loss ignores, as in torch and transformers."""

Ids = NDArray[np.int64]


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


class PackedRow(NamedTuple):
    """One sequence; see :class:`Batch`."""

    inputs: Ids
    labels: Ids
    positions: Ids
    tokens: int
    ends: Sequence[int] = ()
    """Where each document ends; none if documents need not be kept apart."""


class Rows(Protocol):
    """Sequences to choose from."""

    def __len__(self) -> int: ...

    def row(self, place: int) -> PackedRow: ...

    @property
    def seen_tokens(self) -> float:
        """Average length, over tokens, of a token's document in its sequence: attention's cost."""

    @property
    def filled_tokens(self) -> int:
        """Number of inputs of all sequences that are not padding."""


class WrappedRows:
    """Sequences cut from one long text, across documents."""

    def __init__(self, tokens: Tokens, length: int) -> None:
        self._tokens = tokens
        self._length = length
        self._positions = np.arange(length)

    def __len__(self) -> int:
        return max(0, (len(self._tokens.ids) - 1) // self._length)

    @property
    def seen_tokens(self) -> float:
        return self._length

    @property
    def filled_tokens(self) -> int:
        return len(self) * self._length

    def row(self, place: int) -> PackedRow:
        begin = place * self._length
        inputs, labels = _pair(self._tokens, begin, self._length)
        return PackedRow(inputs, labels, self._positions, self._length)


class PackedRows:
    """Sequences of whole documents, followed by padding.

    A document of n tokens yields n - 1 (token, next token) pairs. One longer than a sequence is cut
    without losing a pair, unless ``too_long`` says otherwise.

    Args:
        packs: put several documents into a sequence; otherwise each gets its own.
    """

    def __init__(
        self, tokens: Tokens, length: int, *, packs: bool, too_long: TooLong = "cut"
    ) -> None:
        self._tokens = tokens
        self._length = length
        self._packs = packs
        self._begins, self._lengths = _pieces(tokens, length, too_long)
        if packs:
            self._rows = best_fit(self._lengths.tolist(), length)
        else:
            self._rows = [[piece] for piece in range(len(self._lengths))]

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def seen_tokens(self) -> float:
        total = float(self._lengths.sum())
        return float(np.square(self._lengths.astype(np.float64)).sum()) / total if total else 0.0

    @property
    def filled_tokens(self) -> int:
        return int(self._lengths.sum())

    def row(self, place: int) -> PackedRow:
        inputs, positions = np.zeros((2, self._length), dtype=np.int64)
        labels = np.full(self._length, NOT_COUNTED, dtype=np.int64)
        filled = 0
        ends: list[int] = []
        for piece in self._rows[place]:
            begin, size = int(self._begins[piece]), int(self._lengths[piece])
            some = slice(filled, filled + size)
            inputs[some], labels[some] = _pair(self._tokens, begin, size)
            positions[some] = np.arange(size)
            filled += size
            ends.append(filled)
        # Padding is a document of its own.
        positions[filled:] = np.arange(self._length - filled)
        if filled < self._length:
            ends.append(self._length)
        # A single document needs no boundary to the padding after it, which it does not see.
        return PackedRow(inputs, labels, positions, filled, ends if self._packs else ())


class Batches:
    """Batches of sequences, reshuffled in each epoch.

    First and last stage each read the batch themselves, so only activations cross the network.

    Args:
        batch_size: sequences per optimizer step.
    """

    def __init__(self, rows: Rows, *, batch_size: int, seed: int) -> None:
        self._rows = rows
        self._batch_size = batch_size
        self._seed = seed
        self._epoch = -1
        self._order: NDArray[np.int64] = np.empty(0, np.int64)

    def batch(self, step: int) -> Batch:
        """Return the batch of one optimizer step, counted from 0."""
        first = step * self._batch_size
        places = [self._place(first + offset) for offset in range(self._batch_size)]
        return _stacked([self._rows.row(place) for place in places])

    def fingerprint(self) -> str:
        """Hash the first batch, to detect ranks that would shuffle differently."""
        batch = self.batch(0)
        digest = hashlib.sha256()
        for one in (batch.inputs, batch.labels, batch.positions):
            digest.update(one.numpy().tobytes())
        return digest.hexdigest()

    def _place(self, position: int) -> int:
        epoch, place = divmod(position, len(self._rows))
        if epoch != self._epoch:
            generator = np.random.default_rng([self._seed, epoch])
            self._epoch, self._order = epoch, generator.permutation(len(self._rows))
        return int(self._order[place])


def rows_of(tokens: Tokens, section: DataSection) -> Rows:
    """Make sequences of the documents.

    Raises:
        RecipeError: there is too little text for one sequence.
    """
    length = section.sequence_length
    rows: Rows
    if section.is_wrapped:
        rows = WrappedRows(tokens, length)
    else:
        packs, too_long = section.packing != "none", section.too_long
        rows = PackedRows(tokens, length, packs=packs, too_long=too_long)
    if len(rows) == 0:
        count = len(tokens.ids)
        if section.too_long == "drop" and count > length:
            cause = f'data.too_long = "drop": all documents are longer than {length} tokens'
            raise RecipeError(cause, fix="use longer sequences, or another too_long")
        cause = f"data.sequence_length = {length}: the text has {count} tokens"
        raise RecipeError(cause, fix=f"use at most {max(1, count - 1)} or more text")
    return rows


def sample_of(rows: Rows, most: int) -> Batch:
    """Pick at most ``most`` sequences, evenly spaced."""
    count = min(most, len(rows))
    places = np.linspace(0, len(rows) - 1, count).astype(int)
    return _stacked([rows.row(int(place)) for place in places])


def _pair(tokens: Tokens, begin: int, size: int) -> tuple[Ids, Ids]:
    """Inputs and labels of ``size`` tokens from ``begin``."""
    ids = tokens.ids[begin : begin + size + 1].astype(np.int64)
    labels = ids[1:]
    if tokens.answers is not None:
        counts = tokens.answers[begin + 1 : begin + size + 1]
        labels = np.where(counts, labels, NOT_COUNTED)
    return ids[:-1], labels


def _pieces(tokens: Tokens, length: int, too_long: TooLong) -> tuple[Ids, Ids]:
    """First token and number of pairs of each piece of a document with a label that counts."""
    begins = np.concatenate([[0], tokens.ends[:-1]])
    pairs = tokens.pairs
    cuts = -(-pairs // length)
    if too_long == "drop":
        cuts = np.where(pairs > length, 0, cuts)
    elif too_long != "cut":
        cuts = np.minimum(cuts, 1)
    document = np.repeat(np.arange(len(cuts)), cuts)
    first = np.repeat(np.cumsum(cuts) - cuts, cuts)
    inside = (np.arange(len(document)) - first) * length
    piece_begins = begins[document] + inside
    sizes = np.minimum(pairs[document] - inside, length)
    if tokens.answers is not None and len(sizes):
        counted = np.concatenate([[0], np.cumsum(tokens.answers)])
        has_any = counted[piece_begins + sizes + 1] > counted[piece_begins + 1]
        piece_begins, sizes = piece_begins[has_any], sizes[has_any]
    return piece_begins.astype(np.int64), sizes.astype(np.int64)


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
