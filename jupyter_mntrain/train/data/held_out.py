"""Held-out text: what is evaluated on and not trained on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.parts.data import DataSection
from jupyter_mntrain.train.data.tokens import Tokens


def hold_out(tokens: Tokens, section: DataSection, *, share: float) -> tuple[Tokens, Tokens]:
    """Split into training and held-out text, between documents where sequences hold whole ones.

    Raises:
        RecipeError: either part is shorter than a sequence needs.
    """
    cut = len(tokens.ids) - int(len(tokens.ids) * share)
    if not section.is_wrapped:
        cut = int(np.concatenate([[0], tokens.ends])[np.searchsorted(tokens.ends, cut)])
    kept, held = _part(tokens, 0, cut), _part(tokens, cut, len(tokens.ids))
    least = section.sequence_length + 1 if section.is_wrapped else 2
    for part in (kept, held):
        if len(part.ids) < least:
            cause = f"evaluation.share = {share:g} holds out {len(held.ids)} of {len(tokens.ids)}"
            cause += f" tokens, and each part needs at least {least}"
            raise RecipeError(cause, fix="use another share, shorter sequences or more text")
    return kept, held


def _part(tokens: Tokens, begin: int, end: int) -> Tokens:
    inside = tokens.ends[(tokens.ends > begin) & (tokens.ends < end)] - begin
    return replace(
        tokens,
        ids=tokens.ids[begin:end],
        ends=np.append(inside, end - begin),
        answers=None if tokens.answers is None else tokens.answers[begin:end],
    )
