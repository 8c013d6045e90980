"""Equality: run by every rank, compares a pipeline with one process without pipelining.

The other side is transformers' own model, whole, with its own loss code path, torch's AdamW and
``clip_grad_norm_``. It is trained once for all schedules and ways to save memory; each rank trains
a share of these models for all ranks, and compares what it holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from jupyter_mntrain.model.records.checkpoint import RunFigures
from jupyter_mntrain.recipe.layout import Grid, Layout, lay_out, make_grid
from jupyter_mntrain.recipe.sections import OutputSection, Recipe
from jupyter_mntrain.telemetry.progress import unwatched
from jupyter_mntrain.train.checkpoint.export import ModelExport
from jupyter_mntrain.train.data.batches import Batch
from jupyter_mntrain.train.data.tokens import Tokens, untrained_tokenizer
from jupyter_mntrain.train.model.activations import Offload
from jupyter_mntrain.train.model.decoder import HEAD, read_config
from jupyter_mntrain.train.model.stages import build_modules
from jupyter_mntrain.train.optimizer.optimizer import Optimizer
from jupyter_mntrain.train.pipeline.pipeline import Pipeline
from jupyter_mntrain.train.pipeline.stopwatch import StageMeter, Stopwatch
from jupyter_mntrain.train.world import World, form_groups, join_world
from tests.searches import runs_all
from tests.train.equality_cases import (
    VOCABULARY,
    Outcome,
    cases,
    for_one_process,
    layers_of,
)
from tests.train.families import whole_model, write_model
from tests.train.reference import Reference, batches_of, embedding_of, some_of, train_references
from tests.train.syncs import run_syncs

MET = (2, 4)
"""Numbers of ranks that are two replicas which sync rarely."""

TIMEOUT_S = 300.0
"""For the other ranks, on a machine that is busy with other work."""


class HostCopies:
    """Copies of activations, from and to the CPU, and never of weights."""

    def __init__(self, stages: Iterable[nn.Module]) -> None:
        self._stages = tuple(stages)

    def out(self, tensor: torch.Tensor) -> tuple[torch.Tensor, None]:
        weights = (one for stage in self._stages for one in stage.parameters())
        whole = [one for one in weights if not isinstance(one, DTensor)]
        there = tensor.untyped_storage().data_ptr()
        assert there not in {one.untyped_storage().data_ptr() for one in whole}
        return tensor.clone(), None

    def back(self, host: torch.Tensor, _sent: None) -> tuple[torch.Tensor, None]:
        return host.clone(), None

    def await_back(self, *_: Any) -> None: ...


def run_case(recipe: Recipe, world: World, reference: Reference) -> Outcome:
    config = read_config(recipe.model, VOCABULARY)
    grid = make_grid(recipe, world.size)
    layout = lay_out(recipe, world.size, layers_of(recipe))
    modules = build_modules(recipe, config, layout, grid.place_of(world.rank), world.device)
    copies = HostCopies(modules.values())
    if recipe.memory.offload_activations:
        for stage in modules.values():
            weights, layers = stage.weights().values(), len(stage.layers)
            stage.keeping = Offload(weights, copies, layers=layers, smallest_bytes=1)
    meter = StageMeter(Stopwatch(world.device))
    groups = form_groups(world, recipe, grid, layout)
    pipeline = Pipeline(recipe, config, layout, groups, modules, meter)
    pipeline.measure()
    optimizer = Optimizer(recipe, pipeline.parameters(), pipeline.counted_once())
    batches = batches_of(recipe)

    loss, norm = _backward(pipeline, optimizer, batches[0])

    def mine_of(name: str) -> slice:
        return slice(*pipeline.rows().get(name, (None,)))

    errors = {
        name: _error(parameter.grad, reference.gradients[name][mine_of(name)])
        for name, parameter in pipeline.parameters().items()
    }
    worst = max(errors, key=lambda name: errors[name])
    first_loss_error = _apart(loss, reference.losses[0])
    sent = dict(meter.sent_bytes)

    evaluation_error = _evaluation_error(pipeline, batches[0], reference.evaluations[0])
    choice_error = _choice_error(pipeline, reference, 0)
    trained_loss_error = 0.0
    for step in range(recipe.train.steps):
        optimizer.update(norm)
        found = _evaluation_error(pipeline, some_of(batches, step), reference.evaluations[step + 1])
        evaluation_error = max(evaluation_error, found)
        if step + 1 == recipe.train.steps:
            choice_error = max(choice_error, _choice_error(pipeline, reference, step + 1))
        loss, norm = _backward(pipeline, optimizer, batches[step + 1])
        trained_loss_error = max(trained_loss_error, _apart(loss, reference.losses[step + 1]))
    weight_errors = [
        _error(p.detach(), reference.weights[name][mine_of(name)])
        for name, p in pipeline.parameters().items()
    ]

    mine = Outcome(
        evaluation_error=evaluation_error,
        choice_error=choice_error,
        loss_error=first_loss_error,
        gradient_error=errors[worst],
        worst=worst,
        trained_loss_error=trained_loss_error,
        trained_weight_error=max(weight_errors),
        reloaded_error=_reloaded_error(recipe, config, world, pipeline, reference),
        sent_bytes={world.rank: sent},
        expected_bytes={world.rank: _expected_bytes(recipe, config, layout, grid, pipeline)},
    )
    return _gathered(mine, world)


def _backward(pipeline: Pipeline, optimizer: Optimizer, batch: Batch) -> tuple[float, torch.Tensor]:
    loss = pipeline.forward_backward(batch)
    pipeline.share_gradients()
    loss, norm, _ = optimizer.total(loss, optimizer.gradient_squares())
    return loss.item(), norm


def _evaluation_error(pipeline: Pipeline, batch: Batch, expected: float) -> float:
    total = pipeline.forwards.evaluate(batch)
    dist.all_reduce(total)
    return _apart(total.item() / batch.counted, expected)


def _choice_error(pipeline: Pipeline, reference: Reference, step: int) -> float:
    """How much less likely than the reference's first choice the tokens are that were chosen."""
    ids = torch.randint(VOCABULARY, (3, 12), generator=torch.Generator().manual_seed(5))
    last = torch.tensor([0, 3, 8])
    worst = 0.0
    for _ in range(3):
        chosen = torch.as_tensor(pipeline.forwards.likeliest(ids, last))
        logits = reference.next_logits(step, ids, last)
        less = logits.max(dim=1).values - logits[torch.arange(len(ids)), chosen]
        worst = max(worst, less.max().item())
        last += 1
        ids[torch.arange(3), last] = chosen
    return worst


