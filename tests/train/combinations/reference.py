"""What a model learns from a file of data, by transformers alone.

Written from docs/recipe.md, without reading the trainer, of which nothing is imported here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, NamedTuple, Self
from unittest import mock

import torch
from torch.nn import functional
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    get_cosine_with_min_lr_schedule_with_warmup,
)
from transformers.utils import chat_template_utils

LEARNING_RATE = 1e-3
WARMUP_STEPS = 0
"""Of the recipe; the rest is as docs/recipe.md has its defaults."""


class _Day(datetime):
    """Today, for templates that write it."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls(2024, 7, 26, tzinfo=tz)


_SPEAKERS = {"human": "user", "gpt": "assistant", "system": "system"}


class Answers(NamedTuple):
    """How a template writes an answer, as its maker sees it: regular expressions."""

    begin: str
    """All that a model is given before it answers."""

    end: str
    """What it is to end its answer with."""


class Document(NamedTuple):
    """A text or conversation, or a piece of one."""

    ids: tuple[int, ...]
    learned: tuple[bool, ...]

    def part(self, first: int, last: int) -> Document:
        return Document(self.ids[first:last], self.learned[first:last])


class Reference:
    """A model directory and what transformers makes of data for it.

    Args:
        model: the directory.
        template: of a file, in place of the model's own.
        added: tokens that the tokenizer gets.
    """

    def __init__(
        self, model: Path, *, template: Path | None = None, added: Sequence[str] = ()
    ) -> None:
        self._model = model
        self._added = [*added]
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        if added:
            self.tokenizer.add_special_tokens({"additional_special_tokens": [*added]})
        if template:
            self.tokenizer.chat_template = template.read_text(encoding="utf-8")

    def texts(self, data: Path) -> list[Document]:
        """Of lines with ``text``: what the tokenizer puts before a text, and an end."""
        documents = []
        for line in _lines(data):
            ids = [*self.tokenizer(line["text"])["input_ids"], self.tokenizer.eos_token_id]
            documents.append(Document(tuple(ids), (True,) * len(ids)))
        return documents

    def conversations(self, data: Path, answers: Answers | None) -> list[Document]:
        """Of lines with ``messages`` or ``conversations``.

        Args:
            answers: how answers stand in the template, if they alone are learned.
        """
        documents = []
        for line in _lines(data):
            messages = line.get("messages") or [
                {"role": _SPEAKERS[one["from"]], "content": one["value"]}
                | {name: value for name, value in one.items() if name == "weight"}
                for one in line["conversations"]
            ]
            with mock.patch.object(chat_template_utils, "datetime", _Day):
                text = self.tokenizer.apply_chat_template(
                    messages, tools=line.get("tools"), tokenize=False
                )
            found = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            if answers is None:
                learned = [True] * len(found["input_ids"])
            else:
                weights = [one.get("weight", 1) for one in messages if one["role"] == "assistant"]
                spans = answers_in(text, answers)
                if len(spans) != len(weights):
                    raise ValueError(f"{len(weights)} answers, {len(spans)} in {text!r}")
                kept = [one for one, weight in zip(spans, weights, strict=True) if weight]
                learned = [
                    any(first < end and begin < last for begin, end in kept)
                    for first, last in found["offset_mapping"]
                ]
            documents.append(Document(tuple(found["input_ids"]), tuple(learned)))
        return documents

    def losses(self, steps: Sequence[Sequence[Document]]) -> list[float]:
        """The loss of each step's documents, before its update; each document alone.

        Each token is predicted from those before it in its document.
        """
        torch.manual_seed(0)
        model = self._loaded()
        matrices = [one for one in model.parameters() if one.ndim > 1]
        others = [one for one in model.parameters() if one.ndim <= 1]
        optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": 0.1},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=LEARNING_RATE,
            betas=(0.9, 0.95),
            eps=1e-8,
        )
        # Of one step less: the last one has the lowest rate.
        schedule = get_cosine_with_min_lr_schedule_with_warmup(
            optimizer, WARMUP_STEPS, len(steps) - 1, min_lr_rate=0.1
        )
        losses = []
        for documents in steps:
            counted = sum(sum(one.learned[1:]) for one in documents)
            total = 0.0
            for one in documents:
                if not any(one.learned[1:]):
                    continue
                ids = torch.tensor([one.ids])
                logits = model(input_ids=ids).logits[0, :-1].float()
                kept = torch.tensor(one.learned[1:])
                loss = functional.cross_entropy(logits[kept], ids[0, 1:][kept], reduction="sum")
                (loss / counted).backward()
                total += loss.item()
            losses.append(total / counted)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        return losses

    def _loaded(self) -> Any:
        model = AutoModelForCausalLM.from_pretrained(self._model, dtype=torch.float32)
        if getattr(model.config, "attn_logit_softcapping", None):
            model.set_attn_implementation("eager")
        if self._added:
            size, before = len(self.tokenizer), len(self.tokenizer) - len(self._added)
            rows = max(size, model.get_input_embeddings().weight.shape[0])
            model.resize_token_embeddings(rows, mean_resizing=False)
            with torch.no_grad():
                for one in (model.get_input_embeddings(), model.get_output_embeddings()):
                    one.weight[before:size] = one.weight[:before].mean(0)
        return model.train()


def pieces_of(
    documents: Sequence[Document], packing: str, too_long: str, length: int
) -> list[Document]:
    """What sequences are made of: documents, or pieces of them, or of all as one long text.

    A sequence of ``length`` predicts so many tokens, so it takes one more. A document of which
    nothing is learned is left out.
    """
    if packing == "wrapped":
        ids = [one for document in documents for one in document.ids]
        learned = [one for document in documents for one in document.learned]
        whole = Document(tuple(ids), tuple(learned))
        return [
            whole.part(begin, begin + length + 1)
            for begin in range(0, (len(ids) - 1) // length * length, length)
        ]
    pieces = []
    for one in documents:
        begins = range(0, len(one.ids) - 1, length)
        if len(begins) > 1 and too_long == "drop":
            continue
        kept = begins if too_long == "cut" else begins[:1]
        pieces += [one.part(begin, begin + length + 1) for begin in kept]
    return [one for one in pieces if any(one.learned[1:])]


def answers_in(text: str, answers: Answers) -> list[tuple[int, int]]:
    """Where the answers of a written conversation are, each with its end, in characters."""
    spans = []
    place = 0
    begin, end = re.compile(answers.begin), re.compile(answers.end)
    while found := begin.search(text, place):
        last = end.search(text, found.end())
        if last is None:
            raise ValueError(f"an answer without an end: {text[found.end() :]!r}")
        spans.append((found.end(), last.end()))
        place = last.end()
    return spans


def _lines(data: Path) -> list[dict[str, Any]]:
    with data.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
