"""What ranks choose themselves where no launch has, told before anything is read; no GPU here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.model.environment import (
    CHECKPOINT_VARIABLE,
    GPU_MEMORY_VARIABLE,
    NODE_VARIABLE,
)
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.checkpoint import Manifest
from jupyter_mntrain.recipe.devices import Seat
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train import choosing, parse_recipe
from jupyter_mntrain.train.choosing import resolve_automatic
from jupyter_mntrain.train.own_tools import own_seat
from jupyter_mntrain.train.world import World, join_world
from tests.wording import says


@pytest.fixture(autouse=True)
def no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHECKPOINT_VARIABLE, raising=False)


@pytest.fixture
def precisions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How float32 matrices were asked to be multiplied; nothing of this process is changed."""
    asked: list[str] = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", asked.append)
    return asked


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretend that ranks have this GPU."""

    def put(name: str, capability: tuple[int, int], memory: int = 80 << 30) -> None:
        properties = SimpleNamespace(total_memory=memory)
        monkeypatch.setenv(NODE_VARIABLE, "old")
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: name)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)

    return put


def resolved_on_gpu(*settings: str, lines: list[str] | None = None, **how: Any) -> Recipe:
    """By rank 0 of the node ``old``, on a GPU."""
    said: list[str] = [] if lines is None else lines
    with join_world("cpu", 10) as world:
        there = replace(world, device=torch.device("cuda", 0))
        return resolve_automatic(
            parse_recipe("", settings), there, how.pop("chosen", None), say=said.append, **how
        )


@pytest.mark.parametrize(
    ("name", "capability", "dtype"),
    [
        ("Tesla T4", (7, 5), "float32"),
        ("Tesla V100-SXM2-16GB", (7, 0), "float32"),
        ("NVIDIA A100-SXM4-40GB", (8, 0), "bfloat16"),
        ("NVIDIA GeForce RTX 5090", (12, 0), "bfloat16"),
    ],
)
def test_without_a_launch_the_ranks_choose_by_their_cards(
    gpu: Any, precisions: list[str], name: str, capability: tuple[int, int], dtype: str
) -> None:
    gpu(name, capability)
    lines: list[str] = []
    recipe = resolved_on_gpu(lines=lines)
    assert recipe.model.dtype == dtype
    assert dtype in lines[0]
    assert precisions == ["high"]
    if dtype == "float32":
        with pytest.raises(RecipeError) as refused:
            resolved_on_gpu("model.dtype=bfloat16")
        problem = refused.value.problem
        assert problem.node == "old"
        assert says(f'model.dtype = "bfloat16": GPU 0, {name}, has no bfloat16', problem.cause)
        assert f"{capability[0]}.{capability[1]}" in problem.cause


def test_tf32_can_be_switched_off(gpu: Any, precisions: list[str]) -> None:
    gpu("H100", (9, 0))
    resolved_on_gpu("train.tf32=false")
    assert precisions == ["highest"]


def test_on_a_cpu_nothing_is_said_and_float32_stays(precisions: list[str]) -> None:
    lines: list[str] = []
    with join_world("cpu", 10) as world:
        recipe = resolve_automatic(parse_recipe(""), world, None, say=lines.append)
    assert (recipe.model.dtype, recipe.memory.compile) == ("float32", False)
    assert (lines, precisions) == ([], [])


def test_what_the_launch_chose_is_taken(gpu: Any, precisions: list[str]) -> None:
    gpu("H100", (9, 0))
    chosen = {"model.dtype": "float32", "memory.compile": "false"}
    assert resolved_on_gpu(chosen=chosen).model.dtype == "float32"


def test_all_ranks_choose_by_the_weakest_card(
    gpu: Any, precisions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu("H100", (9, 0))

    def all_of(_: World, mine: Any) -> list[Any]:
        return [mine, (Seat(node="other", gpu="GPU 0, T4", capability=(7, 5)), None)]

    monkeypatch.setattr(choosing, "gathered", all_of)
    lines: list[str] = []
    assert resolved_on_gpu(lines=lines).model.dtype == "float32"
    assert "other" in lines[0]


@pytest.mark.parametrize(
    ("saved", "dtype", "precision"),
    [
        ({}, "float32", "plain"),  # of a version to which nothing meant float32
        ({"model": {"dtype": "bfloat16"}}, "bfloat16", "float32-master"),
        (
            {"model": {"dtype": "bfloat16"}, "optimizer": {"precision": "stochastic-rounding"}},
            "bfloat16",
            "stochastic-rounding",
        ),
    ],
)
def test_a_checkpoints_dtype_stays_on_other_cards(
    gpu: Any, precisions: list[str], tmp_path: Path, saved: Any, dtype: str, precision: str
) -> None:
    directory = CheckpointDirectory(tmp_path)
    directory.begin(3)
    directory.publish(Manifest(3, 1, (), recipe=saved))
    gpu("H100", (9, 0))
    where = {CHECKPOINT_VARIABLE: str(tmp_path)}
    recipe = resolved_on_gpu(environment=where)
    assert (recipe.dtype, recipe.precision) == (dtype, precision)
    if dtype == "bfloat16":
        gpu("Tesla T4", (7, 5))
        with pytest.raises(RecipeError) as refused:
            resolved_on_gpu(environment=where)
        assert says("the run that is resumed has bfloat16 weights", refused.value.cause)


def test_a_rank_without_a_compiler_is_named_before_anything_is_read(tmp_path: Path) -> None:
    recipe = parse_recipe("", ["memory.compile=true"])
    with join_world("cpu", 10) as world, pytest.raises(RecipeError) as refused:
        resolve_automatic(recipe, world, None, environment={"PATH": str(tmp_path)}, say=print)
    assert refused.value.problem.node == world.host
    assert says("no C++ compiler", refused.value.cause)


def test_a_seat_has_what_is_lent_of_its_card(gpu: Any) -> None:
    gpu("H100", (9, 0))
    there = torch.device("cuda", 0)
    assert own_seat(there).memory_bytes == 80 << 30
    assert own_seat(there, environment={GPU_MEMORY_VARIABLE: "5"}).memory_bytes == 5
    assert (
        msgspec.json.decode(msgspec.json.encode(own_seat(torch.device("cpu"))), type=Seat).gpu
        is None
    )
