"""The trainer, which also writes what each rank holds before its first step."""

from __future__ import annotations

import os
from pathlib import Path

from safetensors.torch import save_file

from jupyter_mntrain.model.environment import METRICS_VARIABLE
from jupyter_mntrain.recipe.parse import load_recipe
from jupyter_mntrain.telemetry.recorder import Recorder
from jupyter_mntrain.train.__main__ import _parser
from jupyter_mntrain.train.loop import Trainer
from jupyter_mntrain.train.world import join_world


def held_by(rank: int) -> str:
    """A file in the directory of the metrics, named as a checkpoint names its tensors."""
    return f"held-{rank}.safetensors"


def resume(words: list[str]) -> None:
    """``python -m jupyter_mntrain.train`` with these words."""
    arguments = _parser().parse_args(words)
    recipe = load_recipe(arguments.recipe, arguments.set)
    with Recorder() as recorder, join_world("cpu", recipe.train.timeout_s) as world:
        trainer = Trainer(recipe, world, recorder)
        held = {f"optimizer/{name}": one for name, one in trainer.optimizer.state().items()}
        held |= {f"model/{name}": one for name, one in trainer.pipeline.parameters().items()}
        save_file(held, Path(os.environ[METRICS_VARIABLE]) / held_by(world.rank))
        trainer.run()
