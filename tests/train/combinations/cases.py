"""The combinations: each a template, a tokenizer and a model of the family that it is of."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from transformers import AutoTokenizer

from tests.train.combinations import conversations as said
from tests.train.combinations.conversations import Messages
from tests.train.combinations.reference import (
    LEARNING_RATE,
    WARMUP_STEPS,
    Answers,
    Document,
    Reference,
    pieces_of,
)
from tests.train.combinations.small_tokenizers import STYLES
from tests.train.families import write_model

TEMPLATES = Path(__file__).parent / "templates"
_MARKERS = re.compile(r"<[^>]*>|\[/?INST\]")

ANSWERS: dict[str, Answers] = {
    "llama3": Answers(r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n", r"<\|eot_id\|>"),
    "llama3_1": Answers(r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n", r"<\|eot_id\|>"),
    "llama3_2": Answers(r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n", r"<\|eot_id\|>"),
    "qwen2_5": Answers(r"<\|im_start\|>assistant\n", r"<\|im_end\|>"),
    "qwen3": Answers(r"<\|im_start\|>assistant\n", r"<\|im_end\|>"),
    "gemma2": Answers(r"<start_of_turn>model\n", r"<end_of_turn>"),
    "gemma3": Answers(r"<start_of_turn>model\n", r"<end_of_turn>"),
    "mistral_v1": Answers(r" \[/INST\]", r"</s>|<\|endoftext\|>"),
    "mistral_v2": Answers(r" \[/INST\]", r"</s>|<\|endoftext\|>"),
    "phi4": Answers(r"<\|im_start\|>assistant<\|im_sep\|>", r"<\|im_end\|>"),
    "olmo2": Answers(r"<\|assistant\|>\n", r"<\|endoftext\|>"),
    "smollm3": Answers(r"<\|im_start\|>assistant\n(<think>\n\n</think>\n)?", r"<\|im_end\|>"),
    "chatml": Answers(r"<\|im_start\|>assistant\n", r"<\|im_end\|>"),
    "alpaca": Answers(r"### Response:\n", r"</s>|<\|endoftext\|>|<eos>|<\|im_end\|>|<\|eot_id\|>"),
}
"""By template: what stands before and at the end of each answer."""


@dataclass(frozen=True)
class Pair:
    """A template with a tokenizer.

    Attributes:
        template: a file in ``templates``.
        tokenizer: a style of ``small_tokenizers``.
        family: the model's ``model_type``.
        packing, too_long: of the recipe.
        length: tokens of a sequence.
        own: whether the model directory has the template, or the recipe names it.
        added: tokens that the recipe adds.
        rows: ``messages`` or ``conversations``.
        kinds: of conversations next to plain ones.
        every: takes each so many-th of the plain ones, where what stands before them is long.
    """

    template: str
    tokenizer: str
    family: str
    packing: str = "best-fit"
    too_long: str = "cut"
    length: int = 192
    own: bool = True
    added: tuple[str, ...] = ()
    rows: str = "messages"
    kinds: tuple[Callable[[], list[Messages]], ...] = (said.with_system,)
    every: int = 1

    @property
    def template_file(self) -> Path:
        return TEMPLATES / f"{self.template}.jinja"

    def conversations(self) -> list[Messages]:
        """All that the template takes."""
        return said.plain()[:: self.every] + [one for kind in self.kinds for one in kind()]


_CHATML = ("<|im_start|>", "<|im_end|>")
_NONE: tuple[Callable[[], list[Messages]], ...] = ()
_ALL = (said.with_system, said.with_tools)

PAIRS: tuple[Pair, ...] = (
    Pair("llama3", "llama3", "llama"),
    Pair("llama3_1", "llama3", "llama", length=640, kinds=_ALL, every=2),
    Pair("llama3_2", "llama3", "llama", length=640, kinds=_ALL, every=2, too_long="truncate"),
    Pair("qwen2_5", "qwen", "qwen2", length=640, kinds=_ALL, every=2, packing="none"),
    Pair(
        "qwen3",
        "qwen3",
        "qwen3",
        length=640,
        every=2,
        kinds=(*_ALL, said.with_several_calls, said.with_thoughts),
    ),
    Pair("gemma2", "gemma", "gemma2", kinds=_NONE, rows="conversations"),
    Pair("gemma3", "gemma", "gemma3_text", too_long="drop"),
    Pair("mistral_v1", "llama2", "mistral", kinds=_NONE, packing="none", own=False),
    Pair("mistral_v2", "mistral3", "mistral", kinds=_NONE, too_long="truncate"),
    Pair("phi4", "phi4", "phi3", rows="conversations"),
    Pair("olmo2", "olmo2", "olmo2"),
    Pair(
        "smollm3",
        "smollm3",
        "smollm3",
        length=768,
        every=4,
        kinds=(said.with_system, said.told_not_to_think),
    ),
    Pair("chatml", "qwen", "qwen2", own=False, packing="wrapped"),
    Pair("chatml", "llama3-base", "llama", added=_CHATML, own=False),
    Pair("chatml", "llama2", "mistral", added=_CHATML, own=False, rows="conversations"),
    Pair("alpaca", "llama2", "llama", own=False, packing="wrapped"),
    Pair("alpaca", "gpt2", "llama", too_long="truncate"),
    Pair("alpaca", "gemma", "gemma2", own=False, too_long="drop"),
    Pair("llama3", "gpt2", "llama", own=False, length=256),
    Pair("gemma3", "mistral3", "mistral", own=False, length=256),
)

MASKS = ("all", "answers", "weighted")
"""All tokens; the answers alone; and of them, those whose weight is not 0."""

TEXT = "text"
"""In place of a mask: the same words as texts, without a template."""

STEPS = 3
SEEN_STEPS = 12
"""Steps whose batches are compared: more than an epoch."""

BATCH = 4
MICROBATCHES = 2
_LAYERS = 3
_ROUNDED_TO = 64
"""Rows of an embedding, as models have them: more than the tokenizer has tokens."""


@dataclass(frozen=True)
class Combination:
    """A pair and what is learned of its data."""

    pair: Pair
    mask: str

    @property
    def template(self) -> str:
        return self.pair.template

    @property
    def name(self) -> str:
        packed = f"{self.pair.packing}/{self.pair.too_long}"
        template = "" if self.mask == TEXT else self.template
        return f"{template:10} {self.pair.tokenizer:11} {self.mask:8} {packed:17}"

    def recipe(self, folder: Path) -> str:
        """In TOML; of what it leaves out, docs/recipe.md has the defaults."""
        pair, is_text = self.pair, self.mask == TEXT
        answers = self.mask in {"answers", "weighted"}
        own = "" if pair.own or is_text else f'chat_template = "{pair.template_file}"'
        added = f"[tokens]\nadd = {json.dumps(pair.added)}" if pair.added else ""
        return f"""
            [model]
            path = "{self.model(folder)}"
            dtype = "float32"
            [data]
            source = "{self.data(folder)}"
            format = "{"text" if is_text else "chat"}"
            answers_only = {json.dumps(answers)}
            {own}
            packing = "{pair.packing}"
            too_long = "{pair.too_long}"
            sequence_length = {pair.length}
            {added}
            [pipeline]
            microbatches = {MICROBATCHES}
            [optimizer]
            learning_rate = {LEARNING_RATE}
            warmup_steps = {WARMUP_STEPS}
            [train]
            steps = {STEPS}
            batch_size = {BATCH}
            device = "cpu"
            [checkpoint]
            at_end = false
            interval_steps = 0
            [output]
            at_end = false
            [report]
            to = []
            """

    def model(self, folder: Path) -> Path:
        place = "own" if self.pair.own else "any"
        return folder / f"{self.pair.family}-{self.pair.tokenizer}-{self.pair.template}-{place}"

    def data(self, folder: Path) -> Path:
        kind = self.mask if self.mask in {"weighted", TEXT} else "whole"
        return self.model(folder) / "data" / f"{kind}.jsonl"

    def reference(self, folder: Path) -> Reference:
        template = None if self.pair.own else self.pair.template_file
        return Reference(self.model(folder), template=template, added=self.pair.added)

    def expected(self, reference: Reference, folder: Path) -> list[Document]:
        """The documents that its sequences are made of, by docs/recipe.md."""
        pair, data = self.pair, self.data(folder)
        if self.mask == TEXT:
            documents = reference.texts(data)
        else:
            answers = None if self.mask == "all" else ANSWERS[self.template]
            documents = reference.conversations(data, answers)
        return pieces_of(documents, pair.packing, pair.too_long, pair.length)


COMBINATIONS = (
    *(Combination(pair, mask) for pair in PAIRS for mask in MASKS),
    *(Combination(pair, TEXT) for pair in {one.tokenizer: one for one in PAIRS}.values()),
)
"""All pairs with each mask, and each tokenizer with texts."""


def write(one: Combination, folder: Path) -> None:
    """The model directory, unless it is there, and the file of data."""
    pair, directory = one.pair, one.model(folder)
    if not directory.exists():
        written = [path.read_text(encoding="utf-8") for path in TEMPLATES.glob("*.jinja")]
        words = [_MARKERS.sub(" ", text) for text in written]
        STYLES[pair.tokenizer].write(directory, contents_of(pair.conversations()) + words)
        tokenizer = AutoTokenizer.from_pretrained(directory)
        write_model(
            pair.family,
            directory,
            num_hidden_layers=_LAYERS,
            max_position_embeddings=2048,
            vocab_size=-(-len(tokenizer) // _ROUNDED_TO) * _ROUNDED_TO,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        if pair.own:
            shutil.copy(pair.template_file, directory / "chat_template.jinja")
    data, conversations = one.data(folder), pair.conversations()
    if one.mask == TEXT:
        rows = [{"text": text} for text in dict.fromkeys(filter(None, contents_of(conversations)))]
    else:
        weighted = one.mask == "weighted"
        written = said.not_learned(conversations) if weighted else conversations
        rows = [said.row(messages, pair.rows) for messages in written]
    data.parent.mkdir(exist_ok=True)
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def contents_of(conversations: Iterable[Messages]) -> list[str]:
    return [one["content"] for messages in conversations for one in messages]
