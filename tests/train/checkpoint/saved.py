"""Runs that save checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.train import TrainResult, parse_recipe, train
from tests.train.ranks import Ended, run_ranks
from tests.train.test_command import losses, read

STEPS = 9
EVERY = 3
SETTINGS = (
    *("model.preset=llama-tiny", "data.vocabulary_size=300", "data.sequence_length=16"),
    *("pipeline.microbatches=2", "train.device=cpu", f"train.steps={STEPS}"),
    *("train.batch_size=4", f"checkpoint.interval_steps={EVERY}", "checkpoint.keep=9"),
    *("report.to=[]", "output.at_end=false"),  # nothing but checkpoints is of interest here
)


def saves(kept: Path) -> list[str]:
    """Whole checkpoints and halves of them."""
    return sorted(path.name for path in kept.glob("*step-*"))


def run(text: Path, kept: Path, *overrides: str) -> TrainResult:
    changes = (f"data.source={text}", f"checkpoint.directory={kept}", *SETTINGS, *overrides)
    return train(parse_recipe("", changes))


def forget(kept: Path, *steps: int) -> None:
    """As if the run had been cut off before these were saved."""
    for step in steps:
        shutil.rmtree(CheckpointDirectory(kept).of(step))


class Nodes:
    """Nodes a, b, … with a disk each and a rank each."""

    def __init__(self, text: Path, tmp_path: Path, count: int, *more: str) -> None:
        self._recipe = tmp_path / "recipe.toml"
        self._recipe.write_text("")
        settings = [f"data.source={text}", *SETTINGS, *more]
        self._options = [word for one in settings for word in ("--set", one)]
        self._directory = tmp_path
        self.disks = [tmp_path / f"disk-{name}" for name in "abc"[:count]]

    def run(self, name: str, nodes: str, **more: Any) -> list[Ended]:
        places = [
            {"MNTRAIN_CHECKPOINT_DIR": str(self._directory / f"disk-{node}")} for node in nodes
        ]
        metrics = self._directory / name
        more |= {"metrics": metrics, "environments": places}
        return run_ranks(self._recipe, nodes, *self._options, **more)

    def losses(self, name: str, nodes: str, **more: Any) -> list[float]:
        ended = self.run(name, nodes, **more)
        assert [one.exit_code for one in ended] == [0] * len(nodes), ended
        return losses(read(self._directory / name, 0))
