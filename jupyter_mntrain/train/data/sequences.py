"""Sequences: documents that are cut or packed to one length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.sections import DataSection, TooLong
from jupyter_mntrain.train.data.tokens import Tokens

# Packing: fills sequences with documents. Pure.


def best_fit(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Pack documents by best fit: each one, longest first, goes where the least space is left.

    Uses at most 11/9 of the optimal number of sequences plus 6/9 (Dósa 2007, for first-fit;
    best-fit is no worse).

    Args:
        lengths: each from 1 to ``capacity``.

    Returns:
        Indices into ``lengths``, by sequence.
    """
    sequences: list[list[int]] = []
    with_room: dict[int, list[int]] = defaultdict(list)
    # Bit n is set if some sequence has room for exactly n: one shift finds the tightest fit.
    rooms = 0
    for document in np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable").tolist():
        length = lengths[document]
        enough = rooms >> length
        if enough:
            room = length + (enough & -enough).bit_length() - 1
            sequence = with_room[room].pop()
            if not with_room[room]:
                rooms ^= 1 << room
        else:
            room, sequence = capacity, len(sequences)
            sequences.append([])
        sequences[sequence].append(document)
        left = room - length
        if left:
            with_room[left].append(sequence)
            rooms |= 1 << left
    return sequences


NOT_COUNTED = -100
"""Label of a token that the loss ignores, as in torch and transformers."""

Ids = NDArray[np.int64]


class PackedRow(NamedTuple):
    """One sequence; see :class:`Batch`."""

    inputs: Ids
    labels: Ids
    positions: Ids
    tokens: int
    ends: Sequence[int] = ()
    """Where each document ends; none if documents need not be kept apart."""
    document_begins: Sequence[int] = ()
    """Where each document begins whose first token is in it."""
    document_ends: Sequence[int] = ()
    """Number of inputs before the last token of each document that ends in it."""


class Rows(Protocol):
    """A set of sequences."""

    def __len__(self) -> int: ...

    def row(self, place: int) -> PackedRow: ...

    def seen_tokens(self, window: int | None = None) -> float:
        """Return the mean length of tokens' documents in their sequences (attention's cost).

        Args:
            window: no token sees more.
        """

    @property
    def filled_tokens(self) -> int:
        """Return the number of inputs in all sequences that are not padding."""


