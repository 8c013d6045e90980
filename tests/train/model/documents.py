"""Packed documents, stages that see them, kernels that stand for those of GPUs; what reads back."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM

from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train.data.batches import Batch
from jupyter_mntrain.train.model.attention import Attention, Kernel
from jupyter_mntrain.train.model.decoder import StageModule, read_config
from jupyter_mntrain.train.model.stages import build_modules

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
VOCABULARY, LENGTH = 64, 16
LENGTHS = (9, 6, 4, 7, 13, 3, 17, 5)
WINDOW = 5
HALF = torch.bfloat16

READS = ("_local_scalar_dense", "item", "nonzero", "equal", "is_nonzero", "unique", "masked_select")
"""Operations that wait for a GPU: their result, or its shape, is needed on the host."""


class Reads(TorchDispatchMode):
    """Operations that read a tensor back: as ``torch.cuda.set_sync_debug_mode`` on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.all: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.all.add(name)
        if name in READS or name.startswith("unique"):
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


def one_by_one(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    ends: torch.Tensor,
    other_ends: torch.Tensor,
    most: int,
    other_most: int,
    scale: float,
    window: int | None,
) -> torch.Tensor:
    """What flash kernels for several lengths compute: (tokens, heads, d)."""
    assert ends is other_ends
    assert ends.dtype == torch.int32
    assert most == other_most
    places = ends.tolist()
    assert places[0] == 0
    assert places[-1] == len(query)
    written = torch.zeros_like(query)
    for begin, end in pairwise(places):
        assert 0 <= end - begin <= most
        if begin == end:
            continue
        here = [one[begin:end].transpose(0, 1)[None] for one in (query, key, value)]
        place = torch.arange(end - begin)
        back = place[:, None] - place
        seen = (back >= 0) & (back < (window or end - begin))
        output = scaled_dot_product_attention(*here, attn_mask=seen, scale=scale, enable_gqa=True)
        written[begin:end] = output[0].transpose(0, 1)
    return written


def torchs(
    *tensors: Any, scale: float, window_size: tuple[int, int], enable_gqa: bool
) -> torch.Tensor:
    """Stands for ``torch.nn.attention.varlen.varlen_attn``."""
    assert enable_gqa
    assert window_size[1] == 0
    back = window_size[0]
    return one_by_one(*tensors, scale, None if back < 0 else back + 1)


def packaged(
    *tensors: Any,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size: tuple[int, int],
) -> torch.Tensor:
    """Stands for ``flash_attn.flash_attn_varlen_func``."""
    assert causal
    assert not dropout_p
    assert window_size in {(-1, -1), (WINDOW - 1, 0)}
    return one_by_one(*tensors, softmax_scale, None if window_size[0] < 0 else window_size[0] + 1)


def recipe_of(family: str = "llama", *changes: str, packing: str = "best-fit") -> Recipe:
    small = [f"model.preset={family}-tiny", f"data.sequence_length={LENGTH}", "train.device=cpu"]
    return parse_recipe("", [*small, f"data.packing={packing}", "memory.loss=plain", *changes])


def config_of(recipe: Recipe, *, slides: bool = False) -> Any:
    config = read_config(recipe.model, VOCABULARY)
    if slides:
        config.sliding_window = WINDOW
        if getattr(config, "layer_types", None) is not None:  # here and there, as in Qwen
            config.layer_types = ["full_attention", "sliding_attention"] * 2
    return config


def stages_of(
    recipe: Recipe, config: Any, kernel: Kernel = "mask", ranks: int = 1
) -> list[StageModule]:
    layout = lay_out(recipe, ranks, config.num_hidden_layers)
    built = [build_modules(recipe, config, layout, rank, CPU) for rank in range(ranks)]
    stages = [stage for some in built for stage in some.values()]
    for stage in stages:
        assert stage.attention is not None
        stage.attention = Attention(kernel, stage.attention.windows, torch.float32)
    return stages


def logits(stages: list[StageModule], batch: Batch) -> torch.Tensor:
    value = batch.inputs
    for stage in stages:
        value = stage(value, batch.positions, batch.ends, batch.longest)
    return value


def summed_loss(found: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return cross_entropy(found.flatten(0, -2), labels.flatten(), reduction="sum")


def gradients_alone(config: Any, stages: list[StageModule], batch: Batch) -> dict[str, Any]:
    """Those of transformers' own model, which sees one document at a time."""
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    weights = {name: one.detach() for stage in stages for name, one in stage.weights().items()}
    model.load_state_dict(weights, strict=False)
    for ids, labels, positions in zip(batch.inputs, batch.labels, batch.positions, strict=True):
        begins = (positions == 0).nonzero().flatten().tolist()
        for begin, end in pairwise([*begins, len(ids)]):
            found = model(input_ids=ids[None, begin:end], use_cache=False).logits
            summed_loss(found, labels[begin:end]).backward()
    return {name: one.grad for name, one in model.named_parameters()}


def refuse_other_gradients(stages: list[StageModule], wanted: dict[str, Any]) -> None:
    mine = {name: one.grad for stage in stages for name, one in stage.weights().items()}
    assert {*mine} >= {*wanted}
    for name, gradient in wanted.items():
        largest = gradient.abs().max()
        assert largest > 0
        assert (mine[name] - gradient).abs().max() <= 2e-5 * largest, name
