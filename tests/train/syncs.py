"""Rare syncs: run by every rank, compares replicas with one process that plays all of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from msgspec.structs import replace
from safetensors.torch import load_file
from torch import nn

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.recipe.layout import lay_out, make_grid
from jupyter_mntrain.recipe.learning_rate import ratio_at
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import SENT_BYTES, AdaptersSection, DataParallelSection, Recipe
from jupyter_mntrain.telemetry.progress import unwatched
from jupyter_mntrain.train.data.batches import Batch
from jupyter_mntrain.train.loop import train
from jupyter_mntrain.train.model.decoder import read_config
from jupyter_mntrain.train.model.stages import build_modules
from jupyter_mntrain.train.optimizer.diloco import OuterSyncs, average
from jupyter_mntrain.train.optimizer.optimizer import Optimizer
from jupyter_mntrain.train.pipeline.pipeline import Pipeline
from jupyter_mntrain.train.pipeline.stopwatch import StageMeter, Stopwatch
from jupyter_mntrain.train.world import Groups, World, form_groups, gathered
from tests.searches import runs_all
from tests.train.equality_cases import NO_ADAPTERS, VOCABULARY, case, layers_of
from tests.train.reference import OneProcess, batches_of
from tests.train.sync_outcome import SyncOutcome
from tests.train.test_command import write_text

REPLICAS, EVERY, STEPS = 2, 2, 5
"""They meet after steps 2, 4 and 5, the last one."""

IN_FRAGMENTS = {"sync_every": 4, "sync_fragments": 2}
"""They meet in turn, after steps 2 and 4, and both after step 5."""

LATE = {"sync_every": 4, "sync_fragments": 2, "sync_delay": 1}
"""Likewise, and averages are taken after steps 3 and 5."""

RATE = 1e-3

SAVED_EVERY, TRAINED = 2, 7
MET_EVERY = 3
SETTINGS = (
    *("model.preset=llama-tiny", "data.vocabulary_size=300", "data.sequence_length=16"),
    *("pipeline.microbatches=2", "train.device=cpu", f"train.steps={TRAINED}"),
    *("train.batch_size=8", f"checkpoint.interval_steps={SAVED_EVERY}", "checkpoint.keep=9"),
    *(f"data_parallel.replicas={REPLICAS}", f"data_parallel.sync_every={MET_EVERY}"),
    *("report.to=[]", "evaluation.interval_steps=3", "evaluation.sequences=4"),
)
FRAGMENTS = (
    *("data_parallel.sync_every=4", "data_parallel.sync_fragments=2"),
    *("data_parallel.sync_delay=1", "evaluation.interval_steps=4"),
)
"""After step 4 a checkpoint is saved while an average is under way."""
NARROW = (
    *("model.dtype=bfloat16", "data_parallel.sync_dtype=int8"),
    *("train.skip_spikes=50", "adapters.rank=4"),
)


class Played:
    """Replicas, each a whole transformers model with AdamW, and torch's SGD over them."""

    def __init__(self, recipe: Recipe, config: Any) -> None:
        section = recipe.data_parallel
        self.recipe = recipe
        self.replicas = [OneProcess(recipe, config) for _ in range(section.replicas)]
        self.met = [nn.Parameter(p.detach().clone()) for p in self._weights(0)]
        self.names = [name for name, _ in self.replicas[0].model.named_parameters()]
        self.late: tuple[Any, ...] = ()
        self.sgd = torch.optim.SGD(
            self.met,
            lr=section.outer_learning_rate,
            momentum=section.outer_momentum,
            nesterov=True,
        )

    def _weights(self, replica: int) -> list[nn.Parameter]:
        return list(self.replicas[replica].model.parameters())

    def step(self, batch: Batch, step: int) -> float:
        """One step of each; returns the mean of their losses."""
        section, total = self.recipe.optimizer, 0.0
        shards, width = self.recipe.data_parallel.shards, self.recipe.data_parallel.width
        for replica, one in enumerate(self.replicas):
            for part in range(replica * shards, (replica + 1) * shards):
                total += one.forward_backward(batch.share(part, width)) / shards
            for weight in one.model.parameters():
                if weight.grad is not None:
                    weight.grad /= shards
            for group in one.adamw.param_groups:
                group["lr"] = section.learning_rate * ratio_at(self.recipe, step)
            nn.utils.clip_grad_norm_(one.model.parameters(), section.clip_norm)
            one.adamw.step()
            one.adamw.zero_grad()
        self._meet_after(step + 1)
        return total / len(self.replicas)

    def _meet_after(self, done: int) -> None:
        section = self.recipe.data_parallel
        every = section.sync_every // section.sync_fragments
        number = (done // every - 1) % section.sync_fragments
        if self.late and (done == STEPS or done - self.late[0] == section.sync_delay):
            self._apply(*self.late[1:], kept=0.5)
            self.late = ()
        if done == STEPS:
            for one in range(section.sync_fragments):
                self._apply(one, self._differences(one), kept=0.0)
        elif done % every == 0 and section.sync_delay:
            self.late = (done, number, self._differences(number))
        elif done % every == 0:
            self._apply(number, self._differences(number), kept=0.0)

    def _fragment(self, number: int) -> list[int]:
        """Places of its parameters: layers in turn, and all else first."""
        found = []
        for place, name in enumerate(self.names):
            layer = next((int(part) for part in name.split(".") if part.isdigit()), 0)
            if layer % self.recipe.data_parallel.sync_fragments == number:
                found.append(place)
        return found

    @torch.no_grad()
    def _differences(self, number: int) -> list[torch.Tensor]:
        every = [self._weights(replica) for replica in range(len(self.replicas))]
        return [
            sum((self.met[place] - own[place] for own in every), torch.zeros(())) / len(every)
            for place in self._fragment(number)
        ]

    @torch.no_grad()
    def _apply(self, number: int, means: Sequence[torch.Tensor], kept: float) -> None:
        places = self._fragment(number)
        for place, mean in zip(places, means, strict=True):
            self.met[place].grad = mean
        self.sgd.step()  # leaves out those without a gradient
        self.sgd.zero_grad()
        for replica in range(len(self.replicas)):
            own = self._weights(replica)
            for place in places:
                own[place].copy_(kept * own[place] + (1 - kept) * self.met[place])


def run_syncs(world: World, directory: Path) -> SyncOutcome:
    """Compare; all ranks get the same outcome. Collective."""
    found = [one for recipe in _recipes(world.size) for one in gathered(world, _met(world, recipe))]
    return SyncOutcome(
        max(one.loss_error for one in found),
        max(one.weight_error for one in found),
        max(one.averaged_error for one in found),
        {name: max(one.rounding[name] for one in found) for name in SENT_BYTES},
        tuple(_differing(world, directory)) if world.size == REPLICAS else (),
    )


def _recipes(ranks: int) -> Iterator[Recipe]:
    """Replicas of whole weights and of adapters, or of two stages and of two shards."""
    low = AdaptersSection(rank=4, alpha=16.0)
    usual_meetings = {"sync_every": EVERY}
    kinds: list[tuple[int, AdaptersSection, dict[str, int]]] = [
        (1, NO_ADAPTERS, usual_meetings),
        (1, NO_ADAPTERS, IN_FRAGMENTS),
        (1, NO_ADAPTERS, LATE),
        (1, low, usual_meetings) if ranks == REPLICAS else (2, NO_ADAPTERS, usual_meetings),
        (1, low, LATE) if ranks == REPLICAS else (2, NO_ADAPTERS, LATE),
    ]
    if ranks > REPLICAS and not runs_all():
        # Two ranks try all kinds of syncs: here one of stages and one of shards.
        kinds = [kinds[2], kinds[3]]
    for shards, adapters, syncs in kinds:
        usual = case(
            *("llama", "eager-1f1b", "uneven", 1, ranks),
            tied=True,
            data_parallel=DataParallelSection(replicas=REPLICAS, shards=shards, **syncs),
            adapters=adapters,
        )
        yield replace(
            usual,
            train=replace(usual.train, steps=STEPS),
            optimizer=replace(usual.optimizer, learning_rate=RATE),
        )


def _met(world: World, recipe: Recipe) -> SyncOutcome:
    config = read_config(recipe.model, VOCABULARY)
    grid, layout = make_grid(recipe, world.size), lay_out(recipe, world.size, layers_of(recipe))
    modules = build_modules(recipe, config, layout, grid.place_of(world.rank), world.device)
    meter, groups = StageMeter(Stopwatch(world.device)), form_groups(world, recipe, grid, layout)
    pipeline = Pipeline(recipe, config, layout, groups, modules, meter)
    optimizer = Optimizer(
        recipe, pipeline.parameters(), pipeline.counted_once(), replica=groups.replica
    )
    syncs = OuterSyncs(recipe, groups, pipeline, optimizer, meter, unwatched)
    played, batches, loss_error = Played(recipe, config), batches_of(recipe), 0.0
    for step in range(STEPS):
        batch = batches[step % len(batches)]
        own = pipeline.forward_backward(batch)
        pipeline.share_gradients()
        loss, norm, _ = optimizer.total(own, optimizer.gradient_squares())
        optimizer.update(norm)
        syncs.after(step + 1)
        expected = played.step(batch, step)
        loss_error = max(loss_error, abs(loss.item() - expected) / expected)
    theirs, rows = played.replicas[grid.replica_of(world.rank)].weights(), pipeline.rows()
    mine = {name: one[slice(*rows[name])] if name in rows else one for name, one in theirs.items()}
    weight_error = _worst(pipeline, mine)
    averaged_error = _averaged_error(recipe, groups, pipeline, optimizer, batches[0])
    assert groups.replicas is not None
    rounding = {name: _rounding_error(name, groups.replicas) for name in SENT_BYTES}
    return SyncOutcome(loss_error, weight_error, averaged_error, rounding)


def _averaged_error(
    recipe: Recipe, groups: Groups, pipeline: Pipeline, optimizer: Optimizer, batch: Batch
) -> float:
    """Without momentum, and by a learning rate of 1: the mean of what SGD makes of the same."""
    plain = replace(
        recipe.data_parallel,
        sync_every=1,
        sync_fragments=1,
        sync_delay=0,
        outer_learning_rate=1.0,
        outer_momentum=0.0,
    )
    meter = StageMeter(Stopwatch(groups.pipeline.device))
    every_step = replace(recipe, data_parallel=plain)
    syncs = OuterSyncs(every_step, groups, pipeline, optimizer, meter, unwatched)
    pipeline.forward_backward(batch)
    pipeline.share_gradients()
    expected = {}
    for name, one in pipeline.parameters().items():
        assert one.grad is not None
        mean = one.grad.clone()
        dist.all_reduce(mean, group=groups.replicas)
        expected[name] = one.detach() - RATE * mean / REPLICAS
        one.data -= RATE * one.grad
    syncs.after(1)
    return _worst(pipeline, expected)


def _rounding_error(dtype: str, group: dist.ProcessGroup) -> float:
    """Of numbers that fill no whole block, the last replica's a thousand times as small."""
    count = dist.get_world_size(group)
    made = torch.Generator().manual_seed(7)
    all_values = torch.randn((count, 5003), generator=made)
    all_values[-1] /= 1000
    mean, sent = average(all_values[dist.get_rank(group)].clone(), dtype, group)
    whole = 5003 * SENT_BYTES[dtype] * 2 * (count - 1) / count
    assert whole // 1 <= sent < 1.25 * whole, "to fill whole blocks little more is sent"
    means = [torch.empty_like(mean) for _ in range(count)]
    dist.all_gather(means, mean, group=group)
    if not all(torch.equal(one, mean) for one in means):
        return float("inf")
    return ((mean - all_values.mean(dim=0)).abs().max() / all_values.abs().max()).item()


def _worst(pipeline: Pipeline, expected: Mapping[str, torch.Tensor]) -> float:
    errors = []
    for name, one in pipeline.parameters().items():
        largest = expected[name].abs().max().clamp_min(1e-12)
        errors.append(((one.detach() - expected[name]).abs().max() / largest).item())
    return max(errors)


def _differing(world: World, directory: Path) -> list[str]:
    """Train, and again from between two syncs, by what is sent. Collective."""
    found = []
    kinds = {"float32": (), "int8 fragments behind computing": (*NARROW, *FRAGMENTS)}
    if runs_all():
        kinds |= {"bfloat16 and int8": NARROW, "fragments behind computing": FRAGMENTS}
    for name, more in kinds.items():
        folder = directory / f"syncs-{name}"
        if world.is_head:
            folder.mkdir()
            write_text(folder / "text")
        dist.barrier()
        found += [f"{name}: {one}" for one in _resumed(world, folder, more)]
    return found


def _resumed(world: World, folder: Path, more: Sequence[str]) -> list[str]:
    kept = CheckpointDirectory(folder / "kept")
    changes = [f"data.source={folder / 'text'}", f"checkpoint.directory={kept.path}", *SETTINGS]
    recipe = parse_recipe("", [*changes, *more])
    whole = train(recipe)
    written = load_file(kept.path / "model" / "model.safetensors")
    dist.barrier()
    saved = max(step for step in kept.manifests() if step < TRAINED and step % MET_EVERY)
    if world.is_head:
        for step in [one for one in kept.manifests() if one > saved]:
            shutil.rmtree(kept.of(step))
    dist.barrier()
    again = train(recipe)
    rewritten = load_file(kept.path / "model" / "model.safetensors")
    dist.barrier()
    differing = [
        *(["losses"] if again.losses != whole.losses[saved:] else []),
        *(["norms"] if again.gradient_norms != whole.gradient_norms[saved:] else []),
        *(name for name, one in written.items() if not torch.equal(one, rewritten[name])),
    ]
    last = {step: loss for step, loss in whole.evaluations.items() if step > saved}
    return differing + (["evaluations"] if again.evaluations != last else [])
