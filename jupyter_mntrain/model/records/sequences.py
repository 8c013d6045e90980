"""Sequences as shown before the first step, with trained tokens and document ends marked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.text.foreign import visible

LEARNED, SPECIAL = ("⟦", "⟧"), ("⟨", "⟩")
"""Marks that text puts around trained tokens, and around each special token."""
LEGEND = "⟦learned⟧, ⟨special token⟩"

MOST_LINES = 48
"""Most lines of a sequence that is shown as text."""

_BETWEEN = {
    "begun": "it began in another sequence",
    "end": "end of the document",
    "cut": "cut: it continues in another sequence",
}

Mark = Literal["plain", "learned", "special", "note"]


class TokenRun(Record, frozen=True):
    """Neighboring tokens of a sequence, or a mark between them.

    Args:
        kind: ``text``; one ``special`` token; some tokens ``left-out``; that a document has
            ``begun`` in another sequence; its ``end``, or that it is ``cut`` and goes on in one.
        text: of ``text`` and ``special``.
        is_learned: whether the loss counts them.
        tokens: number of those that are left out.
        documents: number of whole ones among these.
    """

    kind: Literal["text", "special", "left-out", "begun", "end", "cut"]
    text: str = ""
    is_learned: bool = False
    tokens: int = 0
    documents: int = 0


class ShownSequence(Record, frozen=True):
    """A sequence that is trained on.

    Args:
        tokens: number of its inputs that are not padding.
        padding: number of the others.
        learned: number of next tokens that the loss counts.
        documents: number of those that it has something of.
        runs: what it consists of, in order; long parts without their middle.
    """

    tokens: int
    padding: int
    learned: int
    documents: int
    runs: tuple[TokenRun, ...] = ()

    @property
    def heading(self) -> str:
        documents = f"{self.documents:,} document{'s' * (self.documents != 1)}"
        padding = f", {self.padding:,} of padding" if self.padding else ""
        learned = "all" if self.learned == self.tokens else f"{self.learned:,}"
        return f"{documents}, {self.tokens:,} tokens{padding}; {learned} learned"

    def marked(self) -> Iterator[tuple[str, Mark]]:
        """Yield the text in pieces that are safe to show, each with its mark."""
        # Where all is learned, marks would only say so of every word.
        marks, is_open, at_begin = self.learned < self.tokens, False, True
        for run in self.runs:
            is_learned = marks and run.is_learned and run.kind not in _BETWEEN
            if is_learned != is_open:
                yield LEARNED[is_open], "learned"
                is_open, at_begin = is_learned, False
            if run.kind == "text":
                yield visible(run.text), "learned" if is_learned else "plain"
            elif run.kind == "special":
                yield visible(run.text).join(SPECIAL), "special"
            elif run.kind == "left-out" and not run.documents:
                yield f" … {run.tokens:,} tokens … ", "note"
            else:
                yield ("" if at_begin else "\n") + f"── {_said(run)} ──\n", "note"
            at_begin = run.kind in _BETWEEN or run.documents > 0 or run.text.endswith("\n")
        if is_open:
            yield LEARNED[1], "learned"

    def lines(self) -> list[str]:
        """Return the text in lines; the middle of long lines with few tokens is left out."""
        lines = "".join(text for text, _ in self.marked()).rstrip("\n").split("\n")
        if len(lines) <= MOST_LINES:
            return lines
        begin, end = MOST_LINES // 2, MOST_LINES // 4
        left_out = len(lines) - begin - end
        return [*lines[:begin], f"── {left_out:,} lines ──", *lines[-end:]]


class DataPreview(Record, frozen=True):
    """A preview of the sequences made from a recipe's data.

    Args:
        summary: in lines, as the log has it.
        count: of all sequences.
        sequences: the first that are trained on.
    """

    summary: tuple[str, ...] = ()
    count: int = 0
    sequences: tuple[ShownSequence, ...] = ()

    @property
    def heading(self) -> str:
        return f"the first {len(self.sequences)} of {self.count:,} sequences: {LEGEND}"

    def lines(self) -> Iterator[str]:
        """Yield the lines for the log."""
        yield from self.summary
        if self.sequences:
            yield self.heading
        for number, one in enumerate(self.sequences, 1):
            yield f"sequence {number}: {one.heading}"
            yield from (f"  {line}".rstrip() for line in one.lines())


def _said(run: TokenRun) -> str:
    if run.kind == "left-out":
        return f"{run.documents:,} documents, {run.tokens:,} tokens"
    return _BETWEEN[run.kind]
