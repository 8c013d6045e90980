"""Summary: what became of the data, said before the first step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jupyter_mntrain.recipe.parts.data import TooLong
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train.data.batches import Rows
from jupyter_mntrain.train.data.tokens import Tokens

_LONG: dict[TooLong, str] = {
    "cut": "cut into several pieces",
    "truncate": "truncated",
    "drop": "dropped",
    "split": "truncated, as one question with its answer does not fit",
}


def summarize(recipe: Recipe, tokens: Tokens, rows: Rows) -> Iterator[str]:
    """Yield the lines of a summary.

    Args:
        tokens: what is trained on.
        rows: the sequences that they became.
    """
    section, per_step = recipe.data, recipe.train.batch_size
    length, count = section.sequence_length, len(rows)
    padding = 1 - rows.filled_tokens / (count * length)
    yield (
        f"{len(tokens.ends):,} documents, {len(tokens.ids):,} tokens in {count:,} sequences of "
        f"{length:,}, {padding:.1%} of them padding"
    )
    yield (
        f"an epoch is {count / per_step:,.1f} steps of {per_step:,} sequences; "
        f"{recipe.train.steps:,} steps are {recipe.train.steps * per_step / count:,.2f} epochs"
    )
    long = 0 if section.is_wrapped else int((tokens.pairs > length).sum())
    if long:
        tokens_long = int(np.max(tokens.pairs)) + 1
        yield (
            f"{long:,} documents are longer than a sequence, up to {tokens_long:,} tokens: "
            f"{_LONG[section.too_long]}"
        )
    counts = tokens.counts
    if counts.split:
        yield f"{counts.split:,} conversations longer than a sequence were split between turns"
    for kind in counts.skipped:
        more = ", …" if kind.count > len(kind.examples) else ""
        yield (
            f"{kind.count:,} of {counts.rows:,} rows skipped: {kind.what} "
            f"({', '.join(kind.examples)}{more})"
        )
