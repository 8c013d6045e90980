"""Costs: FLOPs and memory traffic of a stage per microbatch, from recipe and config alone. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.plan import DeviceSpeed
from jupyter_mntrain.plan.prediction.simulated import StageTimes
from jupyter_mntrain.recipe.families import parameters, shape_of
from jupyter_mntrain.recipe.layout import Layout
from jupyter_mntrain.recipe.memory import (
    Config,
    StageShape,
    adapter_values,
    saved_bytes,
    trains_head,
)
from jupyter_mntrain.recipe.schedules import KINDS, ScheduleName
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.formulas import (
    FORWARD_AND_BACKWARD,
    head_flops_per_token,
    layer_flops_per_token,
)


class StageCost(Record, frozen=True):
    """What one stage computes for one microbatch.

    Args:
        forward: FLOPs of the forward pass, with the loss on the last stage.
        inputs: FLOPs of the gradients of inputs.
        weights: FLOPs of the gradients of weights.
        again: FLOPs of what is recomputed in the backward pass.
        saved_bytes: that the forward pass keeps for the backward pass, if nothing is recomputed.
        again_bytes: that are written again in the backward pass.
        layers: of the stage.
    """

    forward: float
    inputs: float
    weights: float
    again: float
    saved_bytes: float
    again_bytes: float = 0.0
    layers: int = 0

    def times(self, speed: DeviceSpeed) -> StageTimes:
        """Seconds on a device."""
        bytes_per_s = speed.layer_bytes_per_s or speed.bytes_per_s
        pass_s = self.saved_bytes / bytes_per_s if bytes_per_s else 0.0
        again_s = 2 * self.again_bytes / bytes_per_s if bytes_per_s else 0.0
        overhead_s = self.layers * speed.overhead_s

        def seconds(flops: float, passes: float, overheads: float) -> float:
            """Args: passes: over what is saved."""
            return flops / speed.flops_per_s + passes * pass_s + overheads * overhead_s

        # Each saved value is written once and read by the next operation; on the way back, it and
        # its gradient are read and the gradient of its input is written.
        return StageTimes(
            forward=seconds(self.forward, 2, 1),
            backward=again_s + seconds(self.again + self.inputs + self.weights, 3, 2),
            inputs=again_s + seconds(self.again + self.inputs, 2, 1),
            weights=seconds(self.weights, 1, 1),
        )


TORCH_SPLIT: Final = 1.36
"""How much longer two halves of a backward pass take than the whole, where torch splits it
(``stage_backward_input`` and ``_weight``): measured on two cores, 24 % more computing in all."""

PUTTING_OFF: Final = 1.02
"""How much longer gradients of weights take if they are put off; measured on two cores, 0 to 7 %
more computing in all."""


def times_under(
    schedule: ScheduleName, cost: StageCost, speed: DeviceSpeed, *, is_first: bool
) -> StageTimes:
    """Seconds of a stage on a device, with what halves of a backward pass cost more."""
    times, kind = cost.times(speed), KINDS[schedule]
    if kind.puts_off:
        return times._replace(weights=PUTTING_OFF * times.weights)
    if kind.splits_backward and is_first:
        # Nobody waits for gradients of the first stage's inputs, and torch computes a whole
        # backward pass in place of those of its weights.
        return times._replace(inputs=0.0, weights=times.backward)
    if kind.splits_backward:
        return times._replace(
            inputs=TORCH_SPLIT * times.inputs, weights=TORCH_SPLIT * times.weights
        )
    return times


def stage_costs(recipe: Recipe, config: Config, layout: Layout) -> list[StageCost]:
    """Return the cost of every stage.

    A multiply-add is two FLOPs; a matrix product costs as much forward as for the gradient of its
    input and for that of its weights; attention has no weights, and two gradients of inputs (PaLM,
    arXiv 2204.02311, appendix B).
    """
    return [_cost(recipe, config, layout, stage) for stage in range(len(layout.stages))]


def _cost(recipe: Recipe, config: Config, layout: Layout, stage: int) -> StageCost:
    return stage_cost(
        recipe,
        config,
        len(layout.stages[stage]),
        is_first=stage == 0,
        is_last=stage == layout.last_stage,
    )


def stage_cost(
    recipe: Recipe, config: Config, layers: int, *, is_first: bool, is_last: bool
) -> StageCost:
    """Return the cost of a stage of ``layers`` layers."""
    shape, length = shape_of(config), recipe.data.sequence_length
    tokens = recipe.microbatch_size * length
    products = layers * layer_flops_per_token(shape, 0.0) / FORWARD_AND_BACKWARD
    attended = layers * layer_flops_per_token(shape, length) / FORWARD_AND_BACKWARD - products
    head = head_flops_per_token(shape) / FORWARD_AND_BACKWARD if is_last else 0.0
    beside = adapter_values(recipe, config)
    # A multiply-add is 2 FLOPs; beside adapters no gradients of frozen weights are computed.
    low = 2.0 * layers * (beside or 0)
    of_layers = products if beside is None else low
    again = {"none": 0.0, "full": products + attended + low, "selective": 0.0}
    kept = StageShape(
        parameters=parameters(config, layers, is_first=is_first, is_last=is_last),
        layers=layers,
        has_first=is_first,
        has_last=is_last,
        in_flight=1,
    )
    section = msgspec.structs.replace(recipe.memory, checkpointing="none")
    keeping = msgspec.structs.replace(recipe, memory=section)
    saved = saved_bytes(shape, keeping, kept)
    return StageCost(
        forward=tokens * (products + attended + head + low),
        inputs=tokens * (products + 2 * attended + head + low),
        weights=tokens * (of_layers + (head if trains_head(recipe, config) else 0.0)),
        again=tokens * again[recipe.checkpointing] * recipe.recomputed(layers) / max(1, layers),
        saved_bytes=saved,
        again_bytes=saved - saved_bytes(shape, recipe, kept),
        layers=layers,
    )
