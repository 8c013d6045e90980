"""Partial decoder: a Hugging Face decoder with only some of its layers.

Layers of other stages become :class:`Skip`, which keeps indices, state-dict names and
``config.layer_types`` those of the whole model. Slicing the layer list instead silently picks the
wrong attention mask in models that mix full and sliding attention (measured).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from jupyter_mntrain.families import (
    Family,
    family_of,
    normal,
    refuse_unknown,
    shape_of,
    wrong_count,
)
from jupyter_mntrain.families.directories import (
    CONFIG,
    listed_ends,
    read_generation,
    read_object,
    refuse_directory,
    unreadable,
)
from jupyter_mntrain.launch.files.large_places import place_of
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.text.brief import first_line
from jupyter_mntrain.recipe.parse import preset_config
from jupyter_mntrain.recipe.sections import ModelSection
from jupyter_mntrain.telemetry.formulas import ModelShape
from jupyter_mntrain.train.data.tokens import END_OF_TEXT_ID
from jupyter_mntrain.train.model.attention import Attention
from jupyter_mntrain.train.model.losses import shaping_of
from jupyter_mntrain.train.model.weight_gradients import WeightGradients

HEAD = "lm_head.weight"
"""The weight of the output projection, in all families."""
EMBEDDING = "model.embed_tokens.weight"
"""The weight of the embedding, in most families."""
ADAPTER = "default"
"""What peft calls an adapter; its files leave it out of the names of weights."""


class Skip(nn.Module):
    """Returns its first argument; has no parameters."""

    def forward(self, hidden: torch.Tensor, *_args: object, **_kwargs: object) -> torch.Tensor:
        return hidden


class Nothing(nn.Module):
    """Stands in for a learned embedding that another stage has already added: returns zero."""

    def forward(self, position_ids: torch.Tensor) -> torch.Tensor:
        return torch.zeros((), device=position_ids.device)


class StageModule(nn.Module):
    """One pipeline stage: ids or hidden states in, hidden states or logits out.

    Shapes: ids (b, T) int64, hidden (b, T, d), logits (b, T, V).

    Attributes:
        leaves_head: the last stage returns hidden states, and the loss applies the output
            projection.
        attention: prepares what each microbatch's attention needs; ``None`` leaves that to
            transformers.
        keeping: context of the forward pass, for activation offloading.
        weight_gradients: that a schedule may defer; ``None`` leaves them to autograd.

    Args:
        causal: the model with the other stages' layers skipped.
        family: of the model.
        layers: indices of the layers that are present.
    """

    def __init__(
        self, causal: nn.Module, family: Family, layers: range, *, first: bool, last: bool
    ) -> None:
        super().__init__()
        self.causal: Any = causal
        self.family = family
        self.shaping = shaping_of(family, self.causal.config)
        self.layers = layers
        self.first = first
        self.last = last
        self.leaves_head = False
        self.attention: Attention | None = None
        self.keeping: AbstractContextManager[None] = nullcontext()
        self.weight_gradients: WeightGradients | None = None

    def forward(
        self,
        value: torch.Tensor,
        position_ids: torch.Tensor,
        document_ends: torch.Tensor | None = None,
        longest: int = 0,
    ) -> torch.Tensor:
        """Compute one microbatch; see :meth:`~jupyter_mntrain.train.model.attention.Attention`."""
        given: dict[str, Any] = {"position_ids": position_ids}
        if self.attention is not None:
            given["seen"] = self.attention.prepare(position_ids, document_ends, longest)
        # use_cache=False is required: with a cache, transformers silently stops separating
        # documents by their positions.
        name = "input_ids" if self.first else "inputs_embeds"
        with self.keeping:
            output = self.causal.base_model(**{name: value}, **given, use_cache=False)
        hidden: torch.Tensor = output.last_hidden_state
        return self.project(hidden) if self.last and not self.leaves_head else hidden

    def project(self, hidden: torch.Tensor) -> torch.Tensor:
        """Compute logits, (..., V), from the last stage's hidden states (..., d)."""
        return self.shaping(self.causal.lm_head(hidden))

    @property
    def drops(self) -> bool:
        """Whether the stage has dropout."""
        probabilities = [one.p for one in self.modules() if isinstance(one, nn.Dropout)]
        config = normal(self.causal.config.to_dict())
        functions = ("attention_dropout", *self.family.dropouts)
        return any(probabilities) or any(config.get(name) for name in functions)

    def present(self) -> dict[int, Any]:
        """Return the stage's layers, by index."""
        layers = self.causal.get_submodule(self.family.layers)
        return {index: layers[index] for index in self.layers}

    def weights(self) -> dict[str, nn.Parameter]:
        """Return the parameters by their names in the whole model and in its files."""
        return {_published(name): one for name, one in self.causal.named_parameters()}

    def trained(self) -> dict[str, nn.Parameter]:
        """Return the parameters that have gradients."""
        return {name: one for name, one in self.weights().items() if one.requires_grad}


def _published(name: str) -> str:
    """Return a parameter's name in files, without what peft adds to it."""
    return name.replace(".base_layer.", ".").replace(f".{ADAPTER}.", ".")


def read_config(section: ModelSection, vocabulary_size: int | None = None) -> Any:
    """Return the transformers config of a recipe's model.

    Args:
        vocabulary_size: the tokenizer's, for a preset.

    Raises:
        RecipeError: the directory is missing or its architecture is not supported.
    """
    if section.path is None:
        fields = preset_config(section)
        return AutoConfig.for_model(
            **fields, vocab_size=vocabulary_size, bos_token_id=None, eos_token_id=END_OF_TEXT_ID
        )
    directory, place = model_directory(section), f"model.path = {section.path}"
    config = config_in(directory, place)
    refuse_unknown(config.to_dict(), place)
    read_generation(directory)  # now, not when it is written with the model at the end
    return config


