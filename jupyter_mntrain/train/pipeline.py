"""This rank's stages and the schedule that drives them: one batch in, gradients and loss out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.nn.functional import cross_entropy

from jupyter_mntrain.telemetry.progress import Progress, Tally, unwatched
from jupyter_mntrain.train.decoder import (
    EMBEDDING,
    HEAD,
    StageModule,
    materialise,
    meta_stage,
    model_directory,
)
from jupyter_mntrain.train.layout import Layout
from jupyter_mntrain.train.sections import Recipe
from jupyter_mntrain.train.stopwatch import StageMeter
from jupyter_mntrain.train.weights import load_weights, seeded_weights
from jupyter_mntrain.train.world import World

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def build_modules(
    recipe: Recipe,
    config: Any,
    layout: Layout,
    rank: int,
    device: torch.device,
    progress: Progress = unwatched,
) -> dict[int, StageModule]:
    """The stages of one rank by index, with only their own tensors made or read.

    Raises:
        RecipeError: the model directory lacks what a stage needs.
    """
    stages = {
        index: meta_stage(
            config,
            layout.stages[index],
            first=index == 0,
            last=index == layout.last_stage,
            dtype=DTYPES[recipe.model.dtype],
            attention=recipe.model.attention,
        )
        for index in layout.stages_of(rank)
    }
    size = sum(one.nbytes for stage in stages.values() for one in stage.weights().values())
    what = "making the weights" if recipe.model.path is None else "loading the model"
    tally = Tally(progress, what, size, "B")
    return {
        index: materialise(stage, _weights(recipe, config, stage.weights(), device, tally), device)
        for index, stage in stages.items()
    }


class Pipeline:
    """Runs a recipe's schedule over the stages of this rank.

    Shapes are static: torch would otherwise run an extra forward and backward to find them.

    Args:
        modules: from :func:`build_modules`.
        meter: told of every second computed and every byte exchanged, once attached.
    """

    def __init__(
        self,
        recipe: Recipe,
        config: Any,
        layout: Layout,
        world: World,
        modules: Mapping[int, StageModule],
        meter: StageMeter,
    ) -> None:
        self._recipe = recipe
        self._layout = layout
        self._world = world
        self._meter = meter
        self._modules = modules
        self._is_tied = bool(config.tie_word_embeddings)
        self._has_first = 0 in modules
        self._has_last = layout.last_stage in modules
        self._stages = [self._stage(index, config) for index in modules]
        self._timed_loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = _cross_entropy
        self._schedule = self._make_schedule()

    def parameters(self) -> dict[str, nn.Parameter]:
        """This rank's parameters by their name in the whole model."""
        stages = self._modules.values()
        return {name: value for stage in stages for name, value in stage.weights().items()}

    def counted_once(self) -> dict[str, nn.Parameter]:
        """Parameters whose gradient this rank adds to the global norm: a tied copy only once."""
        copy = self._is_tied and not self._has_first and self._has_last
        return {k: v for k, v in self.parameters().items() if not (copy and k == HEAD)}

    def measure(self, *, is_on: bool = True) -> None:
        """Attach the meter to the stages, or take it off."""
        for stage in self._stages:
            StageMeter.detach(stage)
            if is_on:
                self._meter.attach(stage)
        self._timed_loss = self._meter.timed(_cross_entropy) if is_on else _cross_entropy

    def forward_backward(self, batch: torch.Tensor) -> torch.Tensor:
        """Add the gradients of one optimiser step's batch.

        Args:
            batch: ids, (batch_size, sequence_length + 1), the same on every rank.

        Returns:
            The mean loss per token on the rank of the last stage, zero elsewhere: a scalar.
        """
        total = torch.zeros((), device=self._world.device)
        for part in batch.chunk(self._recipe.train.accumulation):
            for loss in self._run_schedule(part.to(self._world.device)):
                total += loss
        return total

    def share_tied_gradient(self) -> None:
        """Add up the gradients of the two copies of a tied embedding; both ranks get the sum."""
        peer = self._layout.tied_peer(self._world.rank)
        if not self._is_tied or peer is None:
            return
        mine = self.parameters()[EMBEDDING if self._has_first else HEAD].grad
        assert mine is not None  # noqa: S101
        theirs = torch.empty_like(mine)
        exchange = [dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, theirs, peer)]
        for work in dist.batch_isend_irecv(exchange):
            work.wait()
        # a + b is b + a to the last bit, so the copies stay equal.
        mine += theirs
        self._meter.exchanged(peer, mine.nbytes)

    def _run_schedule(self, ids: torch.Tensor) -> list[torch.Tensor]:
        positions = torch.arange(ids.shape[1] - 1, device=ids.device).expand(ids.shape[0], -1)
        inputs = (ids[:, :-1].contiguous(),) if self._has_first else ()
        target = ids[:, 1:].contiguous() if self._has_last else None
        losses: list[torch.Tensor] | None = [] if self._has_last else None
        # position_ids on every rank: without them gradients are wrong, silently (measured).
        self._schedule.step(
            *inputs, target=target, losses=losses, position_ids=positions, return_outputs=False
        )
        return [loss.detach() for loss in losses or []]

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """This microbatch's part of the mean over all tokens of the optimiser step."""
        return self._timed_loss(logits, labels) / self._recipe.tokens_per_step

    def _stage(self, index: int, config: Any) -> PipelineStage:
        module = self._modules[index]
        dtype = DTYPES[self._recipe.model.dtype]
        shape = (self._recipe.microbatch_size, self._recipe.data.sequence_length)
        ids = torch.empty(shape, dtype=torch.int64, device="meta")
        # Without requires_grad torch would take the stage before to want no gradient.
        hidden = torch.empty(
            (*shape, config.hidden_size), dtype=dtype, device="meta", requires_grad=True
        )
        logits = torch.empty(
            (*shape, config.vocab_size), dtype=dtype, device="meta", requires_grad=True
        )
        return PipelineStage(
            module,
            index,
            len(self._layout.stages),
            self._world.device,
            input_args=ids if module.first else hidden,
            output_args=logits if module.last else hidden,
        )

    def _make_schedule(self) -> ScheduleGPipe | Schedule1F1B | ScheduleInterleaved1F1B:
        # scale_grads divides whatever is in .grad after each call: with accumulation that is
        # wrong (torchtitan#1732). The scale is in the loss.
        count, name = self._recipe.pipeline.microbatches, self._recipe.pipeline.schedule
        if name == "interleaved-1f1b" and len(self._layout.stages) > 1:
            stages: list[Any] = [*self._stages]
            return ScheduleInterleaved1F1B(stages, count, loss_fn=self._loss, scale_grads=False)
        single = ScheduleGPipe if name == "gpipe" else Schedule1F1B
        return single(self._stages[0], count, loss_fn=self._loss, scale_grads=False)


def _cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Sum over all tokens, in float32 whatever the model computes in."""
    return cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")


def _weights(
    recipe: Recipe,
    config: Any,
    parameters: Mapping[str, torch.Tensor],
    device: torch.device,
    tally: Tally,
) -> dict[str, torch.Tensor]:
    if recipe.model.path is not None:
        directory = model_directory(recipe.model)
        return load_weights(directory, parameters, device=device, tally=tally)
    return seeded_weights(
        parameters,
        seed=recipe.train.seed,
        deviation=config.initializer_range,
        tied=config.tie_word_embeddings,
        device=device,
        tally=tally,
    )
