"""The default trainer: a Hugging Face decoder, pipeline-parallel over torch.distributed.

``python -m jupyter_mntrain.train RECIPE.toml`` under torchrun or alone. The loop is loaded on
first use: reading a recipe never imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_mntrain.model.lazy import lazy_names
from jupyter_mntrain.recipe.parse import Recipe, check, load_recipe, parse_recipe

if TYPE_CHECKING:
    from jupyter_mntrain.train.checkpoint.result import TrainResult
    from jupyter_mntrain.train.loop import train

__all__ = ["Recipe", "TrainResult", "check", "load_recipe", "parse_recipe", "train"]

__getattr__ = lazy_names(
    __name__,
    {
        "TrainResult": "jupyter_mntrain.train.checkpoint.result",
        "train": "jupyter_mntrain.train.loop",
    },
)
