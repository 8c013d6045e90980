from __future__ import annotations

import mmap

import psutil
import pytest
import torch

from jupyter_mntrain.telemetry.memory import READ_INTERVAL_S, MemoryGauge


def test_memory_is_read_once_per_interval() -> None:
    now = [0.0]
    gauge = MemoryGauge(torch.device("cpu"), clock=lambda: now[0])
    first = gauge.bytes()
    assert 0 < first < psutil.virtual_memory().total

    # Mapped again: what was freed before and is used again would be no more than before.
    size = 64 << 20
    ballast = mmap.mmap(-1, size)
    ballast.write(b"1" * size)
    assert gauge.bytes() == first
    now[0] += READ_INTERVAL_S
    assert gauge.bytes() > first + size // 2


def test_of_a_gpu_it_tells_what_is_allocated_and_what_its_allocator_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 5)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda _: 7)
    gauge = MemoryGauge(torch.device("cuda", 0))
    assert gauge.fields() == {"memory_bytes": 5, "reserved_bytes": 7}
    assert MemoryGauge(torch.device("cpu")).fields()["reserved_bytes"] is None
