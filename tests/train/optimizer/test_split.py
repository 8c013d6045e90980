"""Split parameters: an optimizer of some rows does what one of all rows does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.train.model.sharding import rows_of_shard
from jupyter_mntrain.train.optimizer.algorithms import Split, rows_of_state
from jupyter_mntrain.train.optimizer.optimizer import Optimizer
from jupyter_mntrain.train.world import join_world
from tests.train.ranks import run_ranks

SHAPES = {"few": (7, 300), "matrix": (40, 256), "wide": (5, 1300), "norm": (9,), "one": (1,)}
"""``few``, ``norm`` and ``one`` leave a rank of three less than others, or nothing; of ``wide`` a
row is no whole number of blocks."""

STEPS = 4


def _weights(dtype: torch.dtype) -> dict[str, nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return {
        name: nn.Parameter((torch.randn(shape, generator=generator) * 0.1).to(dtype))
        for name, shape in SHAPES.items()
    }


def _give_gradients(weights: Mapping[str, nn.Parameter], rows: Mapping[str, slice]) -> None:
    generator = torch.Generator().manual_seed(2)
    for name, one in weights.items():
        whole = torch.randn(SHAPES[name], generator=generator)
        one.grad = whole[rows.get(name, slice(None))].to(one.dtype)


def _compare(words: list[str]) -> None:
    torch.compile = lambda function, **_: function  # torchao's, for half a minute of a core
    recipe = parse_recipe("", words[1:])
    dtype = torch.bfloat16 if recipe.model.dtype == "bfloat16" else torch.float32
    with join_world("cpu", 60.0) as world:
        group = dist.group.WORLD
        assert group is not None
        whole, source = _weights(dtype), _weights(dtype)
        rows = {
            name: rows_of_shard(len(one), world.rank, world.size) for name, one in whole.items()
        }
        parts = {
            name: nn.Parameter(one.detach()[slice(*rows[name])]) for name, one in source.items()
        }
        split = Split(group, rows, {name: len(one) for name, one in whole.items()})
        by_all = Optimizer(recipe, whole, whole)
        mine = Optimizer(recipe, parts, parts, split=split)
        for _ in range(STEPS):
            _give_gradients(whole, {})
            _give_gradients(parts, {name: slice(*some) for name, some in rows.items()})
            by_all.update(torch.ones(()))
            mine.update(torch.ones(()))
        for name, one in parts.items():
            torch.testing.assert_close(one, whole[name][slice(*rows[name])])
        states = by_all.state()
        for key, one in mine.state().items():
            kind, _, name = key.rpartition("/")
            some = rows_of_state(kind, one, parts[name], rows[name])
            if key in states:  # what is quantized whole is not where a row has a part of a block
                expected = states[key] if some is None else states[key][slice(*some)]
                torch.testing.assert_close(one, expected)
            else:
                assert name == "wide" or not one.numel()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["adamw", "adafactor", "adamw-8bit", "adamw-4bit"])
def test_some_rows_are_updated_as_all_are(tmp_path: Path, kind: str) -> None:
    settings = (f"optimizer.kind={kind}", "optimizer.learning_rate=0.01", "data_parallel.shards=3")
    ended = run_ranks(tmp_path / "none", ["a"] * 3, *settings, program=_compare)
    assert [one.err[-2000:] for one in ended if one.exit_code] == []
