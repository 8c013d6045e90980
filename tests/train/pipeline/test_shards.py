"""Sharded weights between processes: what is exchanged, and that waiting for it is no computing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.layout import lay_out, make_grid
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.train.model import sharding, stages
from jupyter_mntrain.train.model.decoder import read_config
from jupyter_mntrain.train.model.stages import build_modules
from jupyter_mntrain.train.pipeline.pipeline import Pipeline
from jupyter_mntrain.train.pipeline.stopwatch import StageMeter, Stopwatch
from jupyter_mntrain.train.world import form_groups, join_world
from tests.train.equality_cases import VOCABULARY
from tests.train.ranks import run_ranks
from tests.train.reference import batches_of
from tests.wording import says

SETTINGS = (
    *("model.preset=llama-tiny", f"data.vocabulary_size={VOCABULARY}", "data.sequence_length=16"),
    *("train.batch_size=12", "train.device=cpu", "report.to=[]", "pipeline.microbatches=2"),
)


class Exchanges(Stopwatch):
    """A clock that stands still except for exchanges of shards, a second each."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.count = 0
        self.mark = lambda: float(self.count)  # type: ignore[method-assign]
        self._exchange = sharding._exchange
        sharding._exchange = self._counted

    def _counted(self, *arguments: Any) -> None:
        self._exchange(*arguments)
        self.count += 1


def _scatter_and_gather(_: list[str]) -> None:
    with join_world("cpu", 60.0) as world:
        group = dist.group.WORLD
        assert group is not None
        count, mine = world.size, world.rank
        meter = StageMeter(Stopwatch(world.device))
        for dtype in (torch.float32, torch.bfloat16):
            whole = torch.arange(5 * count).to(dtype)
            found = torch.empty_like(whole)
            sharding.RingGather()(found, whole.view(count, -1)[mine].clone(), group)
            assert torch.equal(found, whole)
            for operation, times in (
                (dist.ReduceOp.SUM, sum(range(1, count + 1))),
                (dist.ReduceOp.AVG, (count + 1) / 2),
            ):
                part = torch.empty(5, dtype=dtype)
                sharding.DirectScatter(meter)(part, whole * (mine + 1), group, operation)
                assert torch.equal(part, whole.view(count, -1)[mine] * times)


def _compute(words: list[str]) -> None:
    recipe = parse_recipe("", [*SETTINGS, *words[1:]])
    with join_world("cpu", 60.0) as world:
        config, grid = read_config(recipe.model, VOCABULARY), make_grid(recipe, world.size)
        layout = lay_out(recipe, world.size, config.num_hidden_layers)
        modules = build_modules(recipe, config, layout, grid.place_of(world.rank), world.device)
        clock = Exchanges()
        meter = StageMeter(clock)
        groups = form_groups(world, recipe, grid, layout)
        pipeline = Pipeline(recipe, config, layout, groups, modules, meter)
        pipeline.measure()
        for batch in itertools.islice(batches_of(recipe), 2):
            before = clock.count
            meter.reset()
            pipeline.forward_backward(batch)
            gathers = config.num_hidden_layers // layout.world_size + 1
            assert clock.count - before >= 2 * gathers
            taken = meter.take()
            assert len(taken.left_out) >= gathers
            assert clock.total(taken.timed) > 0, "they are made within passes"
            assert taken.compute_s(clock) == 0


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_rank_has_all_weights_and_its_sum_of_gradients(tmp_path: Path, ranks: int) -> None:
    _all_ended(run_ranks(tmp_path / "none", ["a"] * ranks, program=_scatter_and_gather))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "settings"),
    [
        (2, ("data_parallel.shards=2",)),
        (2, ("data_parallel.shards=2", "memory.checkpointing=full")),
        (2, ("data_parallel.shards=2", "data_parallel.reshard_after_forward=true")),
        (4, ("data_parallel.shards=2", "pipeline.schedule=1f1b")),
    ],
)
def test_exchanging_weights_and_gradients_is_no_computing(
    tmp_path: Path, ranks: int, settings: Sequence[str]
) -> None:
    _all_ended(run_ranks(tmp_path / "none", ["a"] * ranks, *settings, program=_compute))


def test_an_fsdp_that_does_not_let_gloo_be_replaced_is_refused() -> None:
    class Older(FSDPModule):
        set_custom_all_gather = None  # type: ignore[assignment]

        def __new__(cls) -> Any:
            return object.__new__(cls)

    with pytest.raises(RecipeError) as refused:
        sharding._exchange_by_hand(Older(), StageMeter(Stopwatch(torch.device("cpu"))))
    assert says("has no set_custom_all_gather", str(refused.value))


def test_a_torch_without_the_backward_pass_of_a_stage_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("torch.distributed.pipelining._backward.stage_backward")
    with pytest.raises(RecipeError) as refused:
        stages._stage_backward()
    assert says("reshard_after_forward = true", str(refused.value))


def _all_ended(ended: Sequence[Any]) -> None:
    assert [one.exit_code for one in ended] == [0] * len(ended), ended[0].err[-3000:]
