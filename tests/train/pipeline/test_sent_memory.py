"""What torch's runtime holds of the tensors it has sent, and what the memory estimate says."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from jupyter_mntrain.recipe.memory import forecast, model_config
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.train.model.stages import Stage
from tests.train import forked
from tests.train.pipeline.test_replicas import BASE, sets
from tests.train.ranks import run_ranks
from tests.train.test_command import write_text

SAID = "most bytes held of what was sent: "


def train_and_tell(words: list[str]) -> None:
    """The trainer; prints the most bytes that were alive at once of what training has sent."""
    sizes: dict[int, int] = {}
    most = 0

    def watched(of: Any) -> Any:
        def operations(stage: Stage, microbatch: int) -> Any:
            nonlocal most
            found = of(stage, microbatch)
            for one in found if stage.has_backward else ():
                storage = one.tensor.untyped_storage()
                key = storage.data_ptr()
                sizes[key] = storage.nbytes()
                weakref.finalize(one.tensor, sizes.pop, key, None)
            most = max(most, sum(sizes.values()))
            return found

        return operations

    names = ("get_fwd_send_ops", "get_bwd_send_ops")
    first, second = (patch.object(Stage, name, watched(getattr(Stage, name))) for name in names)
    with first, second:
        try:
            forked.train(words)
        finally:
            print(f"{SAID}{most}", flush=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schedule", "transfer"),
    [
        *((one, "none") for one in ("eager-1f1b", "eager-zero-bubble", "1f1b", "gpipe")),
        ("interleaved-1f1b", "none"),
        ("eager-1f1b", '["int8-int4"]'),
        ("1f1b", '["int4"]'),
    ],
)
def test_the_estimate_counts_what_the_runtime_holds(
    tmp_path: Path, schedule: str, transfer: str
) -> None:
    changes = [
        *(*BASE, f"data.source={write_text(tmp_path / 'text')}", "train.steps=1"),
        *("pipeline.microbatches=6", f"pipeline.schedule={schedule}", "model.layers=4"),
        *("evaluation.interval_steps=0", "output.at_end=false", f"pipeline.transfer={transfer}"),
    ]
    (tmp_path / "recipe.toml").write_text("")
    ended = run_ranks(tmp_path / "recipe.toml", ["a", "b"], *sets(changes), program=train_and_tell)
    assert [one.exit_code for one in ended] == [0, 0], ended
    recipe = parse_recipe("", changes)
    estimates = forecast(recipe, model_config(recipe), 2)
    for one, estimate in zip(ended, estimates, strict=True):
        line = next(line for line in one.out.splitlines() if line.startswith(SAID))
        assert estimate.sent == int(line.removeprefix(SAID))
