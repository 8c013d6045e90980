from __future__ import annotations

import mmap

import psutil
import torch

from jupyter_mntrain.telemetry.memory import READ_INTERVAL_S, MemoryGauge


def test_memory_is_read_once_per_interval() -> None:
    now = [0.0]
    gauge = MemoryGauge(torch.device("cpu"), clock=lambda: now[0])
    first = gauge.bytes()
    assert 0 < first < psutil.virtual_memory().total

    # Mapped anew: what was freed before and is used again would be no more than before.
    size = 64 << 20
    ballast = mmap.mmap(-1, size)
    ballast.write(b"1" * size)
    assert gauge.bytes() == first
    now[0] += READ_INTERVAL_S
    assert gauge.bytes() > first + size // 2
