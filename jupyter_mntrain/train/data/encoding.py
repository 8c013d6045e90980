"""Encoding: documents are read, cut into pieces, tokenized and written to the cache."""

from __future__ import annotations

import errno
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
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

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.text.foreign import is_unicode
from jupyter_mntrain.recipe.sections import DataSection
from jupyter_mntrain.telemetry.progress import ProgressWriter
from jupyter_mntrain.train.data.chat import ChatWriter, RenderedChat
from jupyter_mntrain.train.data.conversations import split_turns
from jupyter_mntrain.train.data.corpus import Corpus, Located
from jupyter_mntrain.train.data.records import BadRows, RowError, SkippedRows
from jupyter_mntrain.train.data.special_tokens import SpecialTokens

# Pieces: cuts a long text where its tokens do not change, so that few are in memory at once.


PIECE_CHARACTERS = 1 << 17
"""Longest piece: an encoding takes over a hundred bytes per token, its ids only four."""

_AROUND = 1000
"""Characters on both sides of a cut that must give the same tokens with it and without."""
_MOST_TRIED = 16
_CUTS = re.compile(r"(?<=\n)(?=\S)|(?<=\S)(?= \S)")
"""Places where a line or a word begins."""


class Piece(NamedTuple):
    """A part of a text.

    Args:
        begin: its place in the text, in characters.
    """

    text: str
    begin: int
    is_last: bool


def pieces_of(text: str, tokenizer: Tokenizer, most: int = PIECE_CHARACTERS) -> Iterator[Piece]:
    """Cut a text into pieces whose tokens, joined, are those of the whole text.

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
    """Return the last place near the end of a piece where a cut leaves the tokens unchanged."""
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


# Reading: a pass over the documents as text, in which rows are skipped, split and counted.


class ReadCounts(Record, frozen=True):
    """Counts of what happened to the rows.

    Args:
        rows: number of all, or of files with text.
        skipped: rows left out, by kind.
        split: conversations that became several.
        documents: number of documents of each source.
        special: number of documents in which people wrote special tokens, read as text.
        special_token: one of these.
    """

    rows: int = 0
    skipped: tuple[SkippedRows, ...] = ()
    split: int = 0
    documents: tuple[int, ...] = ()
    special: int = 0
    special_token: str = ""


NO_COUNTS = ReadCounts()


class Reading:
    """One pass over the documents as text.

    Args:
        special: finds special tokens in texts.
        fits: whether a text is short enough; others are split between turns.
    """

    def __init__(
        self,
        corpus: Corpus,
        writer: ChatWriter,
        special: SpecialTokens,
        fits: Callable[[RenderedChat], bool] | None = None,
    ) -> None:
        self._corpus = corpus
        self._writer = writer
        self._special = special
        self._fits = fits
        self._bad = BadRows(corpus.section)
        self._split = 0
        self._special_count, self._special_token = 0, ""
        self._documents = [0] * max(1, len(corpus.parts))

    def texts(self, progress: ProgressWriter, what: str) -> Iterator[RenderedChat]:
        """Yield the texts.

        Raises:
            RecipeError: at the end: too many rows are bad.
        """
        for found in self._corpus.documents(progress=progress, what=what, bad=self._bad):
            try:
                written = self._written(found)
            except RowError as error:
                self._bad.add(error)
            else:
                self._documents[found.source] += len(written)
                for one in written:
                    if one.special is not None:
                        self._special_count += 1
                        self._special_token = self._special_token or one.special
                yield from written
        self._bad.finish()

    def counts(self) -> ReadCounts:
        return ReadCounts(
            rows=self._bad.rows,
            skipped=self._bad.skipped(),
            split=self._split,
            documents=tuple(self._documents),
            special=self._special_count,
            special_token=self._special_token,
        )

    def _written(self, found: Located) -> list[RenderedChat]:
        written, document = self._text(found), found.document
        if self._fits is None or isinstance(document, str) or self._fits(written):
            return [written]
        fits = self._fits
        pieces = [
            msgspec.structs.replace(found, document=piece)
            for piece in split_turns(
                document,
                lambda some: fits(self._text(msgspec.structs.replace(found, document=some))),
            )
        ]
        self._split += len(pieces) > 1
        return [self._text(piece) for piece in pieces]

    def _text(self, found: Located) -> RenderedChat:
        if isinstance(found.document, str):
            special = self._special.found_in(found.document)
            written = RenderedChat(found.document, special=special)
        else:
            written = self._writer.write(found.document, found.where, found.tools)
        if not is_unicode(written.text):
            fix = "repair its \\ud800 to \\udfff: each needs its other half"
            raise RowError(
                found.where, "text that is not valid Unicode: half a surrogate pair", fix=fix
            )
        return written


def fitting(section: DataSection, special: SpecialTokens) -> Callable[[RenderedChat], bool] | None:
    """Return a test whether a text fits into a sequence; ``None`` if nothing is to be split."""
    if section.too_long != "split":
        return None
    most = section.sequence_length + 1  # the last one is only predicted

    def fits(written: RenderedChat) -> bool:
        text, tokenizer = written.text, special.tokenizer_for(written.special)
        # A token is a byte or more.
        return len(text.encode()) <= most or (
            len(tokenizer.encode(text, add_special_tokens=False).ids) <= most
        )

    return fits


# Encoder: texts to the files of the cache, the next ones encoded while these are written.


IDS, ENDS, ANSWERED, COUNTS = "ids.int32", "ends.int64", "answered.bool", "counts.json"
"""Files of the cache, in native byte order: it is not shared between machines."""

_BATCH_CHARACTERS = 1 << 20
"""Characters encoded at once: enough to occupy the tokenizer's threads."""
_AHEAD = 3
"""Batches that are encoded while others are read and written."""
_PIECE_COSTS = 256
"""Characters added to a text's own count, because each encoding has an overhead."""


class _Part(NamedTuple):
    """A piece of a document to encode."""

    piece: Piece
    answers: Sequence[tuple[int, int]] | None
    tokenizer: Tokenizer


class _EncodedBatch(NamedTuple):
    """The token ids of some pieces, where documents end in them, and which tokens are answers."""

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
        """Encode all documents, and save the counts of what was read.

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
    """Encode all pieces, each with its tokenizer, and yield them in order."""
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
    """Turn a full disk into an error that names the cache's folder.

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
    """Return a mask of the tokens that belong to answers.

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
