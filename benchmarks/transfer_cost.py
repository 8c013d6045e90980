"""What encoding and decoding cost, as a share of a stage's time: at hidden size 768 on a CPU ≤ 8 %.

    python -m benchmarks.transfer_cost [--hidden 768] [--layers 4] [--repeats 5] [--json FILE]

A stage in the middle of a pipeline decodes its activations and encodes its own, and does so with
gradients on the way back. Both sides run in turn in one process, on a GPU if there is one (there
with --compile fused by torch), on a CPU with one thread, as a rank that has a core: the forward and
backward pass of a microbatch, and the four messages of it. Medians of milliseconds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, get_args

from jupyter_mntrain.recipe.transfers import FORMATS, Transfer, wire_bytes

WARM_UP = 2
"""The first ones allocate memory and compile."""
LIMITS = {"cpu": 0.08, "cuda": 0.03}
STAGES = 3


def main() -> int:
    import torch

    arguments = _arguments()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)
    stage = _stage(arguments, device)
    names = [one for one in get_args(Transfer) if one != "none"]
    sides = {"stage": stage} | {
        name: _messages(name, arguments, device) for name in names if arguments.only in (None, name)
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(WARM_UP + arguments.repeats):
        for name, run in sides.items():
            seconds = _timed(run, device)
            if repeat >= WARM_UP:
                times[name].append(seconds)
    medians = {name: median(some) for name, some in times.items()}
    limit, worst = LIMITS[device.type], 0.0
    tokens = arguments.sequences * arguments.length
    print(
        f"{device}, {arguments.dtype}, hidden size {arguments.hidden}, {arguments.layers} layers, "
        f"{tokens} tokens: a stage computes {medians['stage'] * 1e3:.1f} ms"
    )
    width = 4 if arguments.dtype == "float32" else 2
    for name in sides:
        if name == "stage":
            continue
        share = medians[name] / medians["stage"]
        worst = max(worst, share)
        sizes = [wire_bytes(one, tokens, arguments.hidden, width) for one in FORMATS[name]]
        print(
            f"{name:10} {medians[name] * 1e3:8.2f} ms, {share:6.2%} of the stage; "
            f"activations {sizes[0] / 1e6:.2f} MB, gradients {sizes[1] / 1e6:.2f} MB"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"device": str(device), "seconds": medians}))
    print(f"{worst:.2%} at most: limit {limit:.0%}")
    return int(worst > limit)


def _timed(run: Callable[[], object], device: Any) -> float:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def _stage(arguments: argparse.Namespace, device: Any) -> Callable[[], object]:
    """The forward and backward pass of a microbatch in a stage without ends."""
    import torch

    from jupyter_mntrain.recipe.layout import lay_out
    from jupyter_mntrain.recipe.parse import parse_recipe
    from jupyter_mntrain.train.model.decoder import read_config
    from jupyter_mntrain.train.model.stages import DTYPES, build_modules

    layers = STAGES * arguments.layers
    heads = max(1, arguments.hidden // 64)
    recipe = parse_recipe(
        "",
        [
            *("model.preset=llama-tiny", f"model.layers={layers}"),
            f"model.dtype={arguments.dtype}",
            *(f"model.hidden_size={arguments.hidden}", f"model.heads={heads}"),
            *(f"model.intermediate_size={arguments.hidden * 8 // 3 // 32 * 32}",),
            *(f"model.key_value_heads={heads}", f"data.sequence_length={arguments.length}"),
            *("pipeline.schedule=1f1b", "memory.compile=false", "optimizer.precision=plain"),
        ],
    )
    config = read_config(recipe.model, 1024)
    layout = lay_out(recipe, STAGES, layers)
    (module,) = build_modules(recipe, config, layout, 1, device).values()
    shape = (arguments.sequences, arguments.length, arguments.hidden)
    given = torch.randn(shape, device=device, dtype=DTYPES[arguments.dtype], requires_grad=True)
    gradient = torch.randn_like(given)
    places = torch.arange(arguments.length, device=device).expand(shape[:2])

    def run() -> None:
        module.zero_grad()
        module(given, position_ids=places).backward(gradient)

    return run


def _messages(name: Transfer, arguments: argparse.Namespace, device: Any) -> Callable[[], object]:
    """Decode and encode a microbatch's activations, and its gradients."""
    import torch

    from jupyter_mntrain.train.model.stages import DTYPES
    from jupyter_mntrain.train.pipeline.transfers import decode, dither_of, encode

    encoding, decoding = encode, decode
    if arguments.compile:
        encoding, decoding = (torch.compile(one, dynamic=False) for one in (encode, decode))
    shape = (arguments.sequences, arguments.length, arguments.hidden)
    values = torch.randn(shape, device=device, dtype=DTYPES[arguments.dtype])
    into, forms = torch.empty_like(values), FORMATS[name]
    messages = [encode(values, form) for form in forms]

    def run() -> None:
        for direction, (message, form) in enumerate(zip(messages, forms, strict=True)):
            for way, boundary in enumerate((3, 4)):
                dither = dither_of(shape, form, (1, 2, 0, boundary, direction), device)
                if way:
                    encoding(values, form, dither)
                else:
                    decoding(message, form, into, dither)

    return run


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--layers", type=int, default=4, help="of the stage")
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--only", help="one transfer")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