def config_in(directory: Path, place: object = None) -> Any:
    """Read the transformers config of a directory, without running its code.

    Args:
        place: of the model, for the message; by default the directory.

    Raises:
        RecipeError: it cannot be read.
    """
    file = directory / CONFIG
    read_object(file, place)  # its own words name no file
    try:
        config = AutoConfig.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # other people's files: transformers may raise anything
        fix = "copy the file again, or install a newer transformers"
        raise unreadable(file, error, place, fix=fix) from error
    fields = config.to_dict()
    if (wrong := wrong_count(normal(fields))) is not None:
        why = f"{wrong} is not a count"
        raise unreadable(file, why, place)
    for name, share in fields.items():
        is_share = name.endswith(("dropout", "pdrop")) and isinstance(share, int | float)
        if is_share and not 0 <= share <= 1:
            why = f"{name} = {share} is not a share of values"
            raise unreadable(file, why, place)
    ends = listed_ends(config.eos_token_id)
    if not all(isinstance(one, int) and 0 <= one < config.vocab_size for one in ends):
        why = f"eos_token_id = {config.eos_token_id} is none of {config.vocab_size} tokens"
        raise unreadable(file, why, place)
    return config


def model_directory(section: ModelSection) -> Path:
    """Return the recipe's model directory.

    Raises:
        RecipeError: the trainer cannot use it.
    """
    directory = place_of(section.path or "")
    refuse_directory(directory, section.path or "")
    return directory


def model_shape(config: Any) -> ModelShape:
    """Return the dimensions that FLOPs depend on."""
    return shape_of(config.to_dict())


def published_config(config: Any, dtype: torch.dtype) -> Any:
    """Return the config to save with the weights: with their dtype and the model's class."""
    published = copy.deepcopy(config)
    # A preset's config, unlike one read from a directory, does not name its class.
    published.architectures = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type]]
    published.dtype = dtype
    return published


def meta_stage(
    config: Any,
    layers: range,
    *,
    first: bool,
    last: bool,
    dtype: torch.dtype,
    attention: str | None,
) -> StageModule:
    """Build a stage on the meta device; :func:`materialize` gives it weights.

    Args:
        attention: as transformers calls it; ``None`` leaves the choice to it.
    """
    try:
        with torch.device("meta"):
            causal = AutoModelForCausalLM.from_config(
                config, dtype=dtype, attn_implementation=attention, trust_remote_code=False
            )
    except Exception as error:  # a config that is read may still describe no model
        cause = f"transformers cannot build a model from the {CONFIG}: {first_line(error)}"
        raise RecipeError(cause, fix="copy the model's config again") from error
    family = family_of(config.to_dict())
    absent = [
        f"{family.layers}.{index}"
        for index in range(config.num_hidden_layers)
        if index not in layers
    ]
    if not first:
        absent += [one for one in (family.embedding, family.dropout) if one is not None]
        if family.positions is not None:
            causal.set_submodule(family.positions, Nothing())
        if family.embedding_times is not None:
            setattr(causal.base_model, family.embedding_times, 1.0)
        if family.embedding_dropout is not None:
            setattr(causal.base_model, family.embedding_dropout, 0.0)
    if not last:
        absent += [family.norm, "lm_head"]
    for name in absent:
        causal.set_submodule(name, Skip())
    return StageModule(causal, family, layers, first=first, last=last)


def materialize(
    stage: StageModule, weights: Mapping[str, torch.Tensor], device: torch.device
) -> StageModule:
    """Put ``weights``, named as in :meth:`StageModule.weights`, into a meta stage."""
    causal = stage.causal
    _fill_buffers(causal, device)
    missing = causal.load_state_dict(weights, strict=False, assign=True)
    if stage.first and stage.last and causal.config.tie_word_embeddings:
        causal.lm_head.weight = causal.get_submodule(stage.family.embedding).weight
    for name, tensor in [*causal.named_parameters(), *causal.named_buffers()]:
        if tensor.is_meta:
            raise AssertionError(f"{name} was never materialized: {missing}")
    return stage.train()


def _fill_buffers(causal: Any, device: torch.device) -> None:
    """Compute buffers that are in no file, like rotations; else they would be uninitialized.

    transformers initializes it together with the weights, which are not there yet: they stay as
    they are.
    """
    for module in causal.modules():
        own = module.named_buffers(recurse=False)
        buffers = {name: one for name, one in own if one.is_meta and one.is_floating_point()}
        for name, buffer in buffers.items():
            buffers[name] = torch.zeros_like(buffer, device=device)
            setattr(module, name, buffers[name])
        versions = {name: one._version for name, one in buffers.items()}  # noqa: SLF001 - as torch documents
        if buffers:
            causal._init_weights(module)  # noqa: SLF001 - its public face initializes all modules
        for name, buffer in buffers.items():
            now = getattr(module, name)
            if now is buffer and now._version == versions[name]:  # noqa: SLF001
                raise AssertionError(f"transformers left {name} of {type(module).__name__} empty")


def whole_model(description: Path) -> StageModule:
    """Build the whole model on the meta device from the config in a directory."""
    config = config_in(description)
    layers = range(config.num_hidden_layers)
    return meta_stage(config, layers, first=True, last=True, dtype=config.dtype, attention=None)
