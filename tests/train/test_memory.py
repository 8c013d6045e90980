from __future__ import annotations

import psutil
import torch

from jupyter_mntrain.train.memory import READ_INTERVAL_S, MemoryGauge


def test_memory_is_read_once_per_interval() -> None:
    now = [0.0]
    gauge = MemoryGauge(torch.device("cpu"), clock=lambda: now[0])
    first = gauge.bytes()
    assert 0 < first < psutil.virtual_memory().total

    ballast = torch.ones(16 << 20)  # 64 MiB, touched
    assert gauge.bytes() == first
    now[0] += READ_INTERVAL_S
    assert gauge.bytes() > first + ballast.nbytes // 2
