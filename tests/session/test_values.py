"""Values of variables, as sessions send them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.session import Value
from jupyter_mntrain.session import values
from jupyter_mntrain.session.values import packed, unpacked


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(6).reshape(2, 3),
        torch.rand(3, 4).t(),
        torch.rand(2, requires_grad=True),
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.bool),
        torch.empty(0, 4),
        torch.tensor(1.5),
        np.arange(6.0).reshape(2, 3),
        np.arange(3, dtype=">i4"),
        np.float32(2.5),
    ],
    ids=lambda one: f"{type(one).__name__}-{one.dtype}-{tuple(np.shape(one))}",
)
def test_an_array_arrives_as_it_was(value: Any) -> None:
    arrived = unpacked(packed(value, "x"))
    assert tuple(arrived.shape) == tuple(
        np.shape(value.detach() if torch.is_tensor(value) else value)
    )
    if torch.is_tensor(value):
        assert arrived.dtype == value.dtype
        assert torch.equal(arrived, value.detach())
    else:
        assert np.array_equal(arrived, value)


@pytest.mark.parametrize("value", [None, 3, 2.5, "ü", [1, "a", None], {"a": {"b": [True]}}])
def test_what_json_can_say_arrives_as_it_was(value: object) -> None:
    assert unpacked(packed(value, "x")) == value


@pytest.mark.parametrize(
    "value", [object(), {1: 2}, (1, 2), {3}, float("nan"), lambda: 1, np.array([object()])]
)
def test_what_would_arrive_as_something_else_is_refused(value: object) -> None:
    with pytest.raises(SpecError):
        packed(value, "x")


def test_what_is_too_large_is_refused_with_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "LARGEST_FRAME", values.ROOM_BYTES + 8)
    assert packed(torch.zeros(2), "x").data
    with pytest.raises(SpecError):
        packed(torch.zeros(3), "x")


@pytest.mark.parametrize(
    "value",
    [
        Value("torch", b"123", "float32", (1,)),
        Value("torch", b"1234", "float32", (2,)),
        Value("torch", b"1234", "load", (1,)),
        Value("torch", b"1234", "no_such", (1,)),
        Value("numpy", b"1234", "O", (1,)),
        Value("numpy", b"1234", "<f4", (3,)),
        Value("json", b"{"),
    ],
    ids=msgspec.structs.astuple,
)
def test_what_does_not_fit_is_one_error(value: Value) -> None:
    with pytest.raises(SpecError):
        unpacked(value)
