"""Measured peaks: how a GPU's products are timed. The CPU's are timed in the optimizer's tests."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from jupyter_mntrain.telemetry.device.gemm import gpu_duration


class Stream:
    """A GPU's queue: what was enqueued, and how long the GPU then works on it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.now_ms = 0.0

    def enqueue(self) -> None:
        self.calls.append("product")
        self.now_ms += 1.5

    def event(self, *, enable_timing: bool) -> Event:
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, stream: Stream) -> None:
        self.stream, self.at_ms = stream, -1.0

    def record(self) -> None:
        self.stream.calls.append("event")
        self.at_ms = self.stream.now_ms

    def synchronize(self) -> None:
        self.stream.calls.append("wait")

    def elapsed_time(self, end: Event) -> float:
        assert self.stream.calls[-1] == "wait", "the GPU has not come that far"
        return end.at_ms - self.at_ms


def test_a_gpu_works_on_ten_products_before_anybody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream()
    monkeypatch.setattr(torch.cuda, "Event", stream.event)
    assert gpu_duration(stream.enqueue) == pytest.approx(0.0015)
    assert stream.calls == ["event", *["product"] * 10, "event", "wait"]


SETTINGS = {
    "": "data sheet, float32",
    "torch.set_float32_matmul_precision('high')": "data sheet, TF32",
    "torch.backends.cuda.matmul.allow_tf32 = True": "data sheet, TF32",
    # After these, torch's older names raise an error when they are read.
    "torch.backends.fp32_precision = 'tf32'": "data sheet, TF32",
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'": "data sheet, TF32",
}

PEAK = f"""
import os
import torch
from jupyter_mntrain.telemetry.device import gemm
gemm.device_name = lambda _: "NVIDIA A100-SXM4-80GB"
for setting in {[*SETTINGS]!r}:
    if not os.fork():  # it cannot be undone
        exec(setting)
        print(gemm.device_peak(torch.device("cuda"), torch.float32).source, flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.slow
def test_the_peak_is_that_of_tf32_however_a_library_allows_it() -> None:
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [*SETTINGS.values()], done.stderr