def _reloaded_error(
    recipe: Recipe, config: Any, world: World, pipeline: Pipeline, reference: Reference
) -> float:
    """Of a model that was read from a directory: it is exported, and read by transformers."""
    if recipe.model.path is None:
        return 0.0
    directory = Path(recipe.model.path).parent / "trained"
    output = OutputSection(directory=str(directory), replace=True)
    none = np.zeros(0, np.int32), np.zeros(0, np.int64)
    nothing = Tokens(*none, None, "", untrained_tokenizer())
    exported = msgspec.structs.replace(recipe, output=output)
    ModelExport(exported, world, config, nothing, lambda _: None).write(
        pipeline.written_once(), RunFigures(recipe.train.steps), unwatched
    )
    ids = torch.randint(VOCABULARY, (3, 12), generator=torch.Generator().manual_seed(6))
    last = torch.tensor([11, 11, 11])
    with torch.no_grad():
        found = whole_model(directory)(input_ids=ids).logits[:, -1]
    dist.barrier()
    return (found - reference.next_logits(recipe.train.steps, ids, last)).abs().max().item()


def _error(ours: torch.Tensor | None, theirs: torch.Tensor) -> float:
    assert ours is not None
    apart = (ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-12)
    return _apart(apart.item(), 0.0)


def _apart(ours: float, theirs: float) -> float:
    """What is not a number is as far apart as can be: ``max`` would lose it."""
    apart = abs(ours - theirs)
    return math.inf if math.isnan(apart) else apart


