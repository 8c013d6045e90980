"""Measured peak: FLOPs per second of a matrix product, for devices without a data sheet."""

from __future__ import annotations

import time

import torch

from jupyter_mntrain.model import tunables
from jupyter_mntrain.telemetry.gpus import GpuReader
from jupyter_mntrain.telemetry.other_gpu_work import OtherGpuWork
from jupyter_mntrain.telemetry.other_work import OtherWork
from jupyter_mntrain.telemetry.peaks import Peak, known_peak
from jupyter_mntrain.telemetry.progress import ProgressWriter, Tally, unwatched

MEASURE_S = tunables.seconds("telemetry.peak_measure_s")

_SIZES = {"cpu": 1024, "cuda": 4096}
"""Matrices this wide keep the device busy and out of its caches."""


def device_name(device: torch.device) -> str:
    """Name of a GPU as its driver spells it; ``cpu`` for a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def gpu_uuid(device: torch.device) -> str:
    """A GPU's id as NVML writes it."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def device_peak(
    device: torch.device, dtype: torch.dtype, progress: ProgressWriter = unwatched
) -> Peak | None:
    """Peak FLOPs per second of ``device``, from the table or measured; ``None`` if neither works.

    All ranks of a node should call this at the same time: they will also train at the same time.
    """
    name = str(dtype).removeprefix("torch.")
    if device.type == "cuda":
        known = known_peak(device_name(device), name)
        if known is not None:
            return known
    # Half a second, but a device that has to wake up first takes longer.
    tally = Tally(progress, "measuring the device")
    is_gpu = device.type == "cuda"
    others = OtherGpuWork(gpu_uuid(device), GpuReader()) if is_gpu else OtherWork()
    try:
        flops_per_s = measured_gemm(device, dtype)
        disturbed = others.words()
    except RuntimeError:  # the device has no product in this dtype, or no memory left for it
        return None
    finally:
        tally.end()
    threads = torch.get_num_threads()
    on = "" if is_gpu else f"{threads} thread{'' if threads == 1 else 's'}"
    source = ", ".join(filter(None, (f"measured GEMM, {name}", on, disturbed)))
    return Peak(flops_per_s=flops_per_s, source=source)


def measured_gemm(
    device: torch.device, dtype: torch.dtype, *, size: int | None = None, seconds: float = MEASURE_S
) -> float:
    """FLOPs per second of the fastest of several products of two square matrices."""
    size = _SIZES[device.type] if size is None else size
    # Of its own: a run that goes on has just been given back where its random numbers stood.
    generator = torch.Generator(device).manual_seed(0)
    left, right = (
        torch.randn(size, size, device=device, dtype=dtype, generator=generator) for _ in range(2)
    )
    out = torch.empty_like(left)
    best = float("inf")
    _product(left, right, out)
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        best = min(best, _product(left, right, out))
    return 2 * size**3 / best


def _product(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> float:
    begin = time.perf_counter()
    torch.mm(left, right, out=out)
    if out.is_cuda:
        torch.cuda.synchronize(out.device)
    return time.perf_counter() - begin
