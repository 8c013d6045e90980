"""Packing: fills sequences with documents. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np


def best_fit(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Best-fit decreasing: put each document, longest first, where the least room is left.

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
