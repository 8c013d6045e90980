"""Choices: what a job does where its recipe leaves that to the GPUs. Pure; imports no torch.

Decided once per job from all of its ranks, so that all agree, and kept with the job: a restart or
a resumed job does not choose again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.combinations import check_compile
from jupyter_mntrain.recipe.devices.limits import (
    BFLOAT16_CAPABILITY,
    COMPILE_CAPABILITY,
    lacking_tools,
)
from jupyter_mntrain.recipe.devices.seats import Seat
from jupyter_mntrain.recipe.devices.settled import is_open, settled
from jupyter_mntrain.recipe.families import shape_of
from jupyter_mntrain.recipe.layout import lay_out, make_grid
from jupyter_mntrain.recipe.memory import fitting_loss
from jupyter_mntrain.recipe.rank_memory import Config, forecast, gpu_overhead, model_config
from jupyter_mntrain.recipe.schedules import KINDS
from jupyter_mntrain.recipe.sections import AttentionKind, Dtype, LossKind, Precision, Recipe

COMPILED_STEPS = 1000
"""Compiling takes a minute or more, and saves perhaps a fifth of a step: fewer steps of usual
length do not win that back."""

LINE_COLUMNS = 80

_LARGEST_HEAD = 192
"""Above it, flash kernels have no backward pass on consumer cards (torch's ``sdp_utils.cpp``)."""

_SHORT: Mapping[str, str] = {"flash_attention_2": "flash-attn", "flex_attention": "flex"}

_FULL: Mapping[str, str] = {"": "", "flash-attn": "flash-attn"}

_WORDS: Mapping[Precision, str] = {
    "float32-master": "float32 masters",
    "stochastic-rounding": "stochastic rounding",
    "plain": "plain updates",
}


def choose(recipe: Recipe, seats: Sequence[Seat]) -> dict[str, str]:
    """Choose a value for each setting that the recipe leaves to the devices.

    Args:
        seats: of all ranks, in their order.

    Returns:
        Values by ``section.field``, as for :func:`settled`.
    """
    chosen: dict[str, str] = {}
    if is_open(recipe, "model.dtype"):
        chosen["model.dtype"] = "float32" if _without_bfloat16(seats) else "bfloat16"
    config = model_config(recipe)
    if config is not None:
        chosen |= _by_model(settled(recipe, chosen), config, seats)
    known = settled(recipe, chosen)
    if is_open(recipe, "optimizer.precision") and known.dtype == "bfloat16":
        chosen["optimizer.precision"] = _precision(known, config, seats)
    if is_open(recipe, "memory.compile"):
        chosen["memory.compile"] = "true" if _is_to_compile(known, seats) else "false"
    return chosen


def attention_for(
    dtype: Dtype,
    seats: Sequence[Seat],
    *,
    head_dim: int,
    dropout: float,
    is_capped: bool = False,
) -> AttentionKind:
    """The fastest attention of all ranks that keeps packed documents apart.

    In float32 there is no flash kernel, and flex attention may need too much shared memory.

    Args:
        dtype: of activations.
        dropout: of attention; torch's kernel for documents has none.
        is_capped: whether scores are; torch's kernel for documents cannot.
    """
    if dtype != "bfloat16" or dropout or not all(map(_has_bfloat16, seats)):
        return "sdpa"
    if head_dim <= _LARGEST_HEAD and head_dim % 8 == 0:
        if all(seat.has_varlen for seat in seats) and not is_capped:
            return "varlen"
        if all(map(partial(_has_package, "flash-attn"), seats)):
            return "flash_attention_2"
    return "flex_attention" if all(map(_can_compile, seats)) else "sdpa"


def loss_for(recipe: Recipe, vocabulary_size: int, seats: Sequence[Seat]) -> LossKind:
    """The recipe's loss, with ``auto`` resolved for these seats."""
    # Liger computes gradients in the forward pass and scales them in place in the backward pass: a
    # schedule that splits the backward pass would scale them twice.
    is_open_to_liger = recipe.memory.loss == "auto"
    is_open_to_liger &= not KINDS[recipe.schedule].splits_backward
    has_liger = all(_can_compile(seat) and _has_package("liger-kernel", seat) for seat in seats)
    return "liger" if is_open_to_liger and has_liger else fitting_loss(recipe, vocabulary_size)


def _by_model(recipe: Recipe, config: Config, seats: Sequence[Seat]) -> dict[str, str]:
    """What also depends on the model."""
    found: dict[str, str] = {}
    if is_open(recipe, "model.attention"):
        shape = shape_of(config)
        found["model.attention"] = attention_for(
            recipe.dtype,
            seats,
            head_dim=shape.head_dim,
            dropout=config.get("attention_dropout") or 0.0,
            is_capped=shape.layer.is_capped,
        )
    if is_open(recipe, "memory.loss"):
        found["memory.loss"] = loss_for(recipe, config["vocab_size"], seats)
    return found


def choice_line(recipe: Recipe, chosen: Mapping[str, str], seats: Sequence[Seat]) -> str:
    """Say in a line of 80 columns what was chosen; empty if no rank has a GPU, or nothing was left
    to choose. It is longer only where long names say which node keeps a job from something.

    Like ``auto: bfloat16, float32 masters, varlen attention, chunked loss, compiled``.

    Args:
        recipe: as it was written, or settled.
        chosen: its automatic settings.
    """
    if not any(seat.gpu for seat in seats) or not chosen:
        return ""
    known = settled(recipe, chosen)
    lack = _obstacle(seats) if _is_long(known) else None
    dtype, odd, why = chosen.get("model.dtype"), _without_bfloat16(seats), ""
    if dtype == "float32" and odd is not None:
        why = _why_not(odd)
    elif chosen.get("memory.compile") == "false" and lack is not None:
        why = lack
    precision = _WORDS[known.precision] if "optimizer.precision" in chosen else None
    attention, loss = chosen.get("model.attention", ""), chosen.get("memory.loss", "")
    attention = _SHORT.get(attention, attention)
    compiles = {"true": "compiled", "false": "not compiled" if why == lack else None}

    def line(kernel: str, loss: str, reason: str) -> str:
        words = [dtype, precision, kernel, loss, compiles.get(chosen.get("memory.compile", ""))]
        said = ", ".join(filter(None, words))
        return f"auto: {said}{f' ({reason})' if reason else ''}" if said else ""

    full = _FULL.get(attention, f"{attention} attention"), f"{loss} loss" if loss else ""
    if not why and dtype == "bfloat16" and odd is None:
        reasoned = line(*full, "every GPU is Ampere or newer")
        return reasoned if len(reasoned) <= LINE_COLUMNS else line(*full, "")
    reasoned = line(*full, why)
    if len(reasoned) <= LINE_COLUMNS:
        return reasoned
    return line(attention, "" if loss == "plain" else loss, why)


def _has_bfloat16(seat: Seat) -> bool:
    return seat.capability is not None and seat.capability >= BFLOAT16_CAPABILITY


def _without_bfloat16(seats: Sequence[Seat]) -> Seat | None:
    """The first seat that keeps a job from bfloat16."""
    return next((seat for seat in seats if not _has_bfloat16(seat)), None)


def _why_not(seat: Seat) -> str:
    if seat.gpu is None:
        return f"{seat.node} computes on CPUs"
    if seat.capability is None:
        return f"{seat.node}: {seat.gpu}, does not tell its compute capability"
    return f"{seat.node}: {seat.gpu}, has no bfloat16"


def _precision(recipe: Recipe, config: Config | None, seats: Sequence[Seat]) -> Precision:
    """Float32 masters, unless a GPU has too little memory for them."""
    if config is None:
        return "float32-master"
    with suppress(RecipeError):  # whoever starts it says so
        by_place = forecast(recipe, config, len(seats))
        grid = make_grid(recipe, len(seats))
        layout = lay_out(recipe, len(seats), config["num_hidden_layers"])
        is_tied = bool(config.get("tie_word_embeddings"))
        for rank, seat in enumerate(seats):
            place = grid.place_of(rank)
            estimate = by_place[place]
            needed = estimate.total
            needed += gpu_overhead(recipe, layout, place, estimate, is_tied=is_tied).total
            if seat.memory_bytes is not None and needed > seat.memory_bytes:
                return "stochastic-rounding"
    return "float32-master"


def _is_to_compile(recipe: Recipe, seats: Sequence[Seat]) -> bool:
    if not _is_long(recipe) or recipe.adapters.quantizes:
        return False
    # Equal on CPUs and measured on no GPU yet: for those who ask for it.
    if recipe.data_parallel.shards > 1 or recipe.memory.checkpointing == "selective":
        return False
    try:
        check_compile(settled(recipe, {"memory.compile": "true"}))
    except RecipeError:
        return False
    return all(map(_can_compile, seats))


def _is_long(recipe: Recipe) -> bool:
    """Whether compiling pays. Epochs, whose steps are not known yet, count as long: a minute too
    many costs less than a fifth of a long run.
    """
    return recipe.train.steps is None or recipe.train.steps >= COMPILED_STEPS


def _can_compile(seat: Seat) -> bool:
    """Whether a seat is known to have a GPU, and all that compiling for it takes."""
    return (
        seat.gpu is not None
        and seat.tools is not None
        and seat.capability is not None
        and seat.capability >= COMPILE_CAPABILITY
        and lacking_tools(seat.tools, on_gpu=True) is None
    )


def _has_package(name: str, seat: Seat) -> bool:
    return seat.tools is not None and name in seat.tools.packages


def _obstacle(seats: Sequence[Seat]) -> str | None:
    """What a node lacks for compiling, with its name."""
    for seat in seats:
        if seat.gpu is not None and seat.tools is not None:
            lack = lacking_tools(seat.tools, on_gpu=True)
            if lack is not None:
                return f"{seat.node} has no {lack.what}"
    return None
