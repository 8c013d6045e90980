"""Reading: a pass over the documents as text, in which rows are skipped, split and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.text.foreign import is_unicode
from jupyter_mntrain.recipe.parts.data import DataSection
from jupyter_mntrain.telemetry.progress import ProgressWriter
from jupyter_mntrain.train.data.bad_rows import BadRows, RowError, SkippedRows
from jupyter_mntrain.train.data.chat import ChatWriter, RenderedChat
from jupyter_mntrain.train.data.corpus import Corpus, Located
from jupyter_mntrain.train.data.special_tokens import SpecialTokens
from jupyter_mntrain.train.data.splitting import split_turns


class ReadCounts(Record, frozen=True):
    """What became of the rows.

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
        self._bad.settle()

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
            raise RowError(found.where, "text that is no Unicode: half a surrogate pair", fix=fix)
        return written


def fitting(section: DataSection, special: SpecialTokens) -> Callable[[RenderedChat], bool] | None:
    """Whether a text fits into a sequence; ``None`` if nothing is split."""
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
