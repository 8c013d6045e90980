"""The default trainer: a Hugging Face decoder, pipeline-parallel over torch.distributed.

``python -m jupyter_mntrain.train RECIPE.toml`` under torchrun or alone. Names are loaded on first
use: reading a recipe never imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_mntrain.recipe.parse import Recipe, check, load_recipe, parse_recipe
    from jupyter_mntrain.train.loop import TrainResult, train

_HOME = {
    "Recipe": "jupyter_mntrain.recipe.parse",
    "TrainResult": "jupyter_mntrain.train.loop",
    "check": "jupyter_mntrain.recipe.parse",
    "load_recipe": "jupyter_mntrain.recipe.parse",
    "parse_recipe": "jupyter_mntrain.recipe.parse",
    "train": "jupyter_mntrain.train.loop",
}

__all__ = ["Recipe", "TrainResult", "check", "load_recipe", "parse_recipe", "train"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
