"""The optimizer's step on a GPU that is only pretended: torch's fake tensors."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses import FakeTensorMode

from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.train.optimizer import optimizer as made
from jupyter_mntrain.train.optimizer import precision
from jupyter_mntrain.train.optimizer.optimizer import Optimizer
from tests.train.no_reads import HostReadError, NoReads

NO_KERNELS = {
    "empty_like",
    "detach",
    "view",
    "_unsafe_view",
    "split",
    "empty",
    "alias",
    "unbind",
    "device",
}
PRECISIONS = {
    "float32": ("model.dtype=float32",),
    "plain": ("model.dtype=bfloat16", "optimizer.precision=plain"),
    "float32-master": ("model.dtype=bfloat16",),
}
ROUNDING = ("model.dtype=bfloat16", "optimizer.precision=stochastic-rounding")


def stepped(count: int, *fields: str) -> Counter[str]:
    """The operators of a whole step with so many weights."""
    recipe = parse_recipe("", fields)
    dtype = getattr(torch, recipe.dtype)
    with FakeTensorMode():
        shapes = [(8, 8), (8,)] * (count // 2)
        weights = {
            f"w{place}": nn.Parameter(torch.empty(shape, dtype=dtype, device="cuda"))
            for place, shape in enumerate(shapes)
        }
        optimizer = Optimizer(recipe, weights, weights)
        loss = torch.zeros((), device="cuda")
        for _ in range(2):
            for one in weights.values():
                one.grad = torch.empty_like(one)
            with NoReads() as mode:
                squares = optimizer.gradient_squares()
                _, norm, _ = optimizer.total(loss, squares, (0, 1, 0))
                optimizer.update(norm)
        assert all(one.device.type == "cuda" for one in optimizer.state().values())
    return Counter(one for one in mode.operations if one not in NO_KERNELS)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "all_reduce", lambda _: None)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_step_never_waits_and_takes_as_many_kernels_for_more_weights(precision: str) -> None:
    few, many = (stepped(count, *PRECISIONS[precision]) for count in (4, 40))
    assert few == many
    assert many["_fused_adamw_"] == 2, "one for matrices, one for vectors, which do not decay"
    casts = {"float32": 0, "plain": 0, "float32-master": 2}[precision]
    assert many["_foreach_copy_"] == casts


@pytest.mark.parametrize("precision", PRECISIONS)
def test_adafactor_never_waits_either(precision: str) -> None:
    few, many = (stepped(n, *PRECISIONS[precision], "optimizer.kind=adafactor") for n in (2, 20))
    assert 0 < many.total() <= 10 * few.total()


def test_float32_copies_exist_for_some_weights_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made, "UPDATED_AT_ONCE_BYTES", 4 * (64 + 8) * 5)
    assert stepped(40, *PRECISIONS["float32-master"])["_foreach_copy_"] == 2 * 4


def test_rounding_by_chance_is_one_kernel_for_each_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(precision, "can_compile_for_gpus", lambda: True)
    monkeypatch.setattr(precision, "_compiled_adamw", lambda: lambda *_, **__: calls.append(1))
    kernels = stepped(4, *ROUNDING)
    assert len(calls) == 4 * 2
    assert not kernels["_fused_adamw_"]
    assert not kernels["_foreach_copy_"]


@pytest.mark.parametrize("reading", ["item", "tolist", "cpu", "__float__", "__bool__"])
def test_whoever_reads_in_a_step_is_caught(reading: str) -> None:
    with NoReads(), pytest.raises(HostReadError, match="the host would wait"):
        getattr(torch.ones(()), reading)()


def test_a_tensor_made_from_a_number_is_caught() -> None:
    with FakeTensorMode(), NoReads(), pytest.raises(HostReadError, match="waits"):
        torch.tensor([1.0], device="cuda")
