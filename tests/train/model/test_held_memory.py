"""What a rank will hold is said, and its node's memory checked, before the first step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.memory import CPU_OVERHEAD, memory_estimate
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.train.model import held_memory
from jupyter_mntrain.train.world import World
from tests.recipe.test_memory import built
from tests.wording import says

OFFLOAD = "memory.offload_activations=true"


def lines(
    monkeypatch: pytest.MonkeyPatch, device: str, *others: tuple[str, int], free: int = 1 << 40
) -> list[str]:
    """What rank 0 says, compared with ranks of (node, offloaded bytes)."""
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
    held_memory.refuse_full_host(recipe, config, world, [stage])
    assert agreed == [None]
    return [*held_memory.check_memory(recipe, config, layout, 0, world, [stage])]


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
    assert says("keep 3.0 GB in host memory, offloaded activations", caught.value.cause)
    assert says("and 3.0 GB are free", caught.value.cause)
    assert says('memory.checkpointing = "full"', caught.value.fix)


def test_what_replicas_keep_between_syncs_has_a_cause_and_a_fix_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apart = ["data_parallel.replicas=2", "data_parallel.sync_every=5"]
    recipe = parse_recipe("", ["model.preset=llama-tiny", *apart])
    _, _, module, stage = built("model.preset=llama-tiny")
    monkeypatch.setattr(held_memory, "gathered", lambda _, mine: [mine])
    monkeypatch.setattr(held_memory, "agree", lambda _, error: pytest.fail(str(error)))
    monkeypatch.setattr(held_memory, "_available_bytes", lambda: 1000)
    world = World(0, 0, 1, "hal", torch.device("cpu"))
    with pytest.raises(pytest.fail.Exception) as caught:
        held_memory.refuse_full_host(recipe, module.causal.config, world, [stage])
    said = str(caught.value)
    assert says("weights and momentum of the last sync (data_parallel.sync_every)", said)
    assert says("use adapters, or more stages in each replica", said)
    assert "offload" not in said
    assert "checkpointing" not in said


def test_nothing_is_asked_of_the_others_without_offloading(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = parse_recipe("", ["model.preset=llama-tiny"])
    monkeypatch.setattr(held_memory, "gathered", lambda *_: pytest.fail("asked"))
    _, shape, module, stage = built("model.preset=llama-tiny")
    world = SimpleNamespace(rank=3, device=torch.device("cpu"))
    config, layout = module.causal.config, lay_out(recipe, 1, 3)
    held_memory.refuse_full_host(recipe, config, world, [stage])  # type: ignore[arg-type]
    said = [*held_memory.check_memory(recipe, config, layout, 0, world, [stage])]  # type: ignore[arg-type]
    tensors = memory_estimate(shape, recipe, [stage])
    assert said == [f"rank 3 memory: {tensors}; besides, {CPU_OVERHEAD}"]
