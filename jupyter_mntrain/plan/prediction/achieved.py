"""Achieved rates: the FLOPs per second that a job's ranks achieved on a node's devices. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from jupyter_mntrain.families import shape_of
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.records.job import Placement
from jupyter_mntrain.model.records.metrics import RankStep
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.records.plan import AchievedRate, DeviceMeasurement
from jupyter_mntrain.plan.measured_speeds import measurement_of
from jupyter_mntrain.plan.prediction.speeds import speed_of
from jupyter_mntrain.plan.prediction.step import stage_costs
from jupyter_mntrain.recipe.layout import lay_out, make_grid
from jupyter_mntrain.recipe.memory import Config
from jupyter_mntrain.recipe.sections import Recipe

UNDISTURBED = 0.1
"""Share of steps that are faster than the one that counts: what others disturbed does not."""


class _AchievedByRank(NamedTuple):
    """The FLOPs that one rank computed in a step, and the seconds of computing.

    Args:
        stages: of the rank.
    """

    recipe: Recipe
    config: Config
    world_size: int
    stages: tuple[int, ...]
    gpu: int | None
    steps: Sequence[RankStep]

    @property
    def seconds(self) -> float:
        """The seconds of computing in an undisturbed step."""
        known = sorted(one.compute_s for one in self.steps if one.compute_s)
        return known[int(len(known) * UNDISTURBED)]

    @property
    def flops_per_s(self) -> float:
        return (self.steps[-1].flops or 0.0) / self.seconds


def achieved_rates(
    recipe: Recipe,
    config: Config,
    world_size: int,
    job_id: JobId,
    info: NodeInfo,
    placement: Placement,
    steps: Mapping[int, Sequence[RankStep]],
) -> Iterator[tuple[DeviceMeasurement, AchievedRate]]:
    """Yield the rate that a job's ranks achieved on each measured device of a node.

    Args:
        recipe: as the attempt ran it.
        world_size: of the attempt.
        steps: by local rank; each was timed.
    """
    grid = make_grid(recipe, world_size)
    layout = lay_out(recipe, world_size, shape_of(config).layers)
    ranks = [
        _AchievedByRank(
            recipe,
            config,
            world_size,
            layout.stages_of(grid.place_of(Rank(placement.first_rank + local))),
            placement.gpus[local] if placement.gpus else None,
            timed,
        )
        for local, timed in steps.items()
    ]
    for gpu in dict.fromkeys(placement.gpus) or [None]:
        own = [one for one in ranks if gpu is None or one.gpu == gpu]
        measured = _measured(info, placement, own, gpu)
        if measured is not None:
            yield measured, _rate(job_id, info, placement, own)


def _measured(
    info: NodeInfo, placement: Placement, ranks: Sequence[_AchievedByRank], gpu: int | None
) -> DeviceMeasurement | None:
    """Return the measurement of the device with the same number of ranks."""
    if not ranks:
        return None
    found = measurement_of(info, gpu, ranks[0].recipe.dtype, ranks=placement.nproc)
    if found is not None and gpu is None and found.ranks != placement.nproc:
        return None
    return found


def _rate(
    job_id: JobId, info: NodeInfo, placement: Placement, ranks: Sequence[_AchievedByRank]
) -> AchievedRate:
    return AchievedRate(
        job_id=job_id,
        flops_per_s=fmean(one.flops_per_s for one in ranks),
        time_s=max(one.steps[-1].time_s for one in ranks),
        slower=fmean(one.seconds / _expected_s(one, info, placement) for one in ranks),
    )


def _expected_s(one: _AchievedByRank, info: NodeInfo, placement: Placement) -> float:
    """Return the seconds of computing in a step, as expected from the measurement."""
    recipe = one.recipe
    speed = speed_of(
        info,
        one.gpu,
        recipe.dtype,
        ranks=placement.nproc,
        hidden_size=one.config["hidden_size"],
        tokens=recipe.microbatch_size * recipe.data.sequence_length,
        is_corrected=False,
    )
    layout = lay_out(recipe, one.world_size, shape_of(one.config).layers)
    costs = stage_costs(recipe, one.config, layout)
    if speed is None:
        raise ValueError("it was measured a moment ago")
    times = [costs[stage].times(speed) for stage in one.stages]
    microbatches = recipe.train.accumulation * recipe.microbatches
    return microbatches * sum(time.forward + time.backward for time in times)
