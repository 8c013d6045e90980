"""What shares a GPU while its peak is measured, with a stand-in of NVML."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from jupyter_mntrain.telemetry.device import gemm
from jupyter_mntrain.telemetry.device.other_work import ALONGSIDE, UNKNOWN, OtherGpuWork
from jupyter_mntrain.telemetry.gpus import GpuReader
from tests.standin.cards import Cards, install

ME, OTHER = os.getpid(), Cards.GONE


@pytest.mark.parametrize(
    ("pids", "utilization", "words"),
    [
        ((ME,), 0, ""),
        ((ME,), 90, ""),  # nobody else: that was this rank
        ((ME, OTHER), 90, ALONGSIDE),
        ((ME, OTHER), 5, ""),  # it holds memory and computes nothing
        ((ME, OTHER), None, UNKNOWN),
        ((OTHER,), 90, UNKNOWN),  # ids of another namespace: it may be this rank
        ((OTHER,), 5, ""),
        (None, 90, UNKNOWN),
        (None, 0, ""),
        (None, None, UNKNOWN),
    ],
)
def test_load_of_others_is_told_or_said_to_be_unknown(
    monkeypatch: pytest.MonkeyPatch,
    pids: tuple[int, ...] | None,
    utilization: int | None,
    words: str,
) -> None:
    install(monkeypatch, Cards(pids=pids, utilization=utilization))
    assert OtherGpuWork("GPU-1", GpuReader()).words() == words


def test_who_comes_during_the_measurement_disturbs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = Cards(pids=(ME,), utilization=0)
    install(monkeypatch, cards)
    work = OtherGpuWork("GPU-1", GpuReader())
    cards.pids = (ME, OTHER)
    assert work.words() == ALONGSIDE


def test_another_rank_of_the_job_is_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        install(monkeypatch, Cards(pids=(ME, rank.pid), utilization=90))
        assert OtherGpuWork("GPU-1", GpuReader()).words() == ALONGSIDE
        monkeypatch.setattr(os, "getppid", os.getpid)  # as if one torchrun had started both
        assert OtherGpuWork("GPU-1", GpuReader()).words() == ""
    finally:
        rank.communicate()


def test_a_gpu_that_nvml_does_not_know_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Cards())
    assert OtherGpuWork("GPU-2", GpuReader()).words() == UNKNOWN
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert OtherGpuWork("GPU-1", GpuReader()).words() == f"{UNKNOWN}, clocks unknown"


def test_the_peak_says_what_disturbed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Cards(pids=(ME, OTHER), throttle_reasons=0x20))
    monkeypatch.setattr(gemm, "device_name", lambda _: "a card without a data sheet")
    monkeypatch.setattr(gemm, "gpu_uuid", lambda _: "GPU-1")
    monkeypatch.setattr(gemm, "measured_gemm", lambda *_: 1e12)
    peak = gemm.device_peak(torch.device("cuda"), torch.bfloat16)
    assert peak is not None
    assert peak.source == (
        "measured GEMM, bfloat16, alongside other processes, clocks lowered by the hardware"
    )
