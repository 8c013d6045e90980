"""Summary: what became of the data, logged before the first step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jupyter_mntrain.model.text.brief import some_of
from jupyter_mntrain.model.text.foreign import shown
from jupyter_mntrain.recipe.sections import DataSection, Recipe, TooLong
from jupyter_mntrain.train.data.chat import DAY, TODAY
from jupyter_mntrain.train.data.encoding import ReadCounts
from jupyter_mntrain.train.data.sequences import Rows
from jupyter_mntrain.train.data.tokens import Tokens

_LONG: dict[TooLong, str] = {
    "cut": "cut into several pieces",
    "truncate": "truncated",
    "drop": "dropped",
    "split": "truncated, as one question with its answer does not fit",
}


class Sequences(NamedTuple):
    """A source's text, and the sequences made from it."""

    tokens: Tokens
    rows: Rows


def summarize(recipe: Recipe, sources: Sequence[Sequences], counts: ReadCounts) -> Iterator[str]:
    """Yield the lines of a summary.

    Args:
        sources: what is trained on.
        counts: of all rows that were read.
    """
    section, steps = recipe.data, recipe.steps
    count, per_step = sum(len(one.rows) for one in sources), recipe.train.batch_size
    epoch = f"an epoch is {count / per_step:,.1f} steps of {per_step:,} sequences"
    if not section.sources:
        [one] = sources
        yield _sizes(one, section)
    if recipe.train.epochs is not None:
        yield f"{recipe.train.epochs:g} epochs = {steps:,} steps; {epoch}"
    elif not section.sources:
        yield f"{epoch}; {steps:,} steps are {steps * per_step / count:,.2f} epochs"
    if section.sources:
        total = sum(one.weight for one in section.sources)
        for given, one in zip(section.sources, sources, strict=True):
            share = given.weight / total
            epochs = steps * per_step * share / len(one.rows)
            yield (
                f"{share:.1%} from {given.path}: {_sizes(one, section)}; "
                f"{steps:,} steps are {epochs:,.2f} epochs of it"
            )
    yield from _changes(section, [one.tokens for one in sources], counts)


def _sizes(one: Sequences, section: DataSection) -> str:
    count, length = len(one.rows), section.sequence_length
    inputs, tokens = one.rows.filled_tokens, len(one.tokens.ids)
    padding = 1 - inputs / (count * length)
    return (
        f"{len(one.tokens.ends):,} documents, {tokens:,} tokens: {inputs:,} are inputs "
        f"in {count:,} sequences of {length:,}, which are {padding:.1%} padding; "
        f"{max(0, tokens - inputs):,} are predicted only, or left out"
    )


def _changes(section: DataSection, tokens: Sequence[Tokens], counts: ReadCounts) -> Iterator[str]:
    """Yield lines about data that is left out or changed."""
    pairs = np.concatenate([one.pairs for one in tokens])
    long = 0 if section.is_wrapped else int((pairs > section.sequence_length).sum())
    if long:
        yield (
            f"{long:,} documents are longer than a sequence, "
            f"up to {int(pairs.max()) + 1:,} tokens: {_LONG[section.too_long]}"
        )
    if any(TODAY in (one.template or "") for one in tokens):
        yield f"the chat template writes today's date: in training it is always {DAY:%d %B %Y}"
    if counts.split:
        yield f"{counts.split:,} conversations longer than a sequence were split between turns"
    if counts.special:
        yield (
            f"special tokens such as {shown(counts.special_token)} in {counts.special:,} documents "
            "are read as text; data.split_special_tokens = false reads them as control tokens"
        )
    for kind in counts.skipped:
        yield (
            f"{kind.count:,} of {counts.rows:,} rows skipped: {kind.what} "
            f"({some_of(kind.examples, kind.count)})"
        )
