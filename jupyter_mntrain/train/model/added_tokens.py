"""Added tokens: tokens that a recipe adds to a tokenizer, like ChatML's markers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken
from transformers import PreTrainedTokenizerBase

from jupyter_mntrain.families.directories import listed_ends
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.train.data.chat import CHATML_OF_TOKENS, TURN_ENDS, ChatWriter


def add_tokens(tokenizer: PreTrainedTokenizerBase, added: Sequence[str]) -> None:
    """Make each of ``added`` a single token, which no text is split into.

    Raises:
        RecipeError: one is a token already.
    """
    known = tokenizer.get_vocab()
    for one in added:
        if one in known:
            cause = f"tokens.add: {one} is a token already, with id {known[one]}"
            raise RecipeError(cause, fix="remove it from tokens.add")
    special = [AddedToken(one, special=True, normalized=False) for one in added]
    tokenizer.add_tokens(special, special_tokens=True)


def fit_config(
    config: Any, tokenizer: PreTrainedTokenizerBase, template: str | None, added: Sequence[str]
) -> tuple[int, ...]:
    """Make room for the added tokens in a model's config, and set the token that ends answers.

    What the template writes after an answer is what the model learns to end with, whether the
    marker is the tokenizer's own or added.

    Args:
        template: that conversations are written with.

    Returns:
        Ids of the added tokens.
    """
    ids = tuple(tokenizer.convert_tokens_to_ids(list(added)))
    config.vocab_size = max([config.vocab_size, *(one + 1 for one in ids)])
    if template is None:
        return ids
    if template == CHATML_OF_TOKENS:
        tokenizer.eos_token = TURN_ENDS
    marker = ChatWriter(tokenizer, template, answers_only=False).end_of_answer
    before = listed_ends(config.eos_token_id)
    if marker is not None and (end := tokenizer.convert_tokens_to_ids(marker)) not in before:
        config.eos_token_id = [end, *before] if before else end
    return ids
