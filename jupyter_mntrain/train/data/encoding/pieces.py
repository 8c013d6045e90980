"""Pieces: cuts a long text where its tokens do not change, so that few are in memory at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tokenizers import Tokenizer

PIECE_CHARACTERS = 1 << 17
"""Most of a piece: an encoding holds over a hundred bytes for each token, its ids only four."""

_AROUND = 1000
"""Characters on both sides of a cut that must give the same tokens with it and without."""
_MOST_TRIED = 16
_CUTS = re.compile(r"(?<=\n)(?=\S)|(?<=\S)(?= \S)")
"""Where a line begins, or a word."""


class Piece(NamedTuple):
    """A part of a text.

    Args:
        begin: its place in the text, in characters.
    """

    text: str
    begin: int
    is_last: bool


def pieces_of(text: str, tokenizer: Tokenizer, most: int = PIECE_CHARACTERS) -> Iterator[Piece]:
    """Cut a text into pieces whose tokens, one after the other, are those of the text.

    A tokenizer that begins each text in another way, like Llama 2's, leaves it whole.

    Args:
        most: characters of a piece.
    """
    begin = 0
    while len(text) - begin > most:
        end = _cut(text, begin, begin + most, tokenizer)
        if end is None:
            break
        yield Piece(text[begin:end], begin, is_last=False)
        begin = end
    yield Piece(text[begin:] if begin else text, begin, is_last=True)


def _cut(text: str, begin: int, upto: int, tokenizer: Tokenizer) -> int | None:
    """The last place that does not change the tokens around it, in the last part of a piece."""
    first = max(begin + 1, upto - _AROUND * _MOST_TRIED)
    places = [found.start() for found in _CUTS.finditer(text, first, upto)]
    tried = places[:: -max(1, len(places) // _MOST_TRIED)]
    return next((place for place in tried if _is_unchanged(text, place, tokenizer)), None)


def _is_unchanged(text: str, place: int, tokenizer: Tokenizer) -> bool:
    first, last = max(0, place - _AROUND), place + _AROUND

    def ids(begin: int, end: int) -> list[int]:
        found: list[int] = tokenizer.encode(text[begin:end], add_special_tokens=False).ids
        return found

    return ids(first, last) == ids(first, place) + ids(place, last)
