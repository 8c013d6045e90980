"""Loads a model that answers, from a checkpoint of a run or from a directory."""

from __future__ import annotations

import argparse
import os
import signal
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from jupyter_mntrain.families.directories import (
    CONFIG,
    FORMATS,
    GENERATION,
    has_tokenizer,
    listed_ends,
    listed_files,
    read_generation,
    unreadable,
)
from jupyter_mntrain.launch.files.large_places import place_of
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.text.brief import first_line, some_of
from jupyter_mntrain.model.text.conversation import ChatAnswer, ChatRequest
from jupyter_mntrain.recipe.parse import load_recipe
from jupyter_mntrain.telemetry.progress import ProgressWriter
from jupyter_mntrain.train.answering.generate import (
    TIMEOUT_S,
    checkpoints_of,
    load_saved,
    saved_of,
)
from jupyter_mntrain.train.checkpoint.export import DESCRIPTION
from jupyter_mntrain.train.data.chat import ChatWriter
from jupyter_mntrain.train.data.tokens import read_tokenizer, text_ids
from jupyter_mntrain.train.model.decoder import config_in
from jupyter_mntrain.train.model.held_memory import too_large
from jupyter_mntrain.train.world import join_world


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say where the model is."""
    parser.add_argument("--directory", metavar="DIR", help="a Hugging Face directory")
    # Not --run: torchrun takes it for the beginning of an option of its own.
    parser.add_argument("--checkpoint-of", dest="run", metavar="RUN", help="a run")
    parser.add_argument("--step", type=int, help="of its checkpoint; default: the newest")
    parser.add_argument("--recipe", help="the recipe of its job")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE")


def load_source(arguments: argparse.Namespace, progress: ProgressWriter) -> Answering | None:
    """Load the model on rank 0, to its GPU if it has one; ``None`` on other ranks. Collective.

    Raises:
        RecipeError: there is no checkpoint or model, or the memory is too small for it.
    """
    if arguments.directory is not None:
        directory = model_in(arguments.directory)
        if error := too_large(weight_bytes(directory)):
            raise error
        progress("loading the model", 0)
        model = load_model(directory)
        return Answering.of(model, directory, None)
    recipe = load_recipe(arguments.recipe, arguments.set)
    with join_world("cpu", TIMEOUT_S) as world:
        checkpoints = checkpoints_of(arguments.run, recipe, os.environ)
        found = saved_of(world, checkpoints, arguments.run, arguments.step)
        model = load_saved(world, checkpoints, found, recipe, progress)
        if model is None:
            return None
        splits = recipe.data.split_special_tokens
        description, step = checkpoints / DESCRIPTION, found.manifest.step
        return Answering.of(model, description, step, splits_special=splits)


def leave_when_told() -> None:
    """Exit on SIGTERM as on an error, so that cleanup runs."""

    def leave(*_: object) -> NoReturn:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)


def model_in(text: str) -> Path:
    """Return the Hugging Face directory of this name on this node.

    Raises:
        RecipeError: there is none, or it has no tokenizer.
    """
    directory = place_of(text)
    if not (directory / "config.json").is_file():
        there = "no config.json in it" if directory.is_dir() else "no such directory on this node"
        raise RecipeError(f"{text}: {there}", fix="name a Hugging Face directory, or its --node")
    if not has_tokenizer(one.name for one in directory.iterdir()):
        raise RecipeError(
            f"{text}: the model has no tokenizer",
            fix="copy the tokenizer of its base model into it; in the script: "
            "tokenizer.save_pretrained(DIR), or Trainer(processing_class=tokenizer)",
        )
    return directory


def load_model(directory: Path) -> Any:
    """Load the causal model of a Hugging Face directory, of any family, without running its code.

    Raises:
        RecipeError: it cannot be read, or lacks weights.
    """
    config = config_in(directory)
    if read_generation(directory):
        try:
            GenerationConfig.from_pretrained(directory, local_files_only=True)
        except Exception as error:  # other people's files: transformers may raise anything
            raise unreadable(directory / GENERATION, error) from error
    listings = [one.listing for one in FORMATS if (directory / one.listing).is_file()]
    for one in listings:
        listed_files(directory / one)
    try:
        model, found = AutoModelForCausalLM.from_pretrained(
            directory,
            config=config,
            dtype="auto",
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except Exception as error:  # other people's files: transformers may raise anything
        names = " and ".join([CONFIG, *listings])
        cause = (
            f"{directory}: transformers cannot load a model from its {names}: {first_line(error)}"
        )
        raise RecipeError(cause, fix="copy the model again") from error
    if lacking := sorted(found["missing_keys"]):  # they would be random
        raise RecipeError(f"{directory}: it has no {some_of(lacking)}", fix="copy the model again")
    return model


@dataclass(frozen=True)
class Answering:
    """A loaded model that answers questions.

    Args:
        step: of the checkpoint; ``None`` for a directory.
        ends: ids of the tokens that end an answer.
        splits_special: read special tokens in what people ask as text.
    """

    model: Any
    tokenizer: Any
    step: int | None
    ends: list[int]
    splits_special: bool = True

    @classmethod
    def of(
        cls, model: Any, description: Path, step: int | None, *, splits_special: bool = True
    ) -> Answering:
        """Prepare a model for answering.

        Args:
            description: directory of its tokenizer.
        """
        tokenizer = read_tokenizer(description)
        if torch.cuda.is_available():
            try:
                model = model.to("cuda")
            except torch.OutOfMemoryError:
                free = torch.cuda.mem_get_info()[0]
                cause = f"the model does not fit into the GPU's free {free / 1e9:.1f} GB"
                raise RecipeError(cause, fix="name a larger GPU, or omit --gpu") from None
        settings = read_generation(description).get("eos_token_id")
        named = (model.config.eos_token_id, tokenizer.eos_token_id, settings)
        ids = {one for some in named for one in listed_ends(some)}
        return cls(model.eval(), tokenizer, step, sorted(ids), splits_special)

    @cached_property
    def _writer(self) -> ChatWriter:
        return ChatWriter(
            self.tokenizer, None, answers_only=False, splits_special=self.splits_special
        )

    @property
    def padding(self) -> int | None:
        known = self.tokenizer.pad_token_id
        return known if known is not None else next(iter(self.ends), None)

    @property
    def most_tokens(self) -> int | None:
        """The maximum number of tokens in a conversation, if the model states it."""
        return getattr(self.model.config, "max_position_embeddings", None)

    def described(self, answer: ChatAnswer) -> ChatAnswer:
        """Return the answer with what is known about the model."""
        has_template = self.tokenizer.chat_template is not None
        return msgspec.structs.replace(answer, step=self.step, has_template=has_template)

    def tokens_of(self, question: ChatRequest) -> torch.Tensor:
        """Return the token ids of a question.

        Raises:
            RecipeError: there is no chat template, it rejects the conversation, or the model takes
                no conversation of this length.
        """
        if question.is_completion:
            text = "".join(one.content for one in question.messages)
            ids = text_ids(self.tokenizer, text, splits_special=self.splits_special)
        else:
            if self.tokenizer.chat_template is None:
                cause = "this model has no chat template"
                raise RecipeError(cause, fix="continue plain text instead: --completion")
            messages = [{"role": one.role, "content": one.content} for one in question.messages]
            ids = self._writer.asks(messages, "the conversation")
        if self.most_tokens is not None and len(ids) >= self.most_tokens:
            raise RecipeError(
                f"the conversation has {len(ids):,} tokens, and the model takes "
                f"{self.most_tokens:,}",
                fix="start again: /clear",
            )
        return torch.tensor([ids], dtype=torch.int64, device=self.model.device)

    def fitting(self, tokens: int, given: torch.Tensor) -> int:
        """Limit the number of new tokens to what still fits."""
        if self.most_tokens is None:
            return tokens
        return min(tokens, self.most_tokens - given.shape[1])


def weight_bytes(directory: Path) -> int:
    """Return the size of a directory's weights."""
    files = [one for kind in ("*.safetensors", "*.bin") for one in directory.glob(kind)]
    return sum(one.stat().st_size for one in files)
