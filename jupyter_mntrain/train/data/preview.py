"""Preview: the first sequences in readable form, with the trained tokens marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from jupyter_mntrain.model.records.sequences import ShownSequence, TokenRun
from jupyter_mntrain.train.data.sequences import NOT_COUNTED, PackedRow
from jupyter_mntrain.train.data.special_tokens import marking_tokens

SHOWN = 3
"""Sequences that are shown."""

_MOST_DOCUMENTS = 3
"""Most documents shown of a sequence."""
_MOST_RUNS = 36
"""Most runs shown of a document: three turns of a conversation have about that many."""
_MOST_TOKENS, _FEWEST_TOKENS = 160, 40
"""Most tokens shown of a document, and fewest of each of its runs of text."""
_BEFORE = 4
"""Tokens before a run that are decoded with it: whether it begins with a space depends on them."""


class _Token(NamedTuple):
    token: int
    is_learned: bool


class _Document(NamedTuple):
    """The part of a document that is in a sequence.

    Args:
        is_begun: it began in another sequence.
        is_cut: it goes on in another one.
    """

    tokens: Sequence[_Token]
    is_begun: bool
    is_cut: bool


class Preview:
    """Makes sequences of token ids readable."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._special = frozenset(
            tokenizer.convert_tokens_to_ids(sorted(marking_tokens(tokenizer)))
        )

    def shown(self, row: PackedRow) -> ShownSequence:
        documents = list(_documents(row))
        return ShownSequence(
            tokens=row.tokens,
            padding=len(row.inputs) - row.tokens,
            learned=int((row.labels != NOT_COUNTED).sum()),
            documents=len(documents),
            runs=tuple(self._runs(documents)),
        )

    def _runs(self, documents: Sequence[_Document]) -> Iterator[TokenRun]:
        first, last = _ends(documents, _MOST_DOCUMENTS)
        for document in documents[:first]:
            yield from self._document(document)
        if middle := documents[first : len(documents) - last]:
            tokens = sum(len(one.tokens) for one in middle)
            yield TokenRun("left-out", tokens=tokens, documents=len(middle))
        for document in documents[len(documents) - last :]:
            yield from self._document(document)

    def _document(self, document: _Document) -> Iterator[TokenRun]:
        if document.is_begun:
            yield TokenRun("begun")

        def kind(at: tuple[int, _Token]) -> tuple[bool, int]:
            place, one = at
            return one.is_learned, place if one.token in self._special else -1

        groups = [list(some) for _, some in groupby(enumerate(document.tokens), kind)]
        first, last = _ends(groups, _MOST_RUNS)
        middle = groups[first : len(groups) - last]
        texts = sum(len(some) > 1 for some in groups) - len(middle)
        most = max(_FEWEST_TOKENS, _MOST_TOKENS // max(1, texts))
        for number, some in enumerate(groups):
            if number == first and middle:
                yield TokenRun("left-out", tokens=sum(map(len, middle)))
            if first <= number < first + len(middle):
                continue
            yield from self._run(document.tokens, some[0][0], some[-1][0] + 1, most)
        yield TokenRun("cut" if document.is_cut else "end")

    def _run(self, tokens: Sequence[_Token], begin: int, end: int, most: int) -> Iterator[TokenRun]:
        is_learned = tokens[begin].is_learned
        if tokens[begin].token in self._special:
            text = str(self._tokenizer.convert_ids_to_tokens(tokens[begin].token))
            yield TokenRun("special", text, is_learned)
            return
        first, last = _ends(range(begin, end), most)
        yield TokenRun("text", self._text(tokens, begin, begin + first), is_learned)
        if left_out := end - begin - first - last:
            yield TokenRun("left-out", is_learned=is_learned, tokens=left_out)
            yield TokenRun("text", self._text(tokens, end - last, end), is_learned)

    def _text(self, tokens: Sequence[_Token], begin: int, end: int) -> str:
        ids = [one.token for one in tokens[max(0, begin - _BEFORE) : end]]
        before = self._decoded(ids[: len(ids) - (end - begin)])
        whole = self._decoded(ids)
        if whole.startswith(before):
            return whole.removeprefix(before)
        return self._decoded(ids[len(ids) - (end - begin) :])

    def _decoded(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, clean_up_tokenization_spaces=False))


def _ends(items: Sequence[object], most: int) -> tuple[int, int]:
    """Return how many of the first and last items to show."""
    if len(items) <= most * 4 // 3:
        return len(items), 0
    last = most // 3
    return most - last, last


def _documents(row: PackedRow) -> Iterator[_Document]:
    """Yield the documents in a row of tokens."""
    ends = [end for end in row.ends or (row.tokens,) if end <= row.tokens]
    for begin, end in pairwise([0, *ends]):
        ids, labels = row.inputs[begin:end], row.labels[begin:end]
        counts = labels != NOT_COUNTED
        tokens = [_Token(int(ids[0]), is_learned=False)]
        tokens += [_Token(int(one), bool(yes)) for one, yes in zip(ids[1:], counts, strict=False)]
        if counts[-1]:
            tokens.append(_Token(int(labels[-1]), is_learned=True))
        ended = {
            one + 1 - begin for one in row.document_ends if begin < one <= end or one == 0 == begin
        }
        places = [0, *sorted(one for one in ended if one < len(tokens)), len(tokens)]
        goes_on = ended.isdisjoint({len(tokens), end - begin + 1})
        for first, last in pairwise(places):
            yield _Document(
                tokens[first:last],
                is_begun=not first and begin not in row.document_begins,
                is_cut=goes_on and last == len(tokens),
            )
