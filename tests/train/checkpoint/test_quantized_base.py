"""Adapters next to weights in 4 bits: resumed exactly, and merged into what these stand for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory, shard_name
from jupyter_mntrain.telemetry.progress import unwatched
from jupyter_mntrain.train import parse_recipe
from jupyter_mntrain.train.checkpoint.keeping import export_checkpoint
from jupyter_mntrain.train.checkpoint.resuming import find_newest
from jupyter_mntrain.train.model.adapters import is_adapter
from jupyter_mntrain.train.model.weights import SINGLE_FILE
from jupyter_mntrain.train.world import join_world
from tests.train.checkpoint.saved import EVERY, SETTINGS, STEPS, forget, run
from tests.train.test_command import write_text

CHANGES = ("adapters.rank=4", "adapters.quantize_base=nf4", "optimizer.learning_rate=1e-2")


def test_it_goes_on_exactly_and_a_checkpoint_is_merged_as_the_end_is(tmp_path: Path) -> None:
    text, kept = write_text(tmp_path / "text"), tmp_path / "kept"
    at_end = (*CHANGES, "output.at_end=true", f"output.directory={tmp_path / 'end'}")
    whole = run(text, kept, *at_end)
    saved = load_file(kept / f"step-{STEPS:08d}" / shard_name(0))
    assert all(is_adapter(name) for name in saved if name.startswith("model/"))

    with join_world("cpu", 60.0) as world:
        source, target = CheckpointDirectory(kept), tmp_path / "exported"
        found = find_newest(world, source)
        assert found is not None
        recipe = parse_recipe("", [*SETTINGS, *CHANGES])
        options = {"recipe": recipe, "run": "r", "progress": unwatched}
        export_checkpoint(world, source, found, target, **options)  # type: ignore[arg-type]
    end, exported = (load_file(one / SINGLE_FILE) for one in (tmp_path / "end", target))
    assert end.keys() == exported.keys()
    assert all(torch.equal(one, exported[name]) for name, one in end.items())

    forget(kept, STEPS)
    again = run(text, kept, *CHANGES)
    assert again.losses == whole.losses[-EVERY:]
    forget(kept, STEPS)
    beside_whole = run(text, kept, *CHANGES, "adapters.quantize_base=none")
    assert beside_whole.losses == pytest.approx(again.losses, rel=0.05)
    assert beside_whole.losses != again.losses
