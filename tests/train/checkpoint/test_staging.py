"""Staging: a save copies exact values, through buffers that are not used before they are free."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from jupyter_mntrain.train.checkpoint.saving import CudaTransfers, Staging, staging

BUFFER_BYTES = 48
STATE = {
    "whole buffers": torch.arange(36, dtype=torch.float32),
    "a bit more": torch.arange(100, dtype=torch.int64).to(torch.uint8),
    "small": torch.tensor(7.0),
    "none": torch.empty(0, 3),
    "bfloat16": torch.randn(9, 5, generator=torch.Generator().manual_seed(0)).bfloat16(),
    "transposed": torch.arange(35.0).view(5, 7).t(),
    "flags": torch.tensor([True, False, True]),
    "parameter": torch.nn.Parameter(torch.ones(3)),
}


class Late:
    """Transfers that happen when they are waited for, and no earlier: the least that CUDA promises.

    What a buffer holds until then is not what was asked for.
    """

    def __init__(self) -> None:
        self.made: list[torch.Tensor] = []
        self.waiting: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.most_waiting = 0

    def buffer(self, size: int) -> torch.Tensor:
        self.made.append(torch.zeros(size, dtype=torch.uint8))
        return self.made[-1]

    def begin(self, buffer: torch.Tensor, source: torch.Tensor) -> Any:
        places = [into.data_ptr() for into, _ in self.waiting]
        assert buffer.data_ptr() not in places, "it still waits for another piece"
        buffer.fill_(0xEE)
        self.waiting.append((buffer, source))
        self.most_waiting = max(self.most_waiting, len(self.waiting))
        return self.waiting[-1]

    def wait(self, begun: Any) -> None:
        # A stream works in order.
        assert begun is self.waiting.pop(0)
        buffer, source = begun
        buffer.copy_(source)


def test_every_value_is_copied_through_two_buffers_that_are_made_once() -> None:
    late = Late()
    copying = Staging(late, BUFFER_BYTES)
    for _ in range(2):
        found = copying.copies(STATE)
        assert [*found] == [*STATE]
        for name, copy in found.items():
            assert torch.equal(copy, STATE[name]), name
            assert copy.dtype == STATE[name].dtype
            assert copy.is_contiguous()
            assert not copy.requires_grad
        assert late.waiting == []
    assert [len(one) for one in late.made] == [BUFFER_BYTES] * 2
    assert late.most_waiting == 2


def test_what_is_changed_after_it_returns_is_not_saved() -> None:
    state = {name: one.detach().clone() for name, one in STATE.items()}
    found = Staging(Late(), BUFFER_BYTES).copies(state)
    direct = staging(torch.device("cpu")).copies(state)
    for one in state.values():
        one.zero_()
    for name, wanted in STATE.items():
        assert torch.equal(found[name], wanted)
        assert torch.equal(direct[name], wanted)


def test_without_memory_to_pin_it_is_copied_directly() -> None:
    class Full(Late):
        def buffer(self, size: int) -> torch.Tensor:
            raise RuntimeError("CUDA error: out of memory")

    found = Staging(Full(), BUFFER_BYTES).copies(STATE)
    assert all(torch.equal(copy, STATE[name]) for name, copy in found.items())


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is asked of CUDA."""
    said: list[Any] = []

    class Event:
        def record(self, stream: str) -> None:
            said.append(("record", stream))

        def synchronize(self) -> None:
            said.append("wait")

    copy = torch.Tensor.copy_

    def copied(self: torch.Tensor, other: torch.Tensor, **how: Any) -> torch.Tensor:
        said.append(how)
        return copy(self, other)

    def current_stream(device: torch.device) -> str:
        if device.type != "cuda":  # as torch does
            raise ValueError(f"Expected a cuda device, but got: {device}")
        return "the step's"

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    monkeypatch.setattr(torch.Tensor, "copy_", copied)
    return said


def test_on_a_gpu_an_event_follows_each_copy_on_the_stream_of_the_step(said: list[Any]) -> None:
    transfers = CudaTransfers()
    with FakeTensorMode():
        buffer, source = torch.zeros(3), torch.ones(3, device="cuda")
        transfers.wait(transfers.begin(buffer, source))
    assert said == [{"non_blocking": True}, ("record", "the step's"), "wait"]


def test_a_state_on_a_gpu_may_have_parts_on_the_host(said: list[Any]) -> None:
    transfers, buffer = CudaTransfers(), torch.zeros(3)
    transfers.wait(transfers.begin(buffer, torch.ones(3)))
    assert said == [{"non_blocking": True}]
    assert torch.equal(buffer, torch.ones(3))
