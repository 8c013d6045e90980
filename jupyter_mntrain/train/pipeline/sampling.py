"""Sampling: continues the recipe's prompts greedily during training.

There is no key-value cache: each token takes a forward pass of the whole text through all stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.families.directories import listed_ends
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.progress import ProgressWriter, Tally, unwatched
from jupyter_mntrain.train.data.chat import DAY, ChatWriter
from jupyter_mntrain.train.data.tokens import Tokens, text_ids
from jupyter_mntrain.train.pipeline.forwards import Forwards

SHOWN_CHARACTERS = 40
"""Characters of a prompt that an error message shows."""


class Prompt(NamedTuple):
    """A prompt that the model continues.

    Args:
        text: from the recipe.
        ids: token ids of the text; for chat, of the conversation up to the answer.
    """

    text: str
    ids: tuple[int, ...]


def read_prompts(recipe: Recipe, tokens: Tokens, vocabulary_size: int) -> tuple[Prompt, ...]:
    """Tokenize the recipe's prompts like the training text.

    Args:
        vocabulary_size: the model's.

    Raises:
        RecipeError: a prompt is too long, has no tokens, or the chat template rejects it.
    """
    tokenizer, splits = tokens.tokenizer, recipe.data.split_special_tokens
    writer = ChatWriter(
        *(tokenizer, tokens.template), answers_only=False, splits_special=splits, day=DAY
    )
    found = []
    for number, text in enumerate(recipe.evaluation.prompts):
        where = f"evaluation.prompts[{number}]"
        if recipe.data.format == "chat":
            ids = tuple(writer.asks([{"role": "user", "content": text}], where))
        else:
            ids = tuple(text_ids(tokenizer, text, splits_special=splits))
        _check(ids, recipe, vocabulary_size, f"{where}, {text[:SHOWN_CHARACTERS]!r}")
        found.append(Prompt(text, ids))
    return tuple(found)


def _check(ids: Sequence[int], recipe: Recipe, vocabulary_size: int, where: str) -> None:
    most, length = recipe.evaluation.prompt_tokens, recipe.data.sequence_length
    if not ids or max(ids) >= vocabulary_size:
        cause = f"{where}: the tokenizer produces no tokens for it"
        raise RecipeError(cause, fix="use another prompt")
    if len(ids) + most > length:
        room = length - len(ids)
        cause = f"{where}: with prompt_tokens = {most} the total is {len(ids) + most} tokens,"
        fix = f"use prompt_tokens = {room}" if room > 0 else "shorten it, or use longer sequences"
        raise RecipeError(f"{cause} more than data.sequence_length = {length}", fix=fix)


@dataclass
class TextSampler:
    """Continues prompts with the model. Changes neither weights nor random state.

    Args:
        forwards: runs the model.
        prompts: the same on every rank.
        tokens: supplies the tokenizer.
        ends: token ids that end a text.
    """

    recipe: Recipe
    forwards: Forwards
    prompts: Sequence[Prompt]
    tokens: Tokens
    ends: frozenset[int]

    def __post_init__(self) -> None:
        self._most = self.recipe.evaluation.prompt_tokens
        self._width = max((len(one.ids) for one in self.prompts), default=0) + self._most
        # At most as many tokens at once as a microbatch has, so that memory suffices.
        at_once = self.recipe.microbatch_size * self.recipe.data.sequence_length // self._width
        self._rows = max(1, min(len(self.prompts), at_once))

    def write(self, progress: ProgressWriter = unwatched) -> tuple[str, ...]:
        """Return a continuation of each prompt, on every rank. Collective."""
        groups = range(0, len(self.prompts), self._rows)
        tally = Tally(progress, "writing samples", len(groups) * self._most, "tokens")
        written: list[list[int]] = []
        for begin in groups:
            written += self._continue(self.prompts[begin : begin + self._rows], tally)
        tally.end()
        return tuple(
            str(self.tokens.tokenizer.decode(ids, skip_special_tokens=True)) for ids in written
        )

    def _continue(self, prompts: Sequence[Prompt], tally: Tally) -> list[list[int]]:
        """Return the new ids of each prompt."""
        # Padding follows the text, where causal attention does not see it.
        ids = torch.zeros((self._rows, self._width), dtype=torch.int64)
        last = torch.zeros(self._rows, dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt.ids)] = torch.tensor(prompt.ids)
            last[row] = len(prompt.ids) - 1
        written: list[list[int]] = [[] for _ in prompts]
        unfinished = set(range(len(prompts)))
        for _ in range(self._most):
            chosen = self.forwards.likeliest(ids, last).tolist()
            tally.add(1)
            unfinished = {row for row in unfinished if chosen[row] not in self.ends}
            if not unfinished:
                break
            for row in unfinished:
                written[row].append(chosen[row])
                last[row] += 1
                ids[row, last[row]] = chosen[row]
        return written


def ends_of(eos_token_id: int | list[int] | None, tokens: Tokens) -> frozenset[int]:
    """Collect the token ids that end a text.

    Args:
        eos_token_id: from the model's config.
    """
    return frozenset(
        one for named in (eos_token_id, tokens.tokenizer.eos_token_id) for one in listed_ends(named)
    )
