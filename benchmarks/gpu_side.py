"""One side of `benchmarks.gpu`: the steps of the trainer or of the bare loop, in this process."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from benchmarks.bare import step
from jupyter_mntrain.recipe.layout import Grid, Layout
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.callbacks.device_number import DeviceNumber
from jupyter_mntrain.telemetry.device.gemm import device_peak, measured_gemm
from jupyter_mntrain.telemetry.formulas import stage_flops_per_token
from jupyter_mntrain.train.data.batches import Batch
from jupyter_mntrain.train.model.decoder import EMBEDDING, HEAD, model_shape, read_config
from jupyter_mntrain.train.model.stages import build_modules
from jupyter_mntrain.train.optimizer.optimizer import Optimizer
from jupyter_mntrain.train.pipeline.pipeline import Pipeline
from jupyter_mntrain.train.pipeline.stopwatch import StageMeter, Stopwatch
from jupyter_mntrain.train.world import Groups, World, join_world

WARM_UP = 3
"""Steps that allocate memory, compile and select kernels: not counted."""


@dataclass(frozen=True)
class Case:
    """A model shape, its batch and its activation checkpointing."""

    settings: tuple[str, ...]
    vocabulary: int
    length: int
    batch: int
    microbatches: int
    checkpointing: str = "none"
    chunk_tokens: int = 4096


_1B = ("preset=llama-1b", "tie_embeddings=true")
_8B = (
    "preset=llama-1b",
    "layers=32",
    "hidden_size=4096",
    "intermediate_size=14336",
    "heads=32",
    "key_value_heads=8",
)
CASES = {
    "1b": Case(_1B, 128_256, 4096, batch=16, microbatches=4),
    "8b": Case(_8B, 128_256, 4096, batch=16, microbatches=16),
    "8b-recomputed": Case(_8B, 128_256, 4096, batch=16, microbatches=16, checkpointing="full"),
    "small": Case(("preset=llama-tiny",), 512, 64, batch=4, microbatches=2, chunk_tokens=64),
}
"""All but ``small`` have 65,536 tokens per step: the optimizer's share is small."""


def run(name: str, side: str, *, device: str, steps: int) -> dict[str, Any]:
    """Measure a side: tokens per second, losses, FLOPs, peaks and memory."""
    case = CASES[name]
    is_compiled = side.endswith("compiled")
    recipe = parse_recipe("", list(_settings(case, side, is_compiled=is_compiled)))
    config = read_config(recipe.model, case.vocabulary)
    with join_world(device, 600) as world:
        batches = _batches(case, steps)
        if side.startswith("bare"):
            losses_of = _bare(recipe, config, world, batches, is_compiled=is_compiled)
        else:
            losses_of = _ours(recipe, config, world, batches, 2 if side == "two stages" else 1)
        times, losses = [], []
        last = time.perf_counter()
        for loss in losses_of:
            now = time.perf_counter()
            times.append(now - last)
            losses.append(loss)
            last = now
        is_cuda = world.device.type == "cuda"
        memory = torch.cuda.max_memory_allocated(world.device) if is_cuda else 0
        peak = device_peak(world.device, torch.bfloat16)
        gemm = measured_gemm(world.device, torch.bfloat16)
    layers = config.num_hidden_layers
    flops = stage_flops_per_token(model_shape(config), case.length, layers=layers, has_head=True)
    return {
        "tokens_per_s": case.batch * case.length / median(times[WARM_UP:]),
        "losses": losses,
        "flops_per_token": flops,
        "peak_flops_per_s": peak.flops_per_s if peak else None,
        "peak_source": peak.source if peak else None,
        "gemm_flops_per_s": gemm,
        "memory_bytes": memory,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(world.device) if is_cuda else "cpu",
    }


def _settings(case: Case, side: str, *, is_compiled: bool) -> Iterator[str]:
    yield from (f"model.{one}" for one in case.settings)
    yield from ("model.dtype=bfloat16", "optimizer.precision=plain", "optimizer.warmup_steps=0")
    yield from (f"data.sequence_length={case.length}", f"train.batch_size={case.batch}")
    yield f"pipeline.microbatches={case.microbatches}"
    yield f"pipeline.schedule={'interleaved-1f1b' if side == 'two stages' else '1f1b'}"
    yield from (f"memory.checkpointing={case.checkpointing}", "optimizer.learning_rate=1e-4")
    yield from ("memory.loss=chunked", f"memory.chunk_tokens={case.chunk_tokens}")
    yield f"memory.compile={str(is_compiled).lower()}"


def _batches(case: Case, steps: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(0)
    positions = torch.arange(case.length).expand(case.batch, -1)
    found = []
    for _ in range(WARM_UP + steps):
        shape = (case.batch, case.length + 1)
        ids = torch.randint(case.vocabulary, shape, generator=generator)
        tokens = case.batch * case.length
        found.append(Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), positions, tokens))
    return found


def _ours(
    recipe: Recipe, config: Any, world: World, batches: list[Batch], stages: int
) -> Iterator[float]:
    """The trainer's own steps without data loading, checkpoints and reports; their losses.

    As in `Trainer`, on a GPU a loss is read after the next step has been queued.
    """
    layers = config.num_hidden_layers
    ends = [layers * stage // stages for stage in range(stages + 1)]
    layout = Layout(world_size=1, stages=tuple(range(*both) for both in pairwise(ends)))
    weights = partial(_random, config, world.device)
    modules = build_modules(recipe, config, layout, 0, world.device, weights=weights)
    meter = StageMeter(Stopwatch(world.device))
    pipeline = Pipeline(recipe, config, layout, Groups(0, Grid(1), world), modules, meter)
    pipeline.measure()
    optimizer = Optimizer(recipe, pipeline.parameters(), pipeline.counted_once())
    held: DeviceNumber | None = None
    for batch in batches:
        meter.reset()
        loss = pipeline.forward_backward(batch)
        pipeline.share_gradients()
        loss, norm, _ = optimizer.total(loss, optimizer.gradient_squares())
        optimizer.update(norm)
        meter.take()
        queued = DeviceNumber(loss)
        if held is not None:
            yield held.read()
        held = queued
        if world.device.type != "cuda":
            yield held.read()
            held = None
    if held is not None:
        yield held.read()


def _random(
    config: Any, device: torch.device, empty: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Weights drawn on the device, with the spread of those that a run begins with."""
    made = {}
    for name, like in empty.items():
        source = EMBEDDING if config.tie_word_embeddings and name == HEAD else name
        generator = torch.Generator(device).manual_seed(zlib.crc32(source.encode()))
        made[name] = torch.ones(like.shape, dtype=like.dtype, device=device)
        if like.ndim > 1:
            made[name].normal_(0, config.initializer_range, generator=generator)
    return made


def _bare(
    recipe: Recipe, config: Any, world: World, batches: list[Batch], *, is_compiled: bool
) -> Iterator[float]:
    with world.device:
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, attn_implementation="sdpa"
        )
    if recipe.checkpointing == "full":
        options = {"use_reentrant": False}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
    model.train()
    if is_compiled:
        model.compile(dynamic=False)
    rate = recipe.optimizer.learning_rate
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, fused=True)
    for batch in batches:
        here = batch.to(world.device)
        loss = step(model, optimizer, here, recipe.microbatches, 1.0)
        if world.device.type == "cuda":
            torch.cuda.synchronize(world.device)
        yield loss
