"""Encoder: texts to the files of the cache, the next ones encoded while these are written."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.train.data.chat import RenderedChat
from jupyter_mntrain.train.data.encoding.pieces import Piece, pieces_of
from jupyter_mntrain.train.data.encoding.reading import Reading
from jupyter_mntrain.train.data.special_tokens import SpecialTokens

IDS, ENDS, ANSWERED, COUNTS = "ids.int32", "ends.int64", "answered.bool", "counts.json"
"""Files of the cache, in native byte order: it is not shared between machines."""

_BATCH_CHARACTERS = 1 << 20
"""Encoded at once: enough to occupy the tokenizer's threads."""
_AHEAD = 3
"""Batches that are encoded while others are read and written."""
_PIECE_COSTS = 256
"""Characters that a text counts as besides its own: an encoding has a size of its own, too."""


class _Part(NamedTuple):
    """A piece of a document."""

    piece: Piece
    answers: Sequence[tuple[int, int]] | None
    tokenizer: Tokenizer


class _EncodedBatch(NamedTuple):
    """Token ids of some parts, where documents end in them, and which ones are answers."""

    ids: NDArray[np.int32]
    ends: NDArray[np.int64]
    answered: Sequence[NDArray[np.bool_]]


class Encoder:
    """Encodes documents and appends them to the cache's files, in order.

    Only a few batches are in memory, each of so much text; the tokenizer's threads encode those
    while this one reads and writes others.

    Args:
        special: has the tokenizers.
        begin: id put before each document.
        end: id appended to it.
        folder: new; receives the files.
    """

    def __init__(
        self, special: SpecialTokens, begin: int | None, end: int | None, folder: Path
    ) -> None:
        self._special = special
        self._head = [] if begin is None else [begin]
        self._tail = [] if end is None else [end]
        self._folder = folder

    def run(self, documents: Iterable[RenderedChat], reading: Reading) -> None:
        """Encode all documents, and note what was counted while they were read.

        Raises:
            RecipeError: the disk is full.
        """
        self._folder.mkdir()
        with refusing_full_disk(self._folder.parent), ThreadPoolExecutor(_AHEAD) as pool:
            self._write(self._ahead(pool, self._batches(documents)))
            (self._folder / COUNTS).write_bytes(msgspec.json.encode(reading.counts()))

    def _write(self, batches: Iterable[_EncodedBatch]) -> None:
        begin = 0
        with (
            (self._folder / IDS).open("wb") as ids,
            (self._folder / ENDS).open("wb") as ends,
            (self._folder / ANSWERED).open("wb") as answered,
        ):
            for batch in batches:
                # Not with tofile, whose error does not tell that the disk is full.
                ids.write(batch.ids.data)
                ends.write((batch.ends + begin).data)
                for one in batch.answered:
                    answered.write(one.data)
                begin += len(batch.ids)

    def _batches(self, documents: Iterable[RenderedChat]) -> Iterator[list[_Part]]:
        batch: list[_Part] = []
        size = 0
        for written in documents:
            tokenizer = self._special.tokenizer_for(written.special)
            for piece in pieces_of(written.text, tokenizer):
                batch.append(_Part(piece, written.answers, tokenizer))
                size += len(piece.text) + _PIECE_COSTS
                if size >= _BATCH_CHARACTERS:
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch

    def _ahead(
        self, pool: ThreadPoolExecutor, batches: Iterable[list[_Part]]
    ) -> Iterator[_EncodedBatch]:
        waiting: deque[Future[_EncodedBatch]] = deque()
        for batch in batches:
            waiting.append(pool.submit(self._encode, batch))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _encode(self, batch: Sequence[_Part]) -> _EncodedBatch:
        ids: list[int] = []
        ends: list[int] = []
        answered: list[NDArray[np.bool_]] = []
        for part, encoding in _encodings(batch):
            if not part.piece.begin:
                ids += self._head
            ids += encoding.ids
            if part.piece.is_last:
                ids += self._tail
                ends.append(len(ids))
            if part.answers is not None:
                answered.append(_inside(encoding.offsets, part.answers, part.piece.begin))
        return _EncodedBatch(np.array(ids, np.int32), np.array(ends, np.int64), answered)


def _encodings(batch: Sequence[_Part]) -> Iterator[tuple[_Part, Encoding]]:
    """All parts, in order, each encoded by its tokenizer."""
    for tokenizer, group in groupby(batch, attrgetter("tokenizer")):
        parts = list(group)
        is_fast = all(part.answers is None for part in parts)
        # The fast one leaves out offsets, which only answers need.
        encode = tokenizer.encode_batch_fast if is_fast else tokenizer.encode_batch
        # Most of its time this is in the tokenizer's threads, and other threads of Python run.
        texts = [part.piece.text for part in parts]
        yield from zip(parts, encode(texts, add_special_tokens=False), strict=True)


@contextmanager
def refusing_full_disk(folder: Path) -> Iterator[None]:
    """Name the cache's folder if there is no room for it.

    Raises:
        RecipeError: the disk is full, or the user's share of it.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        cause = f"{folder}: the disk has no room for the tokens, 4 bytes for each"
        fix = "free space there, or set XDG_CACHE_HOME to a folder on a larger disk of that node"
        raise RecipeError(cause, fix=fix) from None


def _inside(
    offsets: Sequence[tuple[int, int]], answers: Sequence[tuple[int, int]], before: int
) -> NDArray[np.bool_]:
    """Return a mask of the tokens that hold a character of an answer, or are empty inside of it.

    A token with the last character of what stands before, most often a space, and the first one of
    an answer is of the answer: what it says otherwise begins with the second.

    Args:
        before: characters before the text that the offsets are of.
    """
    begins, ends = np.array(offsets, dtype=np.int64).reshape(-1, 2).T + before
    inside = np.zeros(len(begins), dtype=np.bool_)
    for begin, end in answers:
        inside |= ((begins >= begin) | (ends > begin)) & (begins < end)
    return inside
