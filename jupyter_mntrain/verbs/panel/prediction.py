"""What can be said of a pipeline before it runs: its bubble and what its links must carry. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.job import Placement
from jupyter_mntrain.model.node import Capacity
from jupyter_mntrain.plan.traffic import step_traffic
from jupyter_mntrain.telemetry.formulas import ideal_bubble
from jupyter_mntrain.train.recipe import preset_config
from jupyter_mntrain.train.sections import Recipe

BYTES = {"float32": 4, "bfloat16": 2}


class LinkLoad(Record, frozen=True):
    """One direction between two nodes.

    Args:
        seconds: of each step that the link needs at least; ``None`` if it was not measured.
    """

    sender: str
    receiver: str
    bytes_per_step: float
    capacity: Capacity | None
    seconds: float | None


class Prediction(Record, frozen=True):
    """Of a job as it is chosen now.

    Args:
        ranks: of the pipeline.
        slots: of forward and backward work in each rank's schedule, the empty ones included.
        empty: slots in which a rank must wait however fast the others are.
        bubble: ``empty / slots``.
        links: ``None`` where the model's size is not known here.
    """

    ranks: int
    slots: int
    empty: int
    bubble: float
    links: tuple[LinkLoad, ...] | None

    @property
    def lacks_measurement(self) -> bool:
        return any(link.capacity is None for link in self.links or ())


def predict(
    recipe: Recipe, placements: Sequence[Placement], capacities: Mapping[str, Capacity | None]
) -> Prediction:
    """Args:
    capacities: of each node's chosen interface, by the node's name.
    """
    ranks = sum(placement.nproc for placement in placements)
    per_rank = recipe.stages_per_rank
    empty = ranks - 1
    return Prediction(
        ranks=ranks,
        slots=per_rank * recipe.pipeline.microbatches + empty,
        empty=empty,
        bubble=ideal_bubble(ranks, recipe.pipeline.microbatches, per_rank),
        links=_links(recipe, placements, capacities),
    )


def _links(
    recipe: Recipe, placements: Sequence[Placement], capacities: Mapping[str, Capacity | None]
) -> tuple[LinkLoad, ...] | None:
    if recipe.model.path is not None:
        return None
    hidden = int(preset_config(recipe.model)["hidden_size"])
    boundary = recipe.tokens_per_step * hidden * BYTES[recipe.model.dtype]
    nodes = [placement.node for placement in placements for _ in placement.ranks]
    loads = []
    for (sender, receiver), count in step_traffic(nodes, recipe.stages_per_rank, boundary).items():
        capacity = capacities.get(sender)
        loads.append(
            LinkLoad(
                sender=sender,
                receiver=receiver,
                bytes_per_step=count,
                capacity=capacity,
                seconds=count / capacity.bytes_per_s if capacity else None,
            )
        )
    return tuple(loads)
