"""Pipeline: this rank's stages and the schedule that drives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from jupyter_mntrain.model.quantities import by_size
from jupyter_mntrain.plan.prediction.step import shard_bytes
from jupyter_mntrain.recipe.instructions import choose_counts, counts_without_links
from jupyter_mntrain.recipe.layout import Layout
from jupyter_mntrain.recipe.memory import WIDTHS, StageShape
from jupyter_mntrain.recipe.schedules import KINDS
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.recipe.transfers import FORMATS, Transfer, boundary_transfers, wire_bytes
from jupyter_mntrain.train.data.batches import Batch
from jupyter_mntrain.train.model.activations import Offload
from jupyter_mntrain.train.model.adapters import adapted_in, is_adapter, whole_in
from jupyter_mntrain.train.model.decoder import HEAD, StageModule
from jupyter_mntrain.train.model.losses import Loss, choose_loss, from_logits, make_loss
from jupyter_mntrain.train.model.sharding import Shards
from jupyter_mntrain.train.model.stages import make_stages
from jupyter_mntrain.train.optimizer.algorithms import Split
from jupyter_mntrain.train.pipeline.evaluation import Forwards, run
from jupyter_mntrain.train.pipeline.runtime import (
    RuntimeChangedError,
    make_eager,
    make_schedule,
    most_held,
)
from jupyter_mntrain.train.pipeline.stopwatch import StageMeter, measure_links
from jupyter_mntrain.train.pipeline.transfers import Numbering, ends_of
from jupyter_mntrain.train.world import Groups, World, gathered

# Replicas: sums of what parallel pipelines have, stage by stage.


BUCKET_BYTES = 32 * 2**20
"""Bytes of gradients that are sent at once: small buckets cost round trips, large ones memory."""


def add_up(gradients: Iterable[torch.Tensor], group: dist.ProcessGroup) -> int:
    """All-reduce gradients over the replicas, in buckets; the sums are bitwise equal.

    Args:
        gradients: in the same order on every rank of the group; of one dtype.

    Returns:
        Bytes sent, and as many received, by this rank in a ring all-reduce.
    """
    total = 0
    for bucket in by_size(gradients, lambda one: one.nbytes, BUCKET_BYTES):
        flat = torch.cat([one.reshape(-1) for one in bucket])
        dist.all_reduce(flat, group=group)
        sums = torch.split(flat, [one.numel() for one in bucket])
        torch._foreach_copy_(
            bucket, [part.view_as(one) for part, one in zip(sums, bucket, strict=True)]
        )
        total += flat.nbytes
    return ring_bytes(total, dist.get_world_size(group))


def ring_bytes(size_bytes: int, ranks: int) -> int:
    """Return the bytes that a rank sends, and also receives, in a ring all-reduce."""
    return 2 * size_bytes * (ranks - 1) // ranks


# Tied embedding: keeps its two copies equal, on the first and on the last stage.


class TiedEmbedding:
    """The copies of a tied embedding; this rank may hold one, or both (as in a V schedule).

    Args:
        name: of the embedding; the other copy is the output projection.
        layout: whose first and last stage they are on.
        world: of the pipeline.
        meter: counts what is exchanged.
    """

    def __init__(self, name: str, layout: Layout, world: World, meter: StageMeter) -> None:
        own = layout.stages_of(world.rank)
        self._has_first, self._has_last = 0 in own, layout.last_stage in own
        self._peer = layout.tied_peer(world.rank)
        self._name = name
        self._world = world
        self._meter = meter

    def add_up(self, gradients: Mapping[str, torch.Tensor]) -> None:
        """Replace both copies by their sum, in place. Collective.

        Args:
            gradients: by name, of at least the copies that this rank holds.
        """
        self._combine(gradients, 1)

    def even_out(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Replace both copies by their mean, in place; equal copies stay as they are.

        Collective. Sums over replicas may be rounded otherwise in each copy, because ranks send
        other things next to it.

        Args:
            weights: likewise; on any device.
        """
        self._combine(weights, 2)

    def _combine(self, tensors: Mapping[str, torch.Tensor], divisor: int) -> None:
        if self._has_first and self._has_last:
            if HEAD in tensors:  # one stage alone has one copy
                first, last = tensors[self._name], tensors[HEAD]
                _add(first, last, divisor)
                last.copy_(first)
        elif self._peer is not None:
            mine = tensors[self._name if self._has_first else HEAD]
            here = mine.to(self._world.device)
            # a + b equals b + a bitwise, so the copies stay equal.
            _add(here, self._of_peer(here, self._peer), divisor)
            mine.copy_(here)  # on another device, else it is itself

    def _of_peer(self, mine: torch.Tensor, peer: int) -> torch.Tensor:
        """Exchange the copies; return the peer's."""
        theirs = torch.empty_like(mine)
        peer = self._world.in_job(peer)
        exchange = [
            dist.P2POp(dist.isend, mine, peer, self._world.group),
            dist.P2POp(dist.irecv, theirs, peer, self._world.group),
        ]
        for work in dist.batch_isend_irecv(exchange):
            work.wait()
        self._meter.exchanged(peer, mine.nbytes)
        return theirs


