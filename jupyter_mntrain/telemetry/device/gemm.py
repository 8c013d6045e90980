"""Measured peak: FLOPs per second of a matrix product, for devices that no data sheet covers."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from jupyter_mntrain.model import tunables
from jupyter_mntrain.telemetry.device.other_work import OtherGpuWork, OtherWork
from jupyter_mntrain.telemetry.device.peaks import Peak, given_peak, known_peak
from jupyter_mntrain.telemetry.gpus import GpuReader
from jupyter_mntrain.telemetry.progress import ProgressWriter, Tally, unwatched

MEASURE_S = tunables.seconds("telemetry.peak_measure_s")

_SIZES = {"cpu": 1024, "cuda": 8192}
"""Matrices this wide keep the device busy and out of its caches."""

SMALL = 256
"""Of a CPU that needs longer for one product of those than the measurement may take: without
instructions for bfloat16, 2 s."""

_PRODUCTS = 10
"""Products that a GPU is given at once: it never waits for the next."""


def device_name(device: torch.device) -> str:
    """Return the name of a GPU as its driver spells it; ``cpu`` for a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def gpu_uuid(device: torch.device) -> str:
    """Return a GPU's id as NVML writes it."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def device_peak(
    device: torch.device, dtype: torch.dtype, progress: ProgressWriter = unwatched
) -> Peak | None:
    """Return the peak FLOPs per second of ``device``; ``None`` if unknown.

    The user gives it, it is in the table, or it is measured.

    All ranks of a node should call this at the same time: they will also train at the same time.

    Raises:
        SpecError: the given one is not a number above 0.
    """
    if (given := given_peak()) is not None:
        return given
    name, tf32 = str(dtype).removeprefix("torch."), False
    if device.type == "cuda":
        # Not by get_float32_matmul_precision: that raises where a library has used the newer names.
        tf32 = torch.backends.cuda.matmul.fp32_precision == "tf32"
        known = known_peak(device_name(device), name, tf32=tf32)
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
    how = "TF32" if tf32 and dtype == torch.float32 else name
    source = ", ".join(filter(None, (f"measured GEMM, {how}", on, disturbed)))
    return Peak(flops_per_s=flops_per_s, source=source)


def measured_gemm(
    device: torch.device, dtype: torch.dtype, *, size: int | None = None, seconds: float = MEASURE_S
) -> float:
    """Measure the FLOPs per second of the fastest of several products of two square matrices.

    On a GPU: of the fastest of several series of products.
    """
    is_gpu = device.type == "cuda"
    duration = gpu_duration if is_gpu else _duration
    if size is None and not is_gpu:
        small, flops = square_product(device, dtype, SMALL)
        small()
        size = _SIZES["cpu"]
        if _duration(small) * (size / SMALL) ** 3 > seconds:
            size = SMALL
    product, flops = square_product(device, dtype, size)
    product()
    best = float("inf")
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        best = min(best, duration(product))
    return flops / best


def square_product(
    device: torch.device, dtype: torch.dtype, size: int | None = None
) -> tuple[Callable[[], object], int]:
    """Return a function that multiplies two square matrices, and the FLOPs that this takes."""
    size = _SIZES[device.type] if size is None else size
    # Of its own: a run that goes on has just been given back where its random numbers stood.
    generator = torch.Generator(device).manual_seed(0)
    left, right = (
        torch.randn(size, size, device=device, dtype=dtype, generator=generator) for _ in range(2)
    )
    out = torch.empty_like(left)
    return lambda: torch.mm(left, right, out=out), 2 * size**3


def gpu_duration(work: Callable[[], object], *, times: int = _PRODUCTS) -> float:
    """Return the mean duration in seconds of work that only enqueues GPU kernels.

    The GPU's own clock is read before the first and after the last of ``times``; waiting for each
    would add the launch of its kernel, and the way back.
    """
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    for _ in range(times):
        work()
    end.record()
    end.synchronize()
    milliseconds: float = begin.elapsed_time(end)
    return milliseconds / 1000 / times


def _duration(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