def _expected_bytes(
    recipe: Recipe, config: Any, layout: Layout, grid: Grid, pipeline: Pipeline
) -> dict[int, int]:
    """By rank of the job: b x T x d x 4 bytes per boundary and microbatch, once a tied gradient,
    what a ring of replicas passes on of all gradients, and one of shards.
    """
    mine = dist.get_rank()
    ranks, rank = grid.pipeline_of(mine), grid.place_of(mine)
    shape = recipe.microbatch_size * recipe.data.sequence_length * config.hidden_size
    once = shape * 4 * recipe.microbatches * recipe.train.accumulation
    expected: dict[int, int] = {}
    for stage in layout.stages_of(rank):
        for other in (stage - 1, stage + 1):
            if 0 <= other <= layout.last_stage:
                peer = layout.rank_of(other)
                if peer != rank:  # in a V two stages that follow each other are on one rank
                    expected[peer] = expected.get(peer, 0) + once
    peer_of_copy = layout.tied_peer(rank)
    is_shared = config.tie_word_embeddings and recipe.trains_tied
    if is_shared and peer_of_copy is not None:
        size = pipeline.parameters()[
            embedding_of(config) if rank == layout.rank_of(0) else HEAD
        ].nbytes
        expected[peer_of_copy] = expected.get(peer_of_copy, 0) + size
    in_job = {ranks[peer]: size for peer, size in expected.items()}
    if grid.replicas > 1:
        held = sum(one.nbytes for one in pipeline.parameters().values())
        after = grid.ring_of(mine)[1]
        in_job[after] = 2 * held * (grid.replicas - 1) // grid.replicas
    if grid.shards > 1:
        after = grid.shard_ring_of(mine)[1]
        in_job[after] = in_job.get(after, 0) + _sharded_bytes(recipe, grid, pipeline)
    return in_job


def _sharded_bytes(recipe: Recipe, grid: Grid, pipeline: Pipeline) -> int:
    """What a ring of shards passes on: all weights once per pass, or those of layers twice in each
    microbatch, and as often all gradients.
    """
    drops = recipe.data_parallel.reshard_after_forward
    weights = [item for stage in pipeline._modules.values() for item in stage.weights().items()]
    passes = recipe.train.accumulation * (recipe.microbatches if drops else 1)
    values = sum(one.numel() for _, one in weights) * 2
    values += sum(one.numel() for name, one in weights if drops and len(one) != VOCABULARY)
    return passes * values * 4 * (grid.shards - 1) // grid.shards


def _gathered(mine: Outcome, world: World) -> Outcome:
    outcomes: list[Any] = [None] * world.size
    dist.all_gather_object(outcomes, mine)
    worst = max(outcomes, key=lambda outcome: outcome.gradient_error)
    return Outcome(
        evaluation_error=max(o.evaluation_error for o in outcomes),
        choice_error=max(o.choice_error for o in outcomes),
        loss_error=max(o.loss_error for o in outcomes),
        gradient_error=worst.gradient_error,
        worst=worst.worst,
        trained_loss_error=max(o.trained_loss_error for o in outcomes),
        trained_weight_error=max(o.trained_weight_error for o in outcomes),
        reloaded_error=max(o.reloaded_error for o in outcomes),
        sent_bytes={k: v for o in outcomes for k, v in o.sent_bytes.items()},
        expected_bytes={k: v for o in outcomes for k, v in o.expected_bytes.items()},
    )


def placed(recipe: Recipe, folder: Path) -> Recipe:
    """With the path of its model, where it has one."""
    if recipe.model.path is None:
        return recipe
    model = msgspec.structs.replace(recipe.model, path=str(folder / recipe.model.path))
    return msgspec.structs.replace(recipe, model=model)


def run_all(directory: str) -> None:
    """All cases of this world; the first rank writes what came out."""
    torch.set_num_threads(1)
    if not runs_all():  # inductor takes half a minute; dynamo and autograd's graphs are as with it
        torch.compile = partial(torch.compile, backend="aot_eager")
    with join_world("cpu", TIMEOUT_S) as world:
        wanted = {
            name: placed(recipe, Path(directory) / f"world-{world.size}")
            for name, recipe in cases(world.size).items()
        }
        if world.is_head:
            for path in filter(None, {one.model.path for one in wanted.values()}):
                write_model(Path(path).name, Path(path))
        dist.barrier()
        references = train_references(wanted.values(), world)
        results = {
            name: run_case(recipe, world, references[for_one_process(recipe)])
            for name, recipe in wanted.items()
        }
        met = run_syncs(world, Path(directory)) if world.size in MET else None
        if world.is_head:
            path = Path(directory) / f"world-{world.size}.json"
            path.write_bytes(msgspec.json.encode(results))
            (path.parent / f"syncs-{world.size}.json").write_bytes(msgspec.json.encode(met))
