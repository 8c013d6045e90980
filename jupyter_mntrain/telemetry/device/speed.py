"""Device speed: a program that measures what its device does for a rank, and prints it as JSON.

The agent runs it in the Python of its jobs, as many at once as a job has ranks on the node, with
the variables that torchrun and mntrain set for ranks. It prints :data:`READY` once it has
loaded, begins when it reads a line, and prints one :class:`DeviceMeasurement` per dtype and line.

Usage: ``python -m jupyter_mntrain.telemetry.device.speed cpu|cuda DTYPE …``
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import msgspec
import torch

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.records.plan import DeviceMeasurement, MeasuredLayer
from jupyter_mntrain.telemetry.device import READY
from jupyter_mntrain.telemetry.device.gemm import device_name, gpu_uuid, square_product
from jupyter_mntrain.telemetry.device.layer_times import Layer, LayerSize
from jupyter_mntrain.telemetry.device.other_work import OtherGpuWork, OtherWork
from jupyter_mntrain.telemetry.device.work_timer import WorkTimer
from jupyter_mntrain.telemetry.gpus import GpuReader

PIECE_S = tunables.seconds("devices.piece_s")
LONGEST_ROUND_S = tunables.seconds("devices.longest_round_s")
LAYERS_S = tunables.seconds("devices.layers_s")

_WIDTHS = {"cpu": (256, 1024), "cuda": (1024, 4096)}
_TOKENS = {"cpu": (32, 256, 1024), "cuda": (128, 1024, 4096)}
_COPIED_BYTES = {"cpu": 64 << 20, "cuda": 1 << 30}
"""More than caches hold."""

_OPERATIONS = 100
_MORE = 6
"""The next size is at most this much slower: four times the tokens, or the width."""


def measure(device: torch.device, dtype: torch.dtype) -> DeviceMeasurement:
    """Measure one dtype.

    Raises:
        RuntimeError: the device cannot compute in it, or has not enough memory left.
    """
    is_gpu = device.type == "cuda"
    others = OtherGpuWork(gpu_uuid(device), GpuReader()) if is_gpu else OtherWork()
    timer = WorkTimer(device)
    product, flops = square_product(device, dtype)
    product_s = timer.timed(product, seconds=PIECE_S).means_s[0]
    layers = tuple(_layers(timer, device, dtype))
    copy_s, copied = _copying(timer, device)
    operation_s = _operation_s(timer, device)
    stretch = timer.stretch()
    return DeviceMeasurement(
        gpu=None,
        device=device_name(device),
        uuid=gpu_uuid(device) if is_gpu else "",
        dtype=str(dtype).removeprefix("torch."),
        time_s=time.time(),
        flops_per_s=flops / product_s / stretch,
        bytes_per_s=copied / copy_s / stretch,
        operation_s=operation_s * stretch,
        layers=tuple(_stretched(one, stretch) for one in layers),
        threads=torch.get_num_threads(),
        torch=str(torch.__version__),
        disturbed=others.words(),
    )


def _layers(timer: WorkTimer, device: torch.device, dtype: torch.dtype) -> Iterator[MeasuredLayer]:
    """Measure layers, the fast ones first, and none that would take long on this device; none more
    once they have taken :data:`LAYERS_S`, on a machine that is busy with something else.
    """
    begun_s = time.perf_counter()
    for width in _WIDTHS[device.type]:
        for tokens in _TOKENS[device.type]:
            size = LayerSize(width, tokens)
            one = _layer(timer, Layer(size, device, dtype))
            yield one
            if time.perf_counter() - begun_s > LAYERS_S:
                return
            if _MORE * (one.forward_s + one.backward_s) > LONGEST_ROUND_S:
                break


def _layer(timer: WorkTimer, layer: Layer) -> MeasuredLayer:
    outputs: list[torch.Tensor] = []
    passes = timer.timed(
        lambda: outputs.append(layer.forward()),
        lambda: layer.backward(outputs.pop()),
        seconds=PIECE_S,
    )
    product_s = timer.timed(layer.product(), seconds=PIECE_S / 4).means_s[0]
    forward_s, backward_s = passes.means_s
    return MeasuredLayer(
        hidden_size=layer.size.hidden,
        intermediate_size=layer.size.intermediate,
        tokens=layer.size.tokens,
        forward_s=forward_s,
        backward_s=backward_s,
        product_flops_per_s=layer.product_flops / product_s,
        variation=passes.variation,
    )


def _stretched(layer: MeasuredLayer, stretch: float) -> MeasuredLayer:
    return msgspec.structs.replace(
        layer,
        forward_s=layer.forward_s * stretch,
        backward_s=layer.backward_s * stretch,
        product_flops_per_s=layer.product_flops_per_s / stretch,
    )


def _copying(timer: WorkTimer, device: torch.device) -> tuple[float, int]:
    """Seconds of reading and writing a large array once, and the bytes of both."""
    source = torch.zeros(_COPIED_BYTES[device.type] // 4, device=device)
    target = torch.empty_like(source)
    copying = timer.timed(lambda: torch.add(source, 1.0, out=target), seconds=PIECE_S)
    return copying.means_s[0], 2 * source.nbytes


def _operation_s(timer: WorkTimer, device: torch.device) -> float:
    few = torch.zeros(8, device=device)

    def operations() -> None:
        for _ in range(_OPERATIONS):
            torch.add(few, 1.0)

    return timer.timed(operations, seconds=PIECE_S / 4).means_s[0] / _OPERATIONS


def main(kind: str, *dtypes: str) -> int:
    """Run the program. Returns the exit code: 0 also where the device lacks some of the dtypes."""
    device = torch.device(kind)
    if kind == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32, as recipes have it
    square_product(device, torch.float32)[0]()  # it has its threads, or its context
    print(READY, flush=True)  # noqa: T201
    if not sys.stdin.readline():
        return 1
    measured = []
    for name in dtypes:
        try:
            measured.append(measure(device, getattr(torch, name)))
        except (RuntimeError, AttributeError) as error:
            print(f"{name}: {error}", file=sys.stderr)  # noqa: T201
    for one in measured:
        print(msgspec.json.encode(one).decode(), flush=True)  # noqa: T201
    return 0 if measured else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