class WrappedRows:
    """Sequences cut from one long text, across document boundaries."""

    def __init__(self, tokens: Tokens, length: int) -> None:
        self._tokens = tokens
        self._length = length
        self._positions = np.arange(length)

    def __len__(self) -> int:
        return max(0, (len(self._tokens.ids) - 1) // self._length)

    def seen_tokens(self, window: int | None = None) -> float:
        return min(self._length, window or self._length)

    @property
    def filled_tokens(self) -> int:
        return len(self) * self._length

    def row(self, place: int) -> PackedRow:
        begin = place * self._length
        inputs, labels = _pair(self._tokens, begin, self._length)
        ends = self._tokens.ends
        some = slice(*np.searchsorted(ends, [begin, begin + self._length + 1], side="right"))
        return PackedRow(
            *(inputs, labels, self._positions, self._length),
            document_begins=(0,) if self._tokens.begins_at(begin) else (),
            document_ends=(ends[some] - begin - 1).tolist(),
        )


class PackedRows:
    """Sequences of whole documents, padded at the end.

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

    def seen_tokens(self, window: int | None = None) -> float:
        lengths = self._lengths.astype(np.float64)
        total = float(lengths.sum())
        seen = np.minimum(lengths, window or np.inf)
        return float((lengths * seen).sum()) / total if total else 0.0

    @property
    def filled_tokens(self) -> int:
        return int(self._lengths.sum())

    def row(self, place: int) -> PackedRow:
        inputs, positions = np.zeros((2, self._length), dtype=np.int64)
        labels = np.full(self._length, NOT_COUNTED, dtype=np.int64)
        filled = 0
        ends, document_begins, document_ends = list[int](), list[int](), list[int]()
        for piece in self._rows[place]:
            begin, size = int(self._begins[piece]), int(self._lengths[piece])
            some = slice(filled, filled + size)
            inputs[some], labels[some] = _pair(self._tokens, begin, size)
            positions[some] = np.arange(size)
            if self._tokens.begins_at(begin):
                document_begins.append(filled)
            filled += size
            ends.append(filled)
            if self._tokens.begins_at(begin + size + 1):
                document_ends.append(filled)
        # Padding is a document of its own.
        positions[filled:] = np.arange(self._length - filled)
        if filled < self._length:
            ends.append(self._length)
        # A single document needs no boundary to the padding after it, which it does not see.
        kept_apart = ends if self._packs else ()
        return PackedRow(
            inputs, labels, positions, filled, kept_apart, document_begins, document_ends
        )


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
        raise RecipeError(cause, fix=f"use at most {max(1, count - 1)}, or more text")
    return rows


def hold_out(tokens: Tokens, section: DataSection, *, share: float) -> tuple[Tokens, Tokens]:
    """Split into training and held-out text, between documents where sequences hold whole ones.

    Raises:
        RecipeError: either part is shorter than a sequence needs.
    """
    cut = len(tokens.ids) - int(len(tokens.ids) * share)
    if not section.is_wrapped:
        cut = int(np.concatenate([[0], tokens.ends])[np.searchsorted(tokens.ends, cut)])
    kept, held = tokens.between(0, cut), tokens.between(cut, len(tokens.ids))
    least = section.sequence_length + 1 if section.is_wrapped else 2
    for part in (kept, held):
        if len(part.ids) < least:
            cause = f"evaluation.share = {share:g} holds out {len(held.ids)} of {len(tokens.ids)}"
            cause += f" tokens, and each part needs at least {least}"
            raise RecipeError(cause, fix="use another share, shorter sequences or more text")
    return kept, held


def _pair(tokens: Tokens, begin: int, size: int) -> tuple[Ids, Ids]:
    """Return inputs and labels of ``size`` tokens from ``begin``."""
    ids = tokens.ids[begin : begin + size + 1].astype(np.int64)
    labels = ids[1:]
    if tokens.answers is not None:
        counts = tokens.answers[begin + 1 : begin + size + 1]
        labels = np.where(counts, labels, NOT_COUNTED)
    return ids[:-1], labels


def _pieces(tokens: Tokens, length: int, too_long: TooLong) -> tuple[Ids, Ids]:
    """Return first token and number of pairs of each piece of a document with labels to count."""
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
        has_any = _any_inside(tokens.answers, piece_begins + 1, piece_begins + sizes + 1)
        piece_begins, sizes = piece_begins[has_any], sizes[has_any]
    return piece_begins.astype(np.int64), sizes.astype(np.int64)


def _any_inside(mask: NDArray[np.bool_], begins: Ids, ends: Ids) -> NDArray[np.bool_]:
    """Return for each range whether any value in it is set.

    Ranges are ordered and not empty; no per-token memory is used.
    """
    places = np.column_stack([begins, ends]).ravel()
    if ends[-1] == len(mask):
        places = places[:-1]  # a last range goes to the end
    found: NDArray[np.bool_] = np.logical_or.reduceat(mask, places)[::2]
    return found


class JoinedRows:
    """The sequences of several sources, one source after another."""

    def __init__(self, sources: Sequence[Rows]) -> None:
        self._sources = sources
        self._ends = np.cumsum([len(rows) for rows in sources])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def seen_tokens(self, window: int | None = None) -> float:
        return float(
            np.average(
                [rows.seen_tokens(window) for rows in self._sources],
                weights=[rows.filled_tokens for rows in self._sources],
            )
        )

    @property
    def filled_tokens(self) -> int:
        return sum(rows.filled_tokens for rows in self._sources)

    def row(self, place: int) -> PackedRow:
        source = int(np.searchsorted(self._ends, place, side="right"))
        before = int(self._ends[source - 1]) if source else 0
        return self._sources[source].row(place - before)
