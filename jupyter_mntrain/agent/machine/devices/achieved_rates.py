"""Achieved rates: what a job's ranks achieved on this node's devices, beside what was measured."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from jupyter_mntrain.agent.attempt.metrics_tail import last_steps
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.families import shape_of
from jupyter_mntrain.model.api import rank_file
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.records.job import JobSpec, Placement
from jupyter_mntrain.model.records.metrics import RankStep
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.records.plan import AchievedRate, DeviceMeasurement
from jupyter_mntrain.plan.measured_speeds import measurement_of
from jupyter_mntrain.plan.prediction.speeds import speed_of
from jupyter_mntrain.plan.prediction.step import stage_costs
from jupyter_mntrain.recipe.changes.fewer_ranks import on_fewer_ranks
from jupyter_mntrain.recipe.layout import lay_out, make_grid
from jupyter_mntrain.recipe.memory import Config, model_config
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.recipe.stored import recipe_of

log = logging.getLogger("mntrain.agent")

WARM_UP = 3
FEWEST = 10
"""Steps after the warm-up that a rate needs."""

UNDISTURBED = 0.1
"""Share of steps that are faster than the one that counts: what others disturbed does not."""


def keep_achieved(node: LocalNode, job: LocalJob) -> bool:
    """Whether something is known of the job's devices."""
    info, record, kept = node.info(), job.record, False
    try:
        of_ranks = list(_of_ranks(job, record.spec))
    except (MntrainError, OSError, ValueError) as error:
        log.info("what %s achieved is not known: %s", record.job_id, error)
        return False
    placement = job.placement
    for gpu in dict.fromkeys(placement.gpus) or [None]:
        ranks = [one for one in of_ranks if gpu is None or one.gpu == gpu]
        measured = _measured(info, placement, ranks, gpu)
        if measured is not None:
            rate = _rate(record.job_id, info, placement, ranks)
            node.devices.book.keep_achieved(measured, rate)
            kept = True
    return kept


class _AchievedByRank(NamedTuple):
    """What one rank computed in a step, and the seconds of computing that took.

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
        """Of computing, in a step that nothing disturbed."""
        known = sorted(one.compute_s for one in self.steps if one.compute_s)
        return known[int(len(known) * UNDISTURBED)]

    @property
    def flops_per_s(self) -> float:
        return (self.steps[-1].flops or 0.0) / self.seconds


def _of_ranks(job: LocalJob, spec: JobSpec) -> Iterator[_AchievedByRank]:
    """Ranks of this node that have made enough steps; none for a script."""
    written, world_size = recipe_of(spec), job.record.attempt.world_size
    config = None if written is None else model_config(written)
    if written is None or config is None:
        return
    recipe = on_fewer_ranks(written, world_size, spec.world_size)
    grid = make_grid(recipe, world_size)
    layout = lay_out(recipe, world_size, shape_of(config).layers)
    placement = job.placement
    for local in range(placement.nproc):
        rank = Rank(placement.first_rank + local)
        steps = last_steps(job.attempt.path / "metrics" / rank_file(rank))
        timed = [one for one in steps if one.compute_s and one.flops][WARM_UP:]
        if len(timed) >= FEWEST:
            gpu = placement.gpus[local] if placement.gpus else None
            stages = layout.stages_of(grid.place_of(rank))
            yield _AchievedByRank(recipe, config, world_size, stages, gpu, timed)


def _measured(
    info: NodeInfo, placement: Placement, ranks: Sequence[_AchievedByRank], gpu: int | None
) -> DeviceMeasurement | None:
    """The measurement of the device, with as many ranks."""
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
    """Seconds of computing in a step, by what was measured."""
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