def _add(one: torch.Tensor, other: torch.Tensor, divisor: int) -> None:
    one += other
    if divisor > 1:
        one /= divisor


def _transfers(recipe: Recipe, layout: Layout, world: World) -> tuple[Transfer, ...]:
    """Return how each boundary of a pipeline sends. Collective if that depends on the nodes.

    What is computed in bfloat16 is sent as it is, where it is to be sent so.
    """
    given = recipe.transfer
    is_alike = given == "none" or not isinstance(given, str)
    nodes = [""] * world.size if is_alike else gathered(world, world.host)
    found = boundary_transfers(given, layout.stage_ranks, nodes)
    return tuple("none" if one == recipe.dtype else one for one in found)


class Pipeline:
    """Runs a recipe's schedule over the stages of this rank.

    Args:
        groups: the ranks of this pipeline, and of its replicas.
        modules: from :func:`~jupyter_mntrain.train.model.stages.build_modules`.
        meter: counts compute seconds and exchanged bytes, once attached by :meth:`measure`.

    Attributes:
        forwards: the same stages, for forward-only runs.
    """

    def __init__(
        self,
        recipe: Recipe,
        config: Any,
        layout: Layout,
        groups: Groups,
        modules: Mapping[int, StageModule],
        meter: StageMeter,
    ) -> None:
        self._recipe = recipe
        self._layout = layout
        self._groups = groups
        self._world = groups.pipeline
        self._meter = meter
        self._modules = modules
        self._shards = (
            Shards(
                modules.values(),
                groups.shards,
                groups.pipeline.device,
                meter,
                drops=recipe.data_parallel.reshard_after_forward,
            )
            if groups.shards is not None
            else None
        )
        place = self._world.rank
        self._shard_bytes = shard_bytes(recipe, config.to_dict(), layout, place)
        self._config = config
        self._is_tied = bool(config.tie_word_embeddings)
        self._trains_tied = self._is_tied and recipe.trains_tied
        self._tied: TiedEmbedding | None = None
        if self._trains_tied:
            name = next(iter(modules.values())).family.embedding_weight
            self._tied = TiedEmbedding(name, layout, groups.pipeline, meter)
        self._hidden_size = int(config.hidden_size)
        self._drops = any(one.drops for one in modules.values())
        shape = (recipe.microbatch_size, recipe.data.sequence_length)
        self._transfers = _transfers(recipe, layout, groups.pipeline)
        self._numbering = Numbering(recipe.train.seed)
        ends = {
            index: ends_of(index, self._transfers, self._numbering, compiles=recipe.compiles)
            for index in modules
        }
        self._stages = make_stages(recipe, config, layout, groups, modules, shape, ends=ends)
        self._sum_of_losses = self._make_loss()
        self._timed_loss = self._sum_of_losses
        self.forwards = Forwards(
            recipe, config, layout, groups, modules, self._renew, self._sum_of_losses
        )
        self._counted = 1.0
        """Tokens of the current step that the loss counts."""
        self.note = ""
        """A remark about the schedule, for the log."""
        # Until the links are measured.
        self._counts = counts_without_links(recipe, len(layout.stages))
        self._schedule = self._make_schedule()

    def parameters(self) -> dict[str, nn.Parameter]:
        """Parameters that this rank updates, by name in the whole model; its rows if sharded.

        Those of adapters and what is trained whole next to them, if the recipe has some.
        """
        if self._shards is not None:
            return self._shards.parts
        stages = self._modules.values()
        return {name: value for stage in stages for name, value in stage.trained().items()}

    def counted_once(self) -> dict[str, nn.Parameter]:
        """Parameters whose gradients count in the global norm: all but a tied copy."""
        return {k: v for k, v in self.parameters().items() if not (self._is_tied and k == HEAD)}

    def count_parameters(self) -> int:
        """Return the number of values that this rank holds, trained or frozen."""
        if self._shards is not None:
            return self._shards.count
        return sum(one.numel() for one in self._weights().values())

    def rows(self) -> dict[str, tuple[int, int]]:
        """Return begin and end of this rank's rows of each parameter; empty if not sharded."""
        return {} if self._shards is None else self._shards.rows

    def split(self) -> Split | None:
        """Return how the parameters are split among ranks; ``None`` if they are not."""
        if self._shards is None or self._groups.shards is None:
            return None
        return Split(self._groups.shards, self._shards.rows, self._shards.whole_rows)

    def written_once(self) -> dict[str, torch.Tensor]:
        """Return the whole weights that this rank exports. Collective if sharded."""
        is_first = self._groups.grid.part_of(self._groups.rank) == 0
        if self._shards is None:
            found: dict[str, torch.Tensor] = {**self._weights()} if is_first else {}
        else:
            # To the host one by one: they may not all fit on the GPU.
            found = {name: one.cpu() for name, one in self._shards.gather() if is_first}
        if self._is_tied:
            found.pop(HEAD, None)
        return found

    def _weights(self) -> dict[str, nn.Parameter]:
        """Return all weights of this rank's stages, by name in the whole model."""
        stages = self._modules.values()
        return {name: value for stage in stages for name, value in stage.weights().items()}

    def neighbors(self) -> tuple[int, ...]:
        """The job's ranks with which this one exchanges activations or gradients, ascending."""
        grid, rank = self._groups.grid, self._groups.rank
        beside = self._layout.neighbors(self._world.rank, tied=self._trains_tied)
        ring = {*grid.ring_of(rank), *grid.shard_ring_of(rank)} - {rank}
        return tuple(sorted({*map(self._world.in_job, beside), *ring}))

    def stage_shapes(self) -> list[StageShape]:
        """Return the shapes for this rank's memory estimate, with the microbatches in flight."""
        indices = list(self._modules)
        count, defers = self._recipe.microbatches, KINDS[self._recipe.schedule].defers
        held = most_held(self._schedule, self._world.rank, indices, count, defers=defers)
        deferred = self._counts.deferred[self._world.rank] if defers and not self.note else 0
        sends: list[Transfer] = ["none", *self._transfers, "none"]
        return [
            StageShape(
                parameters=tuple(
                    tuple(one.shape)
                    for name, one in module.weights().items()
                    if not is_adapter(name)
                ),
                adapted=adapted_in(module) if self._recipe.trains_adapters else None,
                whole=whole_in(module) if self._recipe.trains_adapters else (),
                trains_head=module.last and module.causal.lm_head.weight.requires_grad,
                layers=len(module.layers),
                has_first=module.first,
                has_last=module.last,
                in_flight=waiting,
                loss=choose_loss(self._recipe, self._config.vocab_size, self._world.device),
                offloads=isinstance(module.keeping, Offload),
                deferred=deferred if len(self._layout.stages) > 1 else 0,
                transfers=(sends[index], sends[index + 1]),
            )
            for (index, module), waiting in zip(self._modules.items(), held, strict=True)
        ]

    def measure(self, *, is_on: bool = True) -> None:
        """Attach the meter to the stages, or detach it."""
        for stage in self._stages:
            StageMeter.detach(stage)
            if is_on:
                self._meter.attach(stage)
        self._timed_loss = self._meter.timed(self._sum_of_losses) if is_on else self._sum_of_losses

    def forward_backward(self, batch: Batch, step: int = 0) -> torch.Tensor:
        """Accumulate gradients over this pipeline's share of a step's batch.

        Args:
            batch: the whole batch, the same on every rank.
            step: its number, which decides what is dropped, and how gradients are rounded where
                they are sent in fewer bits.

        Returns:
            This pipeline's part of the mean loss per token, a scalar, on the rank of its last
            stage; zero elsewhere.
        """
        total = torch.zeros((), device=self._world.device)
        grid, counted = self._groups.grid, self._counted_beside(batch)
        # FSDP2 averages gradients over its ranks; we want the sum.
        self._counted = counted / grid.shards
        mine = batch.share(grid.part_of(self._groups.rank), grid.width)
        self._renew()
        if self._drops:  # as after a resume: by step and rank, whatever was drawn before
            seeds = np.random.SeedSequence((self._recipe.train.seed, step, self._groups.rank))
            torch.manual_seed(int(seeds.generate_state(1)[0]))
        passes, count = self._recipe.train.accumulation, self._recipe.microbatches
        before = grid.part_of(self._groups.rank) * passes
        for number, part in enumerate(mine.parts(len(mine) // passes)):
            self._numbering.step, self._numbering.first = step, (before + number) * count
            here = part.to(self._world.device)
            for loss in run(self._schedule.step, self._modules, here):
                total += loss.detach()
        for stage in self._stages:
            for end in (stage.ends.activations_out, stage.ends.gradients_out):
                if end is not None:
                    self._meter.compared(end.take_compared())
        return total * (counted / max(1, batch.counted)) / grid.shards

    def _counted_beside(self, batch: Batch) -> int:
        """Return the counted tokens of all pipelines whose gradients are summed with this one's."""
        grid = self._groups.grid
        if not grid.is_apart:
            return max(1, batch.counted)
        parts = grid.replica_parts(self._groups.rank)
        return max(1, sum(batch.share(part, grid.width).counted for part in parts))

    def share_gradients(self) -> None:
        """Sum gradients over replicas and over the copies of a tied embedding. Collective.

        Replicas that sync rarely do not sum theirs.
        """
        if self._shards is not None:
            self._shards.take_gradients()
            before, after = self._groups.grid.shard_ring_of(self._groups.rank)
            self._meter.passed_on(self._shard_bytes, sent_to=after, received_from=before)
        self._add_up_over_replicas()
        if self._tied is not None:
            # After the replicas' sums, which are bitwise equal, so that the copies stay equal.
            own = self.parameters().items()
            self._tied.add_up({name: one.grad for name, one in own if one.grad is not None})

    def even_out_tied(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Make the copies of a tied embedding equal in weights that are about to be written.

        Collective.

        Args:
            weights: of all parameters that this rank updates, by name.
        """
        if self._tied is not None:
            self._tied.even_out(weights)

    def _renew(self) -> None:
        """Free gathered weights, which the optimizer did not update."""
        if self._shards is not None:
            self._shards.forget_gathered()

    def _add_up_over_replicas(self) -> None:
        if self._groups.replicas is None or self._groups.grid.is_apart:
            return
        gradients = [one.grad for one in self.parameters().values() if one.grad is not None]
        before, after = self._groups.grid.ring_of(self._groups.rank)
        size = add_up(gradients, self._groups.replicas)
        self._meter.passed_on(size, sent_to=after, received_from=before)

    def send_ahead(self, compute_s: float) -> str | None:
        """Measure the links, and set how many microbatches each stage keeps in flight. Collective.

        Called once, between two steps. Only step times change, not results.

        Args:
            compute_s: seconds that this rank's stage computes in a step.

        Returns:
            A line for the log, or ``None`` if nothing was measured.
        """
        recipe, world = self._recipe, self._world
        section, kind = recipe.pipeline, KINDS[recipe.schedule]
        is_open = section.in_flight == "auto" or (kind.defers and section.deferred == "auto")
        if not kind.is_eager or self.note or not is_open or world.size == 1:
            return None
        each_s = compute_s / (recipe.microbatches * recipe.train.accumulation)
        tokens = recipe.microbatch_size * recipe.data.sequence_length
        size = (tokens, self._hidden_size, WIDTHS[recipe.dtype])
        messages = [
            (wire_bytes(forth, *size), wire_bytes(back, *size))
            for forth, back in (FORMATS[one] for one in self._transfers)
        ]
        ahead = self._counts.ahead[world.rank]
        links = measure_links(world, messages, each_s, ahead, recipe.microbatches)
        if not any(links.transfer_s):
            return None
        counts = choose_counts(recipe, *links)
        if counts != self._counts:
            self._counts = counts
            self._schedule = self._make_schedule()
        deferred = ", ".join(map(str, counts.deferred))
        return (
            f"pipeline: {', '.join(map(str, counts.ahead))} microbatches in flight per stage"
            f"{f', weight gradients of {deferred} deferred' if kind.defers else ''}; computing "
            f"one takes {max(links.compute_s) * 1e3:.0f} ms, its round trip "
            f"{max(links.transfer_s) * 1e3:.0f} ms"
        )

    def _make_loss(self) -> Loss:
        last = self._modules.get(self._layout.last_stage)
        if last is None:
            return from_logits  # unused
        kind = choose_loss(self._recipe, self._config.vocab_size, self._world.device)
        section = self._recipe.memory
        return make_loss(
            kind,
            last.causal.lm_head,
            section.chunk_tokens,
            shaping=last.shaping,
            is_compiled=section.compile is True,
            splits_backward=KINDS[self._recipe.schedule].splits_backward,
        )

    def _loss(self, output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return a microbatch's part of the mean loss over the step's tokens."""
        return self._timed_loss(output, labels) / self._counted

    def _make_schedule(self) -> Any:
        count, name = self._recipe.microbatches, self._recipe.schedule
        if KINDS[name].is_eager and len(self._layout.stages) > 1:
            try:
                made = make_eager(self._stages[0], self._counts, count, self._loss)
            except RuntimeChangedError as error:
                self.note = f"this torch does not support {name} ({error}); using 1f1b"
                name = "1f1b" if count >= len(self._layout.stages) else "gpipe"
            else:
                self._defer(is_on=self._counts.deferred[self._world.rank] > 0)
                return made
        self._defer(is_on=False)
        return make_schedule(name, self._stages, count, self._loss)

    def _defer(self, *, is_on: bool) -> None:
        for module in self._modules.values():
            if module.weight_gradients is not None:
                module.weight_gradients.are_deferred = is_on
