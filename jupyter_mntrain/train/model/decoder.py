"""Partial decoder: a Hugging Face decoder with only some of its layers.

Layers that belong to other stages become :class:`Skip`: indices, state-dict names and
``config.layer_types`` stay those of the whole model, whereas slicing the layer list silently
picks the wrong attention mask on models that mix full and sliding attention (measured).
"""

from __future__ import annotations

import copy
import logging
import os

# Before transformers is imported, which reads it once: a training run never asks the hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.parse import preset_config
from jupyter_mntrain.recipe.presets import FAMILIES
from jupyter_mntrain.recipe.rank_memory import shape_of
from jupyter_mntrain.recipe.sections import ModelSection
from jupyter_mntrain.telemetry.formulas import ModelShape
from jupyter_mntrain.train.data.tokens import END_OF_TEXT_ID

# transformers imports torchao with any model, where it is installed, and that tells in four lines
# which kernels for GPUs that are not here it could not load: an error of ours is one line.
for _talkative in ("torchao", "torch.utils._pytree"):
    logging.getLogger(_talkative).setLevel(logging.ERROR)

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"


class Skip(nn.Module):
    """Hands its first argument on; has no parameters."""

    def forward(self, hidden: torch.Tensor, *_args: object, **_kwargs: object) -> torch.Tensor:
        return hidden


class StageModule(nn.Module):
    """One pipeline stage: ids or hidden states in, hidden states or logits out.

    Shapes: ids (b, T) int64, hidden (b, T, d), logits (b, T, V).

    Attributes:
        leaves_head: whether the last stage hands out hidden states, and the loss projects them.
        keeping: a context for the forward pass, in which autograd saves what it needs later.

    Args:
        causal: the model with the other stages' layers skipped.
        layers: indices of the layers that are there.
    """

    def __init__(self, causal: nn.Module, layers: range, *, first: bool, last: bool) -> None:
        super().__init__()
        self.causal: Any = causal
        self.layers = layers
        self.first = first
        self.last = last
        self.leaves_head = False
        self.keeping: AbstractContextManager[None] = nullcontext()

    def forward(self, value: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        # use_cache=False is a must: with a cache transformers stops telling documents apart by
        # their positions, and says nothing.
        name = "input_ids" if self.first else "inputs_embeds"
        decoder = self.causal.model
        with self.keeping:
            output = decoder(**{name: value}, position_ids=position_ids, use_cache=False)
        hidden: torch.Tensor = output.last_hidden_state
        return self.causal.lm_head(hidden) if self.last and not self.leaves_head else hidden

    def weights(self) -> dict[str, nn.Parameter]:
        """Parameters by the name they have in the whole model and in its files."""
        return dict(self.causal.named_parameters())


def read_config(section: ModelSection, vocabulary_size: int | None = None) -> Any:
    """The transformers config of a recipe's model.

    Args:
        vocabulary_size: of the tokenizer, for a preset.

    Raises:
        RecipeError: the directory is missing or its architecture is not supported.
    """
    if section.path is None:
        fields = preset_config(section)
        return AutoConfig.for_model(
            **fields, vocab_size=vocabulary_size, bos_token_id=None, eos_token_id=END_OF_TEXT_ID
        )
    directory = model_directory(section)
    try:
        config = AutoConfig.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        cause = f"model.path = {section.path}: {reason}"
        raise RecipeError(cause, fix=f"use a model of {', '.join(FAMILIES)}") from error
    if config.model_type not in FAMILIES:
        cause = f"model.path = {section.path}: unknown architecture {config.model_type!r}"
        raise RecipeError(cause, fix=f"use a model of {', '.join(FAMILIES)}")
    return config


def model_directory(section: ModelSection) -> Path:
    """The recipe's model directory, which must hold a config.json."""
    directory = Path(section.path or "").expanduser()
    if not directory.is_dir():
        cause = f"model.path = {section.path}: no such directory"
        raise RecipeError(cause, fix="use a Hugging Face model directory that exists here")
    if not (directory / "config.json").is_file():
        cause = f"model.path = {section.path}: has no config.json"
        raise RecipeError(cause, fix="use a Hugging Face model directory")
    return directory


def model_shape(config: Any) -> ModelShape:
    """What the FLOPs of this config depend on."""
    return shape_of(config.to_dict())


def published_config(config: Any, dtype: torch.dtype) -> Any:
    """What goes beside the weights: it also names the class that loads them, and their dtype."""
    published = copy.deepcopy(config)
    # transformers' own table: a config of ours, unlike one of a directory, does not know its class.
    published.architectures = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type]]
    published.dtype = dtype
    return published


def meta_stage(
    config: Any, layers: range, *, first: bool, last: bool, dtype: torch.dtype, attention: str
) -> StageModule:
    """A stage without storage; :func:`materialize` gives it weights."""
    with torch.device("meta"):
        causal = AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=attention
        )
    for index in range(config.num_hidden_layers):
        if index not in layers:
            causal.model.layers[index] = Skip()
    if not first:
        causal.model.embed_tokens = Skip()
    if not last:
        causal.model.norm = Skip()
        causal.lm_head = Skip()
    return StageModule(causal, layers, first=first, last=last)


def materialize(
    stage: StageModule, weights: Mapping[str, torch.Tensor], device: torch.device
) -> StageModule:
    """Put ``weights``, named as in :meth:`StageModule.weights`, into a meta stage."""
    causal = stage.causal
    missing = causal.load_state_dict(weights, strict=False, assign=True)
    if stage.first and stage.last and causal.config.tie_word_embeddings:
        causal.lm_head.weight = causal.model.embed_tokens.weight
    # inv_freq is not in any file: left alone it would be whatever the memory held, silently.
    rotary = type(causal.model.rotary_emb)
    causal.model.rotary_emb = rotary(config=causal.config).to(device)
    for name, tensor in [*causal.named_parameters(), *causal.named_buffers()]:
        if tensor.is_meta:
            raise AssertionError(f"{name} was never materialized: {missing}")
    return stage.train()
