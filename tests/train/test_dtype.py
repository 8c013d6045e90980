"""Dtypes that a GPU lacks, told before anything is read; no GPU here."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from jupyter_mntrain.model.environment import NODE_VARIABLE
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.train import parse_recipe
from jupyter_mntrain.train.prepare import prepare
from jupyter_mntrain.train.world import join_world
from tests.wording import says

NO_DATA = "data.source=/nowhere"
"""Refused only after the GPU was found to be good."""


def refusal(dtype: str) -> RecipeError:
    """What rank 0 of the node ``old`` says on a GPU."""
    recipe = parse_recipe("", [f"model.dtype={dtype}", NO_DATA])
    with join_world("cpu", 10) as world, pytest.raises(RecipeError) as refused:
        prepare(recipe, replace(world, device=torch.device("cuda", 0)))
    return refused.value


@pytest.mark.parametrize(
    ("name", "capability", "dtype", "is_refused"),
    [
        ("Tesla T4", (7, 5), "bfloat16", True),
        ("Tesla V100-SXM2-16GB", (7, 0), "bfloat16", True),
        ("Tesla T4", (7, 5), "float32", False),
        ("NVIDIA A100-SXM4-40GB", (8, 0), "bfloat16", False),
        ("NVIDIA GeForce RTX 5090", (12, 0), "bfloat16", False),
    ],
)
def test_bfloat16_on_a_gpu_without_it_is_one_line_with_node_gpu_and_fix(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    capability: tuple[int, int],
    dtype: str,
    is_refused: bool,
) -> None:
    monkeypatch.setenv(NODE_VARIABLE, "old")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: name)
    problem = refusal(dtype).problem
    assert problem.node == "old"
    if is_refused:
        assert says(f'model.dtype = "bfloat16": {name} has no bfloat16', problem.cause)
        assert f"{capability[0]}.{capability[1]}" in problem.cause
        assert says('use dtype = "float32"', problem.fix)
    else:
        assert "/nowhere" in problem.cause
