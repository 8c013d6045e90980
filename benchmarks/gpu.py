"""One GPU: tokens per second and MFU of the trainer against a bare transformers loop.

    python -m benchmarks.gpu [--model 1b] [--model 8b] [--repeats 3] [--steps 8] [--json FILE]
    python -m benchmarks.gpu --cpu --small     # the same code with a tiny model and no GPU

Llama shapes with random weights, bfloat16, 4096 tokens, AdamW in bfloat16. The 8B model uses
activation checkpointing on both sides. Runs alternate, each in its own process; the ratio is that
of the medians. "two stages" runs two stages on the one GPU with interleaved 1F1B, the code that
several GPUs run. Model FLOPs follow PaLM's formula; the peak is the data sheet's, or measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

WARM_UP = 3
"""Steps that allocate memory and select kernels: not counted."""
REQUIRED_RATIO = 0.97
"""Least speed of the trainer, relative to the bare loop; below it the exit code is 1."""
SIDES = ("bare", "ours", "two stages")
SAME_LOSS = 0.05
"""Largest relative difference of the first losses: weights are random, with the same spread."""
PUBLISHED = """torchtitan publishes for Llama 3.1 8B in bfloat16, FSDP2 on 8 H100s held to 500 W:
5,762 tokens/s per card, with torch.compile 6,667, "33% to 39% MFU". Another card, another
parallelism, selective checkpointing (December 2024, pytorch/torchtitan,
benchmarks/llama3_h100_202412_torchtitan.md)."""
NO_CARD = "gpu: torch finds no CUDA device. Fix: --cpu --small tries the program without one"


@dataclass(frozen=True)
class Case:
    """A model shape, its batch and its activation checkpointing."""

    settings: tuple[str, ...]
    vocabulary: int
    length: int
    batch: int
    microbatches: int
    checkpointing: str = "none"


_8B = ("layers=32", "hidden_size=4096", "intermediate_size=14336", "heads=32", "key_value_heads=8")
CASES = {
    "1b": Case(("preset=llama-1b", "tie_embeddings=true"), 128_256, 4096, 8, 8),
    "8b": Case(("preset=llama-1b", *_8B), 128_256, 4096, 4, 4, "full"),
    "small": Case(("preset=llama-tiny",), 512, 64, 4, 2, "full"),
}


def main() -> int:
    arguments = _arguments()
    if arguments.side:
        print(json.dumps(run(arguments)))
        return 0
    import torch

    if not arguments.cpu and not torch.cuda.is_available():
        print(NO_CARD, file=sys.stderr)
        return 2
    names = ["small"] if arguments.small else arguments.model or ["1b", "8b"]
    found = {name: _measured(name, arguments) for name in names}
    if "8b" in names:
        print(PUBLISHED)
    if arguments.json:
        arguments.json.write_text(json.dumps(found))
    return int(any(_ratio(runs) < REQUIRED_RATIO for runs in found.values()))


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one side in this process: seconds of each step, and its details."""
    import torch

    from jupyter_mntrain.recipe.parse import parse_recipe
    from jupyter_mntrain.telemetry.formulas import stage_flops_per_token
    from jupyter_mntrain.telemetry.gemm import device_peak
    from jupyter_mntrain.train.model.decoder import model_shape, read_config
    from jupyter_mntrain.train.world import join_world

    case = CASES[arguments.model[0]]
    schedule = "interleaved-1f1b" if arguments.side == "two stages" else "1f1b"
    settings = [f"model.{one}" for one in case.settings]
    settings += ["model.dtype=bfloat16", "optimizer.precision=plain", "optimizer.warmup_steps=0"]
    settings += [f"data.sequence_length={case.length}", f"train.batch_size={case.batch}"]
    settings += [f"pipeline.microbatches={case.microbatches}", f"pipeline.schedule={schedule}"]
    settings += [f"memory.checkpointing={case.checkpointing}", "optimizer.learning_rate=1e-4"]
    recipe = parse_recipe("", settings)
    config = read_config(recipe.model, case.vocabulary)
    side = _bare if arguments.side == "bare" else _ours
    stages = 2 if arguments.side == "two stages" else 1
    with join_world("cpu" if arguments.cpu else "cuda", 600) as world:
        times, losses = [], []
        last = time.perf_counter()
        for loss in side(recipe, config, world, _batches(case, arguments.steps), stages):
            now = time.perf_counter()
            times.append(now - last)
            losses.append(loss)
            last = now
        peak = device_peak(world.device, torch.bfloat16)
        is_cuda = world.device.type == "cuda"
        memory = torch.cuda.max_memory_allocated(world.device) if is_cuda else 0
    layers = config.num_hidden_layers
    flops = stage_flops_per_token(model_shape(config), case.length, layers=layers, has_head=True)
    return {
        "tokens_per_s": case.batch * case.length / median(times[WARM_UP:]),
        "losses": losses,
        "flops_per_token": flops,
        "peak_flops_per_s": peak.flops_per_s if peak else None,
        "peak_source": peak.source if peak else None,
        "memory_bytes": memory,
    }


