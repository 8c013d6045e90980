"""Gradients of bfloat16 weights, summed in float32."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import OptimizerSection
from jupyter_mntrain.telemetry.recorder import Recorder
from jupyter_mntrain.train import loop
from jupyter_mntrain.train.optimizer import algorithms
from jupyter_mntrain.train.optimizer.optimizer import Optimizer
from jupyter_mntrain.train.world import join_world
from tests.train.checkpoint.saved import SETTINGS
from tests.train.ranks import run_ranks
from tests.train.test_command import losses, read, write_text
from tests.wording import wording

BFLOAT16, WIDE = "model.dtype=bfloat16", "optimizer.grad_dtype=float32"

pytestmark = pytest.mark.skipif(
    not hasattr(torch.Tensor, "grad_dtype"), reason="torch is older than 2.10"
)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "text")


def error(text: Path, *fields: str) -> float:
    """Largest relative error of the sums over 64 microbatches of the same gradients."""
    fields = ("train.batch_size=64", "train.accumulation=8", "pipeline.microbatches=8", *fields)
    recipe = parse_recipe("", [f"data.source={text}", *SETTINGS, BFLOAT16, *fields])
    exact: defaultdict[str, torch.Tensor | float] = defaultdict(float)
    with Recorder() as recorder, join_world("cpu", 60) as world:
        trainer = loop.Trainer(recipe, world, recorder)
        weights = trainer.pipeline.parameters()
        for name, one in weights.items():

            def add(gradient: torch.Tensor, name: str = name) -> None:
                exact[name] = exact[name] + gradient.double()

            one.register_hook(add)
        trainer.pipeline.forward_backward(trainer.batches.batch(0))
    found = 0.0
    for name, one in weights.items():
        assert one.grad is not None
        assert one.dtype == torch.bfloat16
        expected = torch.as_tensor(exact[name])
        found = max(found, float((one.grad.double() - expected).norm() / expected.norm()))
    return found


def test_a_sum_over_many_microbatches_is_that_of_float32(text: Path) -> None:
    narrow, wide = error(text), error(text, WIDE)
    assert wide < 1e-6
    assert narrow > 1e-3


@pytest.mark.parametrize("precision", ["plain", "float32-master", "stochastic-rounding"])
@pytest.mark.parametrize("more", [(), ("memory.fused_backward=true",)])
def test_the_same_gradients_make_the_same_update(precision: str, more: tuple[str, ...]) -> None:
    def updated(*fields: str) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        weights = {
            name: nn.Parameter(torch.randn(shape, generator=generator).bfloat16())
            for name, shape in (("a.weight", (32, 8)), ("b.weight", (16,)))
        }
        recipe = parse_recipe(
            "",
            [BFLOAT16, f"optimizer.precision={precision}", "optimizer.clip_norm=0", *more, *fields],
        )
        optimizer = Optimizer(recipe, weights, weights)
        for _ in range(3 * recipe.microbatches):
            for one in weights.values():
                (one * torch.randn(one.shape, generator=generator).bfloat16()).sum().backward()
                if not more:
                    # One that bfloat16 holds: it is cast without a loss.
                    assert one.grad is not None
                    one.grad.copy_(one.grad.bfloat16())
            optimizer.update(torch.tensor(1.0))
            assert more or all(one.grad is None for one in weights.values())
        return {**weights, **optimizer.state()}

    fields = ("pipeline.microbatches=1",)
    narrow, wide = updated(*fields), updated(*fields, WIDE)
    for name, one in narrow.items():
        assert one.equal(wide[name]), name


@pytest.mark.slow
def test_replicas_sum_them_in_float32(text: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("")
    settings = [f"data.source={text}", *SETTINGS, BFLOAT16, WIDE, "checkpoint.interval_steps=0"]
    several = [*settings, "data_parallel.replicas=2", "pipeline.microbatches=1"]
    for name, nodes, some in (("one", "a", settings), ("two", "ab", several)):
        options = [word for one in some for word in ("--set", one)]
        ended = run_ranks(recipe, nodes, *options, metrics=tmp_path / name)
        assert [one.exit_code for one in ended] == [0] * len(nodes), ended
    one, two = (losses(read(tmp_path / name, 0)) for name in ("one", "two"))
    assert two == pytest.approx(one, rel=1e-3)


def test_a_torch_without_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithms.refuse_missing_grad_dtype(OptimizerSection(grad_dtype="float32"))
    old = SimpleNamespace(Tensor=object, __version__="2.9.1")
    monkeypatch.setattr(algorithms, "torch", old)
    algorithms.refuse_missing_grad_dtype(OptimizerSection())
    with pytest.raises(RecipeError, match=wording(r"torch 2\.9\.1 .*\. Fix: install torch 2\.10")):
        algorithms.refuse_missing_grad_dtype(OptimizerSection(grad_dtype="float32"))
