"""The default trainer: a Hugging Face decoder, pipeline-parallel over torch.distributed.

``python -m jupyter_mntrain.train RECIPE.toml`` under torchrun or alone. The loop is loaded on
first use: reading a recipe never imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jupyter_mntrain.recipe.parse import Recipe, check, load_recipe, parse_recipe

if TYPE_CHECKING:
    from jupyter_mntrain.train.loop import TrainResult, train

__all__ = ["Recipe", "TrainResult", "check", "load_recipe", "parse_recipe", "train"]


def __getattr__(name: str) -> Any:
    if name in {"TrainResult", "train"}:
        return getattr(import_module("jupyter_mntrain.train.loop"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