def _batches(case: Case, steps: int) -> list[Any]:
    import torch

    from jupyter_mntrain.train.data.batches import Batch

    generator = torch.Generator().manual_seed(0)
    positions = torch.arange(case.length).expand(case.batch, -1)
    found = []
    for _ in range(WARM_UP + steps):
        shape = (case.batch, case.length + 1)
        ids = torch.randint(case.vocabulary, shape, generator=generator)
        tokens = case.batch * case.length
        found.append(Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), positions, tokens))
    return found


def _ours(recipe: Any, config: Any, world: Any, batches: list[Any], stages: int) -> Iterator[float]:
    """The trainer's own steps without data loading, checkpoints and reports; their losses."""
    from jupyter_mntrain.recipe.layout import Grid, Layout
    from jupyter_mntrain.train.model.stages import build_modules
    from jupyter_mntrain.train.optimizer.optimizer import Optimizer
    from jupyter_mntrain.train.pipeline.pipeline import Pipeline
    from jupyter_mntrain.train.pipeline.stopwatch import StageMeter, Stopwatch
    from jupyter_mntrain.train.world import Groups

    layers = config.num_hidden_layers
    ends = [layers * stage // stages for stage in range(stages + 1)]
    layout = Layout(world_size=1, stages=tuple(range(*both) for both in pairwise(ends)))
    modules = build_modules(recipe, config, layout, 0, world.device)
    stopwatch = Stopwatch(world.device)
    meter = StageMeter(stopwatch)
    pipeline = Pipeline(recipe, config, layout, Groups(0, Grid(1), world), modules, meter)
    pipeline.measure()
    optimizer = Optimizer(recipe, pipeline.parameters(), pipeline.counted_once())
    for batch in batches:
        meter.reset()
        loss = pipeline.forward_backward(batch)
        pipeline.share_gradients()
        loss, norm, _ = optimizer.total(loss, optimizer.gradient_square())
        optimizer.update(norm)
        stopwatch.wait(stopwatch.mark())
        meter.compute_s()
        yield loss.item()


def _bare(
    recipe: Any, config: Any, world: Any, batches: list[Any], _stages: int
) -> Iterator[float]:
    import torch
    from transformers import AutoModelForCausalLM

    from benchmarks.bare import step

    with world.device:
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, attn_implementation="sdpa"
        )
    if recipe.memory.checkpointing == "full":
        options = {"use_reentrant": False}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
    model.train()
    rate = recipe.optimizer.learning_rate
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, fused=True)
    for batch in batches:
        here = batch.to(world.device)
        loss = step(model, optimizer, here, recipe.pipeline.microbatches, 1.0)
        if world.device.type == "cuda":
            torch.cuda.synchronize(world.device)
        yield loss


Runs = dict[str, list[dict[str, Any]]]
"""Results of the processes of each side."""


def _measured(name: str, arguments: argparse.Namespace) -> Runs:
    runs: Runs = {side: [] for side in SIDES}
    for _ in range(arguments.repeats):
        for side in SIDES:
            runs[side].append(_in_turn(name, side, arguments))
    first = runs["bare"][0]["losses"][0]
    for side, told in runs.items():
        if abs(told[0]["losses"][0] - first) > SAME_LOSS * first:
            begins = told[0]["losses"][0]
            raise SystemExit(f"gpu: {side} begins with a loss of {begins}, not {first}")
        print(f"{name} {side:10} {_line(told)}", flush=True)
    print(f"{name} ours is {_ratio(runs):.3f} x the bare loop (limit {REQUIRED_RATIO})", flush=True)
    return runs


def _line(told: list[dict[str, Any]]) -> str:
    rate = median(one["tokens_per_s"] for one in told)
    peak = told[0]["peak_flops_per_s"]
    share = f"{rate * told[0]['flops_per_token'] / peak:.1%}" if peak else "unknown"
    gib = max(one["memory_bytes"] for one in told) / 2**30
    return f"{rate:10,.0f} tokens/s, MFU {share} of {told[0]['peak_source']}, {gib:.1f} GiB"


def _ratio(runs: Runs) -> float:
    ours, bare = (median(one["tokens_per_s"] for one in runs[side]) for side in ("ours", "bare"))
    return float(ours / bare)


def _in_turn(name: str, side: str, arguments: argparse.Namespace) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.gpu", "--side", side, "--model", name]
    words += ["--steps", str(arguments.steps)]
    words += ["--small"] if arguments.small else []
    words += ["--cpu"] if arguments.cpu else []
    done = subprocess.run(words, env=os.environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"gpu: {name} {side} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--model", choices=list(CASES), action="append", help="repeatable; default: both"
    )
    parser.add_argument("--repeats", type=int, default=3, help="runs of each side, alternating")
    parser.add_argument("--steps", type=int, default=8, help=f"after {WARM_UP} warm-up steps")
    parser.add_argument("--cpu", action="store_true", help="without a GPU; requires --small")
    parser.add_argument("--small", action="store_true", help="a tiny model, to try the program")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cpu and not arguments.small:
        parser.error("--cpu: these models take a card; add --small")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
