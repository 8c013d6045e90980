"""What a rank will hold is said, and its node's memory checked, before the first step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.memory import memory_estimate
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.train.model import held_memory
from jupyter_mntrain.train.world import World
from tests.recipe.test_memory import built
from tests.wording import says

OFFLOAD = "memory.offload_activations=true"


def lines(
    monkeypatch: pytest.MonkeyPatch, device: str, *others: tuple[str, int], free: int = 1 << 40
) -> list[str]:
    """What rank 0 says, beside ranks of (node, offloaded bytes)."""
    recipe, _, module, stage = built("model.preset=llama-tiny", OFFLOAD, "train.device=auto")
    stage = msgspec.structs.replace(stage, offloads=device == "cuda", in_flight=2)
    world = World(0, 0, 1, "hal", torch.device(device))
    agreed: list[Any] = []

    def agree(world: World, error: RecipeError | None) -> None:
        agreed.append(error)
        if error is not None:
            raise error

    monkeypatch.setattr(held_memory, "gathered", lambda _, mine: [mine, *others])
    monkeypatch.setattr(held_memory, "agree", agree)
    monkeypatch.setattr(held_memory, "_available_bytes", lambda: free)
    config, layout = module.causal.config, lay_out(recipe, 1, 3)
    said = [*held_memory.check_memory(recipe, config, layout, 0, world, [stage])]
    assert agreed == [None]
    return said


def test_cuda_and_its_allocator_are_said_on_a_gpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    (on_gpu,) = lines(monkeypatch, "cuda")
    assert " on the host; besides, CUDA 500.0 MB + reserve " in on_gpu
    on_cpu, nothing = lines(monkeypatch, "cpu")
    assert "CUDA" not in on_cpu
    assert " on the host" not in on_cpu
    assert says("nothing to offload", nothing)


def test_a_node_without_room_for_what_its_ranks_offload_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enough = 3_000_000_000
    lines(monkeypatch, "cuda", ("hal", 2_000_000_000), ("wopr", 1 << 50), free=enough)
    with pytest.raises(RecipeError) as caught:
        lines(monkeypatch, "cuda", ("hal", enough), free=enough)
    assert says("3.0 GB to host memory, and 3.0 GB are free", caught.value.cause)
    assert says('memory.checkpointing = "full"', caught.value.fix)


def test_nothing_is_asked_of_the_others_without_offloading(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = parse_recipe("", ["model.preset=llama-tiny"])
    monkeypatch.setattr(held_memory, "gathered", lambda *_: pytest.fail("asked"))
    _, shape, module, stage = built("model.preset=llama-tiny")
    world = SimpleNamespace(rank=3, device=torch.device("cpu"))
    config, layout = module.causal.config, lay_out(recipe, 1, 3)
    said = [*held_memory.check_memory(recipe, config, layout, 0, world, [stage])]  # type: ignore[arg-type]
    assert said == [f"rank 3 memory: {memory_estimate(shape, recipe, [stage])}"]
