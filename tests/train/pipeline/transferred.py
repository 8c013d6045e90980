"""Transfers in fewer bits, in worlds of ranks: run by every rank, which compares what it holds.

The other side has no pipeline: it computes one microbatch after another with all stages, and puts
what crosses a boundary through the codec, with the random numbers of its microbatch. So it has the
same gradients, to the last bit where torch computes them in the same order.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.model.environment import METRICS_VARIABLE, PEAK_VARIABLE
from jupyter_mntrain.recipe.layout import Layout, lay_out, make_grid
from jupyter_mntrain.recipe.parse import check, parse_recipe
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.recipe.transfers import FORMATS, Format, boundary_transfers, wire_bytes
from jupyter_mntrain.train import train
from jupyter_mntrain.train.data.batches import Batch
from jupyter_mntrain.train.model.decoder import HEAD, StageModule, read_config
from jupyter_mntrain.train.model.losses import from_logits
from jupyter_mntrain.train.model.stages import build_modules
from jupyter_mntrain.train.pipeline.pipeline import Pipeline
from jupyter_mntrain.train.pipeline.stopwatch import StageMeter, Stopwatch
from jupyter_mntrain.train.pipeline.transfers import decode, dither_of, encode
from jupyter_mntrain.train.world import World, form_groups, join_world
from tests.train.pipeline.transfer_cases import (
    CASES,
    LENGTH,
    RESUMED,
    STEPS,
    VOCABULARY,
    Outcome,
    Resumed,
)

TIMEOUT_S = 300.0


def run_all(words: list[str]) -> None:
    """All cases of this world; the first rank writes what came out next to the recipe."""
    torch.set_num_threads(1)
    folder = Path(words[0]).parent
    with join_world("cpu", TIMEOUT_S) as world:
        found = {name: _run(settings, world) for name, settings in CASES[world.size].items()}
        resumed = _resumed(folder, world) if world.size == 2 else None
        if world.is_head:
            (folder / "outcomes.json").write_bytes(msgspec.json.encode(found))
            (folder / "resumed.json").write_bytes(msgspec.json.encode(resumed))


def _run(settings: tuple[str, ...], world: World) -> Outcome:
    recipe = parse_recipe("", settings)
    check(recipe, world.size)
    config = read_config(recipe.model, VOCABULARY)
    grid = make_grid(recipe, world.size)
    layout = lay_out(recipe, world.size, config.num_hidden_layers)
    groups = form_groups(world, recipe, grid, layout)
    modules = build_modules(recipe, config, layout, grid.place_of(world.rank), world.device)
    meter = StageMeter(Stopwatch(world.device))
    pipeline = Pipeline(recipe, config, layout, groups, modules, meter)
    pipeline.measure()
    every: dict[int, StageModule] = {}
    for place in range(layout.world_size):
        every |= build_modules(recipe, config, layout, place, world.device)
    hosts: list[str] = [""] * world.size
    dist.all_gather_object(hosts, world.host)
    nodes = [hosts[rank] for rank in grid.pipeline_of(world.rank)]
    found = boundary_transfers(recipe.transfer, layout.stage_ranks, nodes)
    formats = [FORMATS[one] for one in found]

    worst, off, compared = 0.0, 0.0, []
    for step in range(STEPS):
        batch = _batch(recipe, step)
        for one in pipeline.parameters().values():
            one.grad = None
        loss = pipeline.forward_backward(batch, step)
        pipeline.share_gradients()
        dist.all_reduce(loss)
        wanted, expected = _reference(recipe, layout, every, batch, step, formats)
        off = max(off, abs(loss.item() - expected))
        for name, one in pipeline.parameters().items():
            theirs = wanted[name][slice(*pipeline.rows().get(name, (None,)))]
            assert one.grad is not None
            apart = (one.grad - theirs).abs().max() / wanted[name].abs().max().clamp_min(1e-12)
            worst = max(worst, apart.item())
        taken = meter.take()
        compared += [(one.boundary, one.is_gradient, one.ratio_db()) for one in taken.compared]
        sent = taken.sent_bytes
        coded = len(taken.coded)
    evaluated = pipeline.forwards.evaluate(batch)
    dist.all_reduce(evaluated)
    mine = Outcome(
        gradient_error=worst,
        loss_error=off,
        evaluation_error=abs(evaluated.item() - _evaluated(recipe, every, batch)) / batch.counted,
        sent_bytes={world.rank: sent},
        expected_bytes={world.rank: _expected(recipe, config, layout, formats, grid, world)},
        coded={world.rank: coded},
        compared={world.rank: compared},
    )
    told: list[Any] = [None] * world.size
    dist.all_gather_object(told, mine)
    return Outcome(
        max(one.gradient_error for one in told),
        max(one.loss_error for one in told),
        max(one.evaluation_error for one in told),
        *(
            {rank: found for one in told for rank, found in getattr(one, name).items()}
            for name in ("sent_bytes", "expected_bytes", "coded", "compared")
        ),
    )


def _batch(recipe: Recipe, step: int) -> Batch:
    shape = (recipe.train.batch_size, LENGTH + 1)
    ids = torch.randint(VOCABULARY, shape, generator=torch.Generator().manual_seed(step))
    places = torch.arange(LENGTH).expand(shape[0], LENGTH)
    return Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), places, ids[:, 1:].numel())


def _reference(
    recipe: Recipe,
    layout: Layout,
    stages: dict[int, StageModule],
    batch: Batch,
    step: int,
    formats: list[Any],
) -> tuple[dict[str, torch.Tensor], float]:
    """Gradients by name, and the mean loss."""
    for stage in stages.values():
        stage.zero_grad()
    width, number, total = recipe.data_parallel.width, 0, 0.0
    for part in range(width):
        for one in batch.share(part, width).parts(recipe.microbatch_size):
            total += _microbatch(recipe, stages, one, (step, number), formats, batch.counted)
            number += 1
    named = [item for stage in stages.values() for item in stage.trained().items()]
    found = {name: one.grad for name, one in named if one.grad is not None}
    if recipe.model.tie_embeddings:
        first = next(name for name in found if "embed" in name)
        found[first] = found[HEAD] = found[first] + found[HEAD]
    return found, total


def _microbatch(
    recipe: Recipe,
    stages: dict[int, StageModule],
    one: Batch,
    numbers: tuple[int, int],
    formats: list[Any],
    counted: int,
) -> float:
    taken, given = [one.inputs], []
    for index in range(len(stages)):
        given.append(stages[index](taken[-1], one.positions))
        if index < len(formats):
            key = (recipe.train.seed, *numbers, index, 0)
            received = _seen(given[-1].detach(), formats[index].forward, key)
            taken.append(received.requires_grad_())
    loss = from_logits(given[-1], one.labels) / counted
    loss.backward()
    for boundary in reversed(range(len(formats))):
        gradient = taken[boundary + 1].grad
        assert gradient is not None
        key = (recipe.train.seed, *numbers, boundary, 1)
        given[boundary].backward(_seen(gradient, formats[boundary].backward, key))
    return loss.item()


def _evaluated(recipe: Recipe, stages: dict[int, StageModule], batch: Batch) -> float:
    """The sum of losses, of what is sent as it is computed."""
    total = 0.0
    with torch.no_grad():
        for one in batch.parts(recipe.microbatch_size):
            hidden = one.inputs
            for index in range(len(stages)):
                hidden = stages[index](hidden, one.positions)
            total += from_logits(hidden, one.labels).item()
    return total


def _seen(values: torch.Tensor, form: Format, key: tuple[int, ...]) -> torch.Tensor:
    """What the receiver has."""
    if form == "none":
        return values.clone()
    dither = dither_of(values.shape, form, key, values.device)
    into = torch.empty_like(values)
    decode(encode(values, form, dither), form, into, dither)
    return into


def _expected(
    recipe: Recipe, config: Any, layout: Layout, formats: list[Any], grid: Any, world: World
) -> dict[int, int]:
    """Bytes to each rank of the job, without those of sums over ranks."""
    tokens = recipe.microbatch_size * LENGTH
    passes = recipe.microbatches * recipe.train.accumulation
    ranks, place = grid.pipeline_of(world.rank), grid.place_of(world.rank)
    found: dict[int, int] = {}
    for stage in layout.stages_of(place):
        for other, is_gradient in ((stage + 1, False), (stage - 1, True)):
            if not 0 <= other <= layout.last_stage or layout.rank_of(other) == place:
                continue
            form = formats[min(stage, other)][is_gradient]
            peer = ranks[layout.rank_of(other)]
            size = passes * wire_bytes(form, tokens, config.hidden_size, 4)
            found[peer] = found.get(peer, 0) + size
    return found


def _resumed(folder: Path, world: World) -> Resumed:
    """Train without a break, and again from half of it, on another schedule, in other counts."""
    os.environ[PEAK_VARIABLE] = "1000"
    text = folder / "text.txt"
    if world.is_head:
        text.write_text("".join(f"bubble {n} schedule {n * n} microbatch\n" for n in range(600)))
    dist.barrier()
    unbroken, again, journal = folder / "unbroken", folder / "again", folder / "journal"
    os.environ[METRICS_VARIABLE] = str(journal)
    with_none = _train(text, folder / "plain", "pipeline.transfer=none")
    shutil.rmtree(journal) if world.is_head else None
    dist.barrier()
    losses = _train(text, unbroken)
    if world.is_head:
        shutil.copytree(unbroken, again)
        shutil.rmtree(CheckpointDirectory(again).of(4))
    dist.barrier()
    os.environ[METRICS_VARIABLE] = str(folder / "journal-again")
    resumed = _train(text, again, "pipeline.schedule=gpipe")
    return Resumed(losses, resumed, with_none)


def _train(text: Path, directory: Path, *more: str) -> tuple[float, ...]:
    own = (f"data.source={text}", f"checkpoint.directory={directory}")
    return train(parse_recipe("", [*RESUMED, *own, *more])).losses
