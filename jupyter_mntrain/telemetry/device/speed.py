"""Device speed: a program that measures how fast a rank's device is, and prints it as JSON.

The agent runs it in the Python of its jobs, as many at once as a job has ranks on the node, with
the variables that torchrun and mntrain set for ranks. It prints :data:`READY` once it has
loaded, begins when it reads a line, with the seconds that it may take, and prints two lines per
dtype: :data:`BEGINS` with the dtype, and one :class:`DeviceMeasurement` as soon as it is done.

Usage: ``python -m jupyter_mntrain.telemetry.device.speed cpu|cuda DTYPE …``
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module

import msgspec
import torch

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.records.plan import CodecSpeed, DeviceMeasurement, MeasuredLayer
from jupyter_mntrain.telemetry.device import BEGINS, READY
from jupyter_mntrain.telemetry.device.gemm import SMALL, device_name, gpu_uuid, square_product
from jupyter_mntrain.telemetry.device.layer_times import Layer, LayerSize
from jupyter_mntrain.telemetry.device.other_work import OtherGpuWork, OtherWork
from jupyter_mntrain.telemetry.device.work_timer import LEAST_ROUNDS, WorkTimer
from jupyter_mntrain.telemetry.gpus import GpuReader

PIECE_S = tunables.seconds("devices.piece_s")
LONGEST_ROUND_S = tunables.seconds("devices.longest_round_s")
LAYERS_S = tunables.seconds("devices.layers_s")

_WIDTHS = {"cpu": (256, 1024), "cuda": (1024, 4096)}
_TOKENS = {"cpu": (32, 256, 1024), "cuda": (128, 1024, 4096)}
_COPIED_BYTES = {"cpu": 64 << 20, "cuda": 1 << 30}
"""More bytes than fit into caches."""

_MESSAGE = {"cpu": (1024, 1024), "cuda": (4096, 4096)}
"""Tokens and width of the activations that are compressed."""

CODEC = "jupyter_mntrain.train.pipeline.transfers"
"""The trainer's codec. It is loaded by name, as this room knows nothing of the trainer's."""

_OPERATIONS = 100
_MORE = 6
"""The next size is at most this much slower: four times the tokens, or the width."""

_LAYERS_SHARE = 0.7
"""Share of the time for a dtype that layers get."""


def measure(
    device: torch.device, dtype: torch.dtype, seconds: float = math.inf
) -> DeviceMeasurement:
    """Measure one dtype.

    Args:
        seconds: about the most that it takes.

    Raises:
        RuntimeError: the device cannot compute in it, or has not enough memory left.
    """
    is_gpu = device.type == "cuda"
    others = OtherGpuWork(gpu_uuid(device), GpuReader()) if is_gpu else OtherWork()
    timer = WorkTimer(device)
    product, flops = _product(device, dtype)
    product_s = timer.timed(product, seconds=PIECE_S).means_s[0]
    layers = tuple(_layers(timer, device, dtype, min(LAYERS_S, _LAYERS_SHARE * seconds)))
    codecs = tuple(_codecs(timer, device, dtype))
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
        codecs=tuple(one.faster(1 / stretch) for one in codecs),
        threads=torch.get_num_threads(),
        torch=str(torch.__version__),
        disturbed=others.words(),
    )


def _product(device: torch.device, dtype: torch.dtype) -> tuple[Callable[[], object], int]:
    """Return a large matrix product and its FLOPs.

    It is a small one on a CPU where a large one would take long, as without instructions for the
    dtype.
    """
    small, flops = square_product(device, dtype, SMALL)
    large, large_flops = square_product(device, dtype)
    small()
    begin_s = time.thread_time()
    small()
    is_slow = (time.thread_time() - begin_s) * large_flops / flops > PIECE_S
    return (small, flops) if device.type == "cpu" and is_slow else (large, large_flops)


def _layers(
    timer: WorkTimer, device: torch.device, dtype: torch.dtype, seconds: float
) -> Iterator[MeasuredLayer]:
    """Measure layers, the fastest first, skipping those that would take long on this device.

    More than is left of ``seconds`` is too long. The first one is always measured.
    """
    end_s = time.perf_counter() + seconds
    before: MeasuredLayer | None = None
    for width in _WIDTHS[device.type]:
        for tokens in _TOKENS[device.type]:
            if before is not None and end_s - time.perf_counter() < _once_s(before, width, tokens):
                break
            layer = Layer(LayerSize(width, tokens), device, dtype)
            if before is not None and end_s - time.perf_counter() < _rounds_s(layer):
                break
            before = _layer(timer, layer)
            yield before
            if _MORE * (before.forward_s + before.backward_s) > LONGEST_ROUND_S:
                break


def _once_s(before: MeasuredLayer, width: int, tokens: int) -> float:
    """Bound the time of one pass of a layer by that of a smaller one, which is less efficient."""
    larger = (width / before.hidden_size) ** 2 * tokens / before.tokens
    return larger * (before.forward_s + before.backward_s)


def _rounds_s(layer: Layer) -> float:
    """Estimate how long timing a layer takes, from one pass."""
    begin_s = time.perf_counter()
    layer.backward(layer.forward())
    return (1 + LEAST_ROUNDS) * (time.perf_counter() - begin_s)


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


def _codecs(timer: WorkTimer, device: torch.device, dtype: torch.dtype) -> Iterator[CodecSpeed]:
    """Measure how fast messages between stages are encoded and decoded, as the trainer does it."""
    try:
        codec = import_module(CODEC)
    except ImportError:  # it lacks what the trainer needs, and runs scripts alone
        return
    values = torch.randn(_MESSAGE[device.type], device=device).to(dtype)
    received = torch.empty_like(values)
    formats = dict.fromkeys(one for both in codec.FORMATS.values() for one in both)
    for form in (one for one in formats if one != "none"):
        message = codec.encode(values, form)

        def dither(form: str = form) -> torch.Tensor | None:
            made: torch.Tensor | None = codec.dither_of(values.shape, form, (0,), device)
            return made

        def encoding(form: str = form) -> None:
            codec.encode(values, form, dither(form))

        def decoding(form: str = form, message: torch.Tensor = message) -> None:
            codec.decode(message, form, received, dither(form))

        timed = timer.timed(encoding, decoding, seconds=PIECE_S / 4)
        yield CodecSpeed(form, *(values.nbytes / one for one in timed.means_s))


def _copying(timer: WorkTimer, device: torch.device) -> tuple[float, int]:
    """Return the seconds of reading and writing a large array once, and the bytes of both."""
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
    """Run the program; return the exit code: 0, even if the device lacks some of the dtypes."""
    device = torch.device(kind)
    if kind == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32, as recipes have it
    square_product(device, torch.float32)[0]()  # it has its threads, or its context
    print(READY, flush=True)  # noqa: T201
    told = sys.stdin.readline()
    if not told:
        return 1
    end_s = time.perf_counter() + float(told.strip() or "inf")  # by hand: Enter
    count = 0
    for place, name in enumerate(dtypes):
        print(f"{BEGINS}{name}", flush=True)  # noqa: T201
        seconds = (end_s - time.perf_counter()) / (len(dtypes) - place)
        try:
            one = measure(device, getattr(torch, name), seconds)
        except (RuntimeError, AttributeError) as error:
            print(f"{name}: {error}", file=sys.stderr)  # noqa: T201
            continue
        print(msgspec.json.encode(one).decode(), flush=True)  # noqa: T201
        count += 1
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
